"""Settings every test runs under: JAX refuses silent dtype promotion."""

import jax

jax.config.update("jax_numpy_dtype_promotion", "strict")
