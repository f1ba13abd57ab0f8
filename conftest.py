"""Where PyTorch is missing, what cannot be imported without it is not looked at for doctests."""

import importlib.util

collect_ignore_glob = ["src/recollect/torch/*.py"] if importlib.util.find_spec("torch") is None else []
