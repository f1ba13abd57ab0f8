"""MiniGrid's partial view, one-hot, and in a tenth of the time: what the package does cell by cell, compiled.

The worlds, their rules and their random numbers stay MiniGrid's own. Of a step in them, making what the agent sees
takes most, by far: a grid of Python objects is cut out, turned, searched for what walls hide and encoded, each in a
loop over its cells.
"""

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX, STATE_TO_IDX
from minigrid.core.grid import Grid
from minigrid.core.world_object import Wall
from minigrid.minigrid_env import MiniGridEnv
from numba import njit

from recollect.errors import RecollectError

NOTHING = OBJECT_TO_IDX["empty"] << 24
"""An empty cell. A cell is one number: kind, colour, state and whether it hides what is behind, a byte each."""


def _number(thing: Any) -> int:
    kind, colour, state = thing.encode()
    return kind << 24 | colour << 16 | state << 8 | (not thing.see_behind())


@njit(cache=True)
def _look(cells, width, x, y, direction, carried, through, image):
    """Write to ``image`` what is seen from (x, y); with ``through``, walls hide nothing."""
    size, height = len(image), len(cells) // width
    outside = cells[-1]
    ahead_x, ahead_y = (1, 0, -1, 0)[direction], (0, 1, 0, -1)[direction]
    view, seen = np.empty((size, size), np.int64), np.zeros((size, size), np.bool_)
    for i in range(size):
        for j in range(size):
            far, right = size - 1 - j, i - size // 2
            at_x, at_y = x + far * ahead_x - right * ahead_y, y + far * ahead_y + right * ahead_x
            inside = 0 <= at_x < width and 0 <= at_y < height
            view[i, j] = cells[at_y * width + at_x] if inside else outside
    seen[:] = through
    seen[size // 2, size - 1] = True
    if not through:
        # Row by row away from the agent, along each both ways: what is seen and hides nothing shows its neighbours.
        for j in range(size - 1, -1, -1):
            for step in (1, -1):
                for k in range(size - 1):
                    i = k if step > 0 else size - 1 - k
                    if seen[i, j] and not view[i, j] & 1:
                        seen[i + step, j] = True
                        if j > 0:
                            seen[i, j - 1] = seen[i + step, j - 1] = True
    view[size // 2, size - 1] = carried
    for i in range(size):
        for j in range(size):
            cell = view[i, j] if seen[i, j] else 0
            image[i, j, 0], image[i, j, 1], image[i, j, 2] = cell >> 24, cell >> 16 & 255, cell >> 8 & 255


class Eyes:
    """What ``MiniGridEnv.gen_obs`` gives, for one environment."""

    def __init__(self, env: Any):
        self.env = env
        self.things: list[Any] = []  # of the cells below
        self.cells = np.zeros(0, np.int64)  # and, at the end, what is beyond the grid
        self.changing: list[tuple[int, Any]] = []

    def __call__(self) -> dict[str, Any]:
        """The observation."""
        env = self.env
        grid = env.grid
        if type(grid) is not Grid:
            return MiniGridEnv.gen_obs(env)
        if grid.grid != self.things:
            self._take(grid.grid)
        for k, thing in self.changing:
            self.cells[k] = _number(thing)
        carried = _number(env.carrying) if env.carrying else NOTHING
        x, y = env.agent_pos
        image = np.empty((env.agent_view_size, env.agent_view_size, 3), np.uint8)
        _look(self.cells, grid.width, int(x), int(y), int(env.agent_dir), carried, bool(env.see_through_walls), image)
        return {"image": image, "direction": env.agent_dir, "mission": env.mission}

    def _take(self, things: list[Any]) -> None:
        """Walls stay as they are; doors, and what else there may be, are asked anew each time."""
        self.things = list(things)
        self.cells = np.array([NOTHING if v is None else _number(v) for v in (*things, Wall())], np.int64)
        self.changing = [(k, v) for k, v in enumerate(things) if v is not None and type(v) is not Wall]


def quicken(env: gym.Env) -> None:
    """Let a MiniGrid environment see by ``Eyes``, unless it has a view of its own."""
    world: Any = env.unwrapped
    if all(getattr(type(world), name) is getattr(MiniGridEnv, name) for name in ("gen_obs", "gen_obs_grid")):
        world.gen_obs = Eyes(world)


def _place(i: int, j: int, size: int) -> str:
    """Where a cell of the view lies, as seen by the agent, who is in the middle of its nearest row."""
    ahead, right = size - 1 - j, i - size // 2
    side = f"{abs(right)} {'right' if right > 0 else 'left'}" if right else ""
    return " ".join(part for part in (f"{ahead} ahead" if ahead else "", side) if part) or "here"


@njit(cache=True)
def _spread(image, columns, out):
    for i in range(image.shape[0]):
        for j in range(image.shape[1]):
            for k in range(3):
                column = columns[k, image[i, j, k]]
                if column >= 0:
                    out[i, j, column] = 1.0


class View(gym.ObservationWrapper):
    """The partial view one-hot, without direction and mission.

    As a picture, each cell with its kind of thing, colour and state; or, of the named ``things`` alone, as a vector
    with a 1 where one of them is seen. That is a fraction of the numbers where an environment has few kinds of things
    and their colours say nothing; and none of them is always 1, as a state is where there are no doors.
    """

    def __init__(self, env: gym.Env, things: Sequence[str] = ()):
        super().__init__(env)
        unknown = [name for name in things if name not in OBJECT_TO_IDX]
        if unknown:
            raise RecollectError(
                f"things={list(things)}: MiniGrid has no {unknown[0]!r}, only {', '.join(OBJECT_TO_IDX)}"
            )
        self.columns = np.full((3, 256), -1)
        counts = [len(names) for names in (OBJECT_TO_IDX, COLOR_TO_IDX, STATE_TO_IDX)]
        if things:
            for column, name in enumerate(things):
                self.columns[0, OBJECT_TO_IDX[name]] = column
        else:
            for k, count in enumerate(counts):
                self.columns[k, :count] = sum(counts[:k]) + np.arange(count)
        spaces: Any = env.observation_space
        height, width, _ = spaces["image"].shape
        self.shape = (height, width, len(things) or sum(counts))
        self.flat = bool(things)
        shape = (int(np.prod(self.shape)),) if things else self.shape
        if things:
            self.observation_names = tuple(
                f"{thing} {_place(i, j, height)}" for i, j in np.ndindex(height, width) for thing in things
            )
        self.observation_space = gym.spaces.Box(0.0, 1.0, shape, np.float32)

    def observation(self, observation: Any) -> np.ndarray:
        """One-hot."""
        out = np.zeros(self.shape, np.float32)
        _spread(observation["image"], self.columns, out)
        return out.reshape(-1) if self.flat else out
