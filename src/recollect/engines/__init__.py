"""Engines: one definition of an agent, made to run.

`choice` decides which engine serves an agent, for training and for the `Learner`, and nowhere else is that decided.
`loop` is the time step of agent and environment in JAX, for every pair; `cpu`, `recurrent` and `cuda` are the same for
some pairs, many times faster; `host` and `native` make an agent's step one call from Python, for Gymnasium. Start at
`choice`, then `loop`. May import `agents`, `envs` and `store`.
"""
