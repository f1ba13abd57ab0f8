"""Measurements behind the figures that the documentation quotes: ``recollect bench …``."""
