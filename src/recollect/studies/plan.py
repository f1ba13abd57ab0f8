"""What is asked for when a figure of the paper is made again: a plan that can be carried out, or a refusal."""

import dataclasses
import functools
import math
from pathlib import Path
from typing import Any, NamedTuple

from recollect.agents.base import Agent
from recollect.agents.episodic import EpisodicActorCritic
from recollect.errors import FileError
from recollect.studies.paper import FIGURES, Experiment, baseline

MAX_STEPS = 4.0
"""A run that has not finished its episodes after this many times the fewest steps they can take is ended: it loops."""

BASELINE_GROUP = 32  # seeds that train side by side, and are saved together

BASELINE_MAX_STEPS = 4.0
"""The same for the recurrent baseline, whatever is asked for the episodic learner: what it was tuned under."""

MOST_STEPS = 2**31 - 2**20  # step numbers are 32-bit, and a run is ended only after a whole compiled call


MOST_SEEDS = 100_000


class Job(NamedTuple):
    """One agent's runs: groups of seeds, each trained in one compiled loop."""

    name: str
    agent: Agent
    groups: tuple[tuple[int, ...], ...]
    max_steps: int

    @property
    def seeds(self) -> tuple[int, ...]:
        """All seeds, in order."""
        return tuple(seed for group in self.groups for seed in group)


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is asked for; a plan that cannot be carried out is refused when it is made.

    Args:
        figure: a name in ``FIGURES``.
        preset: of the episodic learner, "paper" or "robust".
        seeds: how many runs of the episodic learner.
        episodes: training episodes per run.
        max_steps: the step limit of the episodic learner, in units of the fewest steps that its episodes can take.
        with_baseline: whether the recurrent baseline is trained where the paper has one.
        group: how many seeds of an agent train side by side, as one unit of work; None: all of the episodic learner's.
    """

    figure: str
    preset: str
    seeds: int
    episodes: int
    max_steps: float = MAX_STEPS
    with_baseline: bool = True
    group: int | None = None

    def __post_init__(self) -> None:
        if self.figure not in FIGURES:
            raise ValueError(f"unknown figure {self.figure!r}: choose one of {', '.join(FIGURES)}")
        for name, most in (("seeds", MOST_SEEDS), ("episodes", MOST_STEPS), ("group", MOST_SEEDS)):
            value = getattr(self, name)
            if name == "group" and value is None:
                continue
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}={value!r} must be a whole number of at least 1")
            if value > most:
                raise ValueError(f"{value:,} {name} are too many for one run: at most {most:,}")
        if self.episodes % 25:
            raise ValueError(f"episodes={self.episodes} must be a multiple of 25: results are judged by 1/25 of them")
        if not (math.isfinite(self.max_steps) and self.max_steps > 0):
            raise ValueError(f"max_steps={self.max_steps} must be a positive number")
        if max(self.max_steps, BASELINE_MAX_STEPS) * self.shortest_total > MOST_STEPS:
            raise ValueError(f"{self.episodes:,} episodes are too many for one run: more than 2^31 steps")
        _ = self.jobs  # refuses an unknown preset

    @property
    def experiment(self) -> Experiment:
        """The paper's experiment."""
        return FIGURES[self.figure]

    @property
    def bins(self) -> int:
        """How many points the curves have: a multiple of the 25 parts that results are judged by."""
        return next(b for b in (100, 75, 50, 25) if self.episodes % b == 0)

    @property
    def shortest_total(self) -> int:
        """Fewest steps that all episodes of a run can take."""
        return self.episodes * self.experiment.env.shortest_episode

    @functools.cached_property
    def jobs(self) -> tuple[Job, ...]:
        """What is trained.

        All seeds of the episodic agent are one group unless ``group`` says how many, and so are up to
        ``BASELINE_GROUP`` of the baseline's.
        """
        agent = EpisodicActorCritic.preset(self.preset, memory_size=self.experiment.memory_size)
        limit = math.ceil(self.max_steps * self.shortest_total)
        jobs = [Job("episodic", agent, _grouped(range(self.seeds), self.group or self.seeds), limit)]
        if self.with_baseline and self.experiment.baseline_repeats:
            # From seed 1: seed 0 is the run that the hyperparameters were chosen by.
            seeds = range(1, self.experiment.baseline_repeats + 1)
            groups = _grouped(seeds, min(self.group or BASELINE_GROUP, BASELINE_GROUP))
            limit = math.ceil(BASELINE_MAX_STEPS * self.shortest_total)
            jobs.append(Job("recurrent", baseline(self.experiment.decisions), groups, limit))
        return tuple(jobs)

    def config(self) -> dict[str, Any]:
        """What ``config.json`` says: all that is needed to repeat the run and to read what came of it."""
        env = self.experiment.env
        plan = dataclasses.asdict(self)
        if self.group is None:  # as in folders from before there was a choice
            del plan["group"]
        identifiers = range(env.observation_size)[env.identifier_bits]
        return {
            "figure": self.figure,
            "preset": self.preset,
            "plan": plan,
            "experiment": self.experiment._asdict(),
            "environment": {
                "class": type(env).__name__,
                **dataclasses.asdict(env),
                "observation_size": env.observation_size,
                "shortest_episode": env.shortest_episode,
                "informative_bit": env.informative_bit,
                "uninformative_bit": env.informative_bit + 1,
                "identifier_bits": list(identifiers),
            },
            "agents": {
                job.name: {
                    "class": type(job.agent).__name__,
                    "seeds": list(job.seeds),
                    "episodes": self.episodes,
                    "bins": self.bins,
                    "max_steps": job.max_steps,
                    "max_steps_over_shortest": job.max_steps / self.shortest_total,
                    "hyperparameters": dataclasses.asdict(job.agent),  # type: ignore[call-overload]
                }
                for job in self.jobs
            },
        }


def _grouped(seeds: range, size: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(seeds[k : k + size]) for k in range(0, len(seeds), size))


def make_plan(
    figure: str, preset: str = "paper", seeds: int | None = None, episodes: int | None = None, **options: Any
) -> Plan:
    """The plan for a figure, with as many seeds and episodes as the paper has unless told otherwise.

    >>> plan = make_plan("fig4")
    >>> plan.seeds, plan.episodes, [(job.name, job.groups) for job in plan.jobs]
    (3, 25000, [('episodic', ((0, 1, 2),)), ('recurrent', ((1, 2, 3),))])
    """
    if figure in FIGURES:
        seeds = FIGURES[figure].repeats if seeds is None else seeds
        episodes = FIGURES[figure].episodes if episodes is None else episodes
    return Plan(figure, preset, seeds or 0, episodes or 0, **options)


def plan_of(path: Path, config: dict[str, Any]) -> Plan:
    """The plan of a run folder, from its config."""
    try:
        return Plan(**config["plan"])
    except (LookupError, TypeError, ValueError) as error:
        why = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise FileError(f"{path / 'config.json'} holds no plan that can be resumed: {why}") from error
