"""Compiled loops that train `EpisodicActorCritic` on `SecretInformant` faster than XLA does, step for step the same."""
