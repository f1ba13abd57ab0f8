"""The paper's experiments: data, no logic."""

import json
from importlib import resources
from typing import NamedTuple

from recollect.agents.recurrent import RecurrentActorCritic
from recollect.envs.secret_informant import SecretInformant


class Experiment(NamedTuple):
    """One figure of the paper, or one of its kind."""

    title: str
    length: int
    decisions: int
    memory_size: int
    episodes: int
    repeats: int = 3
    baseline_repeats: int = 0
    actions: int = 3
    correct_path_bit: bool = True

    @property
    def env(self) -> SecretInformant:
        """The environment."""
        return SecretInformant(self.length, self.decisions, self.actions, self.correct_path_bit)


FIGURES = {
    "fig3": Experiment("length 10, 1 decision, 1 state of memory", 10, 1, 1, 25_000, 3, 3),
    "fig4": Experiment("length 10, 1 decision, 3 states of memory", 10, 1, 3, 25_000, 3, 3),
    "fig5": Experiment("length 10, 2 decisions, 3 states of memory", 10, 2, 3, 50_000, 3, 10),
    "fig6": Experiment("length 20, 2 decisions, 3 states of memory", 20, 2, 3, 80_000, 3, 0),
}

HARDER = {
    "no-bit": Experiment("figure 5 without the correct-path bit", 10, 2, 3, 50_000, correct_path_bit=False),
    "no-bit-20": Experiment("figure 6 without the correct-path bit", 20, 2, 3, 80_000, correct_path_bit=False),
    "decisions-3": Experiment("length 10, 3 decisions, 4 states of memory", 10, 3, 4, 100_000),
    "decisions-4": Experiment("length 12, 4 decisions, 8 states of memory", 12, 4, 8, 200_000),
    "actions-5": Experiment("length 10, 2 decisions, 5 actions, 3 states of memory", 10, 2, 3, 100_000, actions=5),
    "length-50": Experiment("length 50, 2 decisions, 4 states of memory", 50, 2, 4, 100_000),
    "length-100": Experiment("length 100, 2 decisions, 8 states of memory", 100, 2, 8, 60_000),
    "memory-32": Experiment("length 40, 2 decisions, 32 states of memory", 40, 2, 32, 60_000),
}
"""Past the paper: what it names as future work, and larger instances."""

BASELINE_RATES = tuple(0.05 * 2.0**-x for x in range(10))


def baseline(decisions: int) -> RecurrentActorCritic:
    """The recurrent baseline with the learning rate and width that the paper's rule chose; see ``baseline.json``."""
    chosen = json.loads(resources.files("recollect.studies").joinpath("baseline.json").read_text())
    entry = chosen["chosen"][str(decisions)]
    return RecurrentActorCritic(width=entry["width"], learning_rate=entry["learning_rate"])
