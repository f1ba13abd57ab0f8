"""The commands of ``recollect``, by subject; each module's ``register`` adds its own to the parser."""
