"""The sampler: an exact weighted reservoir, each n-subset with probability proportional to the product of its weights.

Streaming, mergeable, checksummed on disk; knows nothing of reinforcement learning. `law` is the law itself,
`algorithm1` the paper's algorithm, `stream` the public class, `kernel` the form that agents carry in JAX. Start at
`law`, then `stream`. Imports only `errors`, `prng` and `cores`.
"""
