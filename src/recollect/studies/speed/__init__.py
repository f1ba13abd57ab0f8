"""Speed, measured on this machine: ``recollect bench train``, ``host`` and ``reservoir``."""
