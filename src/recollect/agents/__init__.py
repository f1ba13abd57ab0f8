"""Agents: definitions made of hyperparameters and pure functions. What changes is in the state they hand back."""
