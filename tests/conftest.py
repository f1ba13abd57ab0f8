"""Settings every test runs under: JAX refuses silent dtype promotion, and no program is compiled twice.

What JAX compiles is kept in pytest's own cache folder, for the other workers, for the processes that tests start, and
for the next time; what takes no time to compile as well, for there are thousands of it.
"""

import os
from pathlib import Path

import jax

SETTINGS = {
    "jax_compilation_cache_dir": str(Path(__file__).parents[1] / ".pytest_cache" / "jax"),
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": 0,
}
for name, value in SETTINGS.items():
    jax.config.update(name, value)
    os.environ[name.upper()] = str(value)
jax.config.update("jax_numpy_dtype_promotion", "strict")
