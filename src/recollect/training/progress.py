"""Training as it goes, for whoever watches: bars on a terminal, a line now and then in a log."""

import contextlib
import math
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

EVERY = 5.0  # seconds between two lines


def say(text: str) -> None:
    """A line on stderr."""
    print(f"  {text}", file=sys.stderr, flush=True)


class Pace:
    """Whether it is time for another line."""

    def __init__(self, every: float | None = None) -> None:
        self.every = every
        self.start = self.shown = time.monotonic()

    def __call__(self, anyway: bool = False) -> bool:
        """True every few seconds, and if it is to be said ``anyway``."""
        due = anyway or time.monotonic() - self.shown >= (EVERY if self.every is None else self.every)
        self.shown = time.monotonic() if due else self.shown
        return due


class Lines:
    """One line every few seconds on stderr."""

    def __init__(self, label: str, episodes: int):
        self.label, self.episodes, self.due = label, episodes, Pace()

    def __call__(self, progress: Any) -> None:
        """Show a ``recollect.training.batch.Progress``, if it is time."""
        if self.due():
            done = float(progress.episodes.mean()) / self.episodes
            rate = progress.total_steps / (time.monotonic() - self.due.start)
            say(
                f"{self.label}: {done:4.0%} of episodes, {rate:,.0f} steps/s, return {progress.recent_return:.3f}, "
                f"slowest seed {progress.episodes.min():,} episodes after {progress.steps:,} steps"
            )


def _fields(standing: Any) -> dict[str, Any]:
    rate, left = standing.pace()
    recent = standing.recent_return
    return {
        "episodes": f"{standing.mean_episodes:,.0f} of {standing.wanted:,} episodes",
        "rate": "" if math.isnan(rate) else f"{rate:,.0f} steps/s",
        "recent": "" if math.isnan(recent) else f"return {recent:.3f}",
        "left": "" if math.isnan(left) else "done" if standing.share >= 1 else f"{_clock(left)} left",
    }


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes}:{seconds:02d}"


@contextlib.contextmanager
def watching(label: str, agents: list[str]) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Gives what ``recollect.studies.reproduce.train`` calls with the standings of its agents."""
    from rich.console import Console

    console = Console(stderr=True)
    with _bars(console, label, agents) if console.is_terminal else _plain(label) as show:
        yield show


@contextlib.contextmanager
def _plain(label: str) -> Iterator[Callable[[dict[str, Any]], None]]:
    due, over = Pace(), set()

    def show(standings: dict[str, Any]) -> None:
        for name, standing in standings.items() if due() else ():
            if name not in over:
                parts = _fields(standing).values() if standing.share else ["compiling"]
                say(f"{label} {name}: {', '.join(part for part in parts if part)}")
            if standing.share >= 1:
                over.add(name)

    yield show


@contextlib.contextmanager
def _bars(console: Any, label: str, agents: list[str]) -> Iterator[Callable[[dict[str, Any]], None]]:
    from rich.progress import BarColumn, Progress, TextColumn

    texts = [TextColumn(f"{{task.fields[{name}]}}") for name in ("episodes", "rate", "recent", "left")]
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), *texts)
    with Progress(*columns, console=console, refresh_per_second=4) as progress:
        waiting: dict[str, Any] = {"episodes": "compiling", "rate": "", "recent": "", "left": ""}
        # Without a total a bar only moves to and fro, which is all that can be said while the loops compile.
        tasks = {name: progress.add_task(f"{label} {name}", total=None, **waiting) for name in agents}

        def show(standings: dict[str, Any]) -> None:
            for name, standing in standings.items():
                if standing.share:
                    progress.update(tasks[name], total=1, completed=standing.share, **_fields(standing))

        yield show


@contextlib.contextmanager
def _told(label: str, goal: int, wanted: bool, passes: bool = False) -> Iterator[Callable[[int, str], None]]:
    """Gives what is called with how many are done, and a text; ``passes``: nothing of it stays on a terminal."""
    if not wanted:
        yield lambda done, text: None
        return
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal or multiprocessing.parent_process() is not None:  # a terminal is shared with others
        due = Pace()
        yield lambda done, text: say(f"{label}: {text}") if due(done >= goal and not passes) else None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    texts = (TextColumn("{task.description}"), BarColumn(bar_width=20), TextColumn("{task.fields[text]}"))
    columns = (*texts, TimeRemainingColumn())
    with Progress(*columns, console=console, refresh_per_second=4, transient=passes) as progress:
        task = progress.add_task(label, total=goal, text="compiling")
        yield lambda done, text: progress.update(task, completed=done, text=text)


@contextlib.contextmanager
def showing(label: str, start: int, goal: int, wanted: bool) -> Iterator[Callable[[int, list[dict[str, Any]]], None]]:
    """Gives what a learner calls with its steps and its newest rows of metrics, if any; silent unless ``wanted``."""
    with _told(label, goal - start, wanted) as tell:
        yield lambda steps, rows: tell(steps - start, _metrics_text(steps, goal, rows)) if wanted else None


@contextlib.contextmanager
def counting(label: str, goal: int, unit: str, wanted: bool) -> Iterator[Callable[[int], None]]:
    """Gives what is called with how many are done of ``goal`` episodes, steps or the like; silent unless ``wanted``."""
    with _told(label, goal, wanted, passes=True) as tell:
        yield lambda done: tell(done, f"{done:,} of {goal:,} {unit}")


def _metrics_text(steps: int, goal: int, rows: list[dict[str, Any]]) -> str:
    def mean(name: str) -> float:
        known = [row[name] for row in rows if not math.isnan(row[name])]
        return sum(known) / len(known) if known else math.nan

    parts = [f"{steps:,} of {goal:,} steps", *(f"{row['steps_per_second']:,.0f} steps/s" for row in rows[:1])]
    for name, form in (("return", ".3f"), ("length", ".1f"), ("write_weight", ".2f")):
        if not math.isnan(mean(name)):
            parts.append(f"{name.replace('_', ' ')} {mean(name):{form}}")
    return ", ".join(parts)
