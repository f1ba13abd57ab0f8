"""Gaps in arrays on a GPU's chip: places among them, which arrays have them, and that threads do not meet."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from engines.compiler.compared import bits, in_lanes
from engines.compiler.warps import WarpDevice, turns
from recollect.engines.compiler import Step, spacing
from recollect.engines.compiler.grid import Grid, GridProgram
from recollect.engines.compiler.plan import Plan, contract

REACH = {"%i": 3, "%j": 2, "%v": 15}


@pytest.mark.parametrize("row", [2, 4, 16])
@pytest.mark.parametrize(
    "index",
    [
        (0, (("%i", 1),)),
        (5, (("%i", 16),)),
        (32, (("%i", 16), ("%j", 1))),
        (3, (("%i", 4), ("%v", 32))),
        (0, (("%v", 1),)),
    ],
)
def test_a_place_among_gaps_is_one_gap_further_for_each_row_before_it(index, row):
    found = spacing.with_gaps(index, row, REACH.__getitem__)
    names = [name for name, _ in index[1]]

    def places(of):
        for values in itertools.product(*(range(REACH[name] + 1) for name in names)):
            yield of[0] + sum(f * v for (_, f), v in zip(of[1], values, strict=True))

    wanted = [e + e // row for e in places(index)]
    crosses = any(e // row != index[0] // row for e in places(index)) and any(f % row for _, f in index[1])
    assert found is not None or crosses
    if found is not None:
        assert list(places(found)) == wanted


@pytest.mark.parametrize("row", [2, 4, 8, 16, 32])
def test_threads_that_read_a_column_are_in_different_banks(row):
    e, team = np.arange(32) % 16 * row, np.arange(32) // 16
    apart = team * (128 * 70 + 64)  # where the second run of a warp is
    assert turns(4 * (e + e // row) + apart) == 1
    assert turns(4 * e + apart) == min(row, 16)  # without gaps


def _rows(function, *shapes):
    step = Step(function, tuple(np.zeros(s, np.float32) for s in shapes))
    leaves = step.traced.leaves[: len(shapes)]
    outs = contract(step.traced.graph, step.traced.outs)
    found = spacing.rows(Plan(outs, 1, spread=True), leaves, {x.id: o.id for x, o in zip(leaves, outs, strict=True)})
    return [found.get(leaf.id) for leaf in leaves]


def test_only_arrays_of_rows_that_nothing_finds_at_computed_places_have_gaps():
    def step(state):
        x, y, z, row = state
        at = jnp.argmax(row)
        return (x * 2 + x.T, y[at] + y, z * 2, row + 1), ()

    assert _rows(step, (16, 16), (4, 8), (3, 6), (16,)) == [16, None, None, None]


def _together(made, state, steps):
    """States so many steps later, and the device that took them there."""
    device = WarpDevice()
    program, grid = GridProgram(device, made, (), teams=True), Grid(device, made.state, 2, teams=True)
    grid.load(state)
    grid.give(program, [])
    device.turns.clear()
    device.issued.clear()
    grid.advance(program, steps)
    return grid.unload(), device


def _random(*shapes):
    rng = np.random.default_rng(0)
    state = tuple(rng.normal(size=(2, *s)).astype(np.float32) * 0.3 for s in shapes)
    return state, tuple(x[0] for x in state)


def test_products_with_a_matrix_from_either_side_take_one_turn_and_have_the_bits_of_the_lanes():
    def step(state):
        w, x = state
        y = jnp.tanh(w @ x)
        return (w + 0.1 * jnp.outer(y, x), w.T @ y), ()

    state, one = _random((16, 16), (16,))
    made = Step(step, one)
    found, device = _together(made, state, 3)
    assert bits(found) == bits(in_lanes(made, state, [], 3))
    for what in ("ld", "st"):
        accesses = sum(n for name, n in device.issued.items() if name.startswith(f"{what}.shared"))
        assert accesses and device.turns[what] <= 1.05 * accesses


@pytest.mark.parametrize("shape", [(5, 8), (3, 4), (2, 32), (3, 2, 16), (20, 2)])
def test_elements_are_found_among_gaps_from_all_sides(shape):
    def step(state):
        x, total = state
        turned = x[::-1] - 0.5 * x[..., ::-1]
        part = jnp.sum(x[1:, ..., :1] * x[:-1, ..., -1:])
        flat = x.reshape(-1)
        return (0.9 * x + 0.1 * turned + 0.01 * total, part + jnp.sum(flat[1:] * flat[:-1])), ()

    state, one = _random(shape, ())
    made = Step(step, one)
    assert bits(_together(made, state, 3)[0]) == bits(in_lanes(made, state, [], 3))
