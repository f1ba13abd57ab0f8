"""The paper's experiments: data, no logic."""

import json
from importlib import resources
from typing import NamedTuple

from recollect.agents.recurrent import RecurrentActorCritic
from recollect.envs.secret_informant import SecretInformant


class Experiment(NamedTuple):
    """One figure of the paper."""

    title: str
    length: int
    decisions: int
    memory_size: int
    episodes: int
    repeats: int
    baseline_repeats: int

    @property
    def env(self) -> SecretInformant:
        """The environment."""
        return SecretInformant(length=self.length, decisions=self.decisions)


FIGURES = {
    "fig3": Experiment("length 10, 1 decision, 1 state of memory", 10, 1, 1, 25_000, 3, 3),
    "fig4": Experiment("length 10, 1 decision, 3 states of memory", 10, 1, 3, 25_000, 3, 3),
    "fig5": Experiment("length 10, 2 decisions, 3 states of memory", 10, 2, 3, 50_000, 3, 10),
    "fig6": Experiment("length 20, 2 decisions, 3 states of memory", 20, 2, 3, 80_000, 3, 0),
}

BASELINE_RATES = tuple(0.05 * 2.0**-x for x in range(10))
BASELINE_WIDTHS = (5, 10, 15, 20)


def baseline(decisions: int) -> RecurrentActorCritic:
    """The recurrent baseline with the learning rate and width that the paper's rule chose; see ``baseline.json``."""
    chosen = json.loads(resources.files("recollect.experiments").joinpath("baseline.json").read_text())
    entry = chosen["chosen"][str(decisions)]
    return RecurrentActorCritic(width=entry["width"], learning_rate=entry["learning_rate"])
