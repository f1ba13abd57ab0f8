"""Agents: definitions made of hyperparameters and pure functions. What changes is in the state they hand back.

`base` says what an agent is, `episodic` is the paper's, `general` the default of `Learner`, `recurrent` and `realtime`
the baselines with a GRU; the others are the parts they are made of. `named` knows them by their names on the command
line. May import `reservoir`.
"""
