"""Spaces as vectors and distributions; what is refused, and how the refusal helps."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, Sequence, Text, Tuple

from recollect.agents.distributions import Categorical, Gaussian, MultiCategorical
from recollect.envs import spaces
from recollect.envs.spaces import NotInSpaceError, SpaceError, actions, observations


def vector_of(space, observation):
    vector = observations(space)
    out = np.full(vector.size, 7.0, np.float32)
    vector.write(observation, out)
    return out.tolist()


@pytest.mark.parametrize(
    ("space", "observation", "expected"),
    [
        (Box(-1, 1, (2,)), np.array([0.5, -0.5], np.float32), [0.5, -0.5]),
        (Box(-np.inf, np.inf, (1, 2)), np.array([[3.0, -4.0]], np.float32), [3.0, -4.0]),
        (Box(0, 255, (2,), np.uint8), np.array([255, 51], np.uint8), [1.0, 0.2]),
        (Discrete(3, start=-1), 1, [0.0, 0.0, 1.0]),
        (Discrete(3), np.array(1), [0.0, 1.0, 0.0]),
        (MultiDiscrete([2, 3]), np.array([1, 0]), [0.0, 1.0, 1.0, 0.0, 0.0]),
        (MultiBinary(3), np.array([1, 0, 1], np.int8), [1.0, 0.0, 1.0]),
        (Tuple((Discrete(2), Box(0, 1, (1,)))), (0, np.array([0.25], np.float32)), [1.0, 0.0, 0.25]),
        (Dict(b=Discrete(2), a=Dict(c=MultiBinary(1))), {"a": {"c": np.array([1])}, "b": 1}, [0.0, 1.0, 1.0]),
    ],
)
def test_observations_become_vectors(space, observation, expected):
    assert vector_of(space, observation) == pytest.approx(expected)


@pytest.mark.parametrize(
    "space",
    [
        Box(-2, 3, (2, 3)),
        Discrete(5, start=2),
        MultiDiscrete([[2, 3], [4, 5]]),
        MultiBinary((2, 2)),
        Box(0, 9, (4,), np.int32),
        Tuple((Discrete(2), Dict(x=Box(-1, 1, (2,))))),
    ],
)
def test_whatever_a_space_samples_is_taken(space):
    space.seed(0)
    for _ in range(50):
        assert np.isfinite(vector_of(space, space.sample())).all()


@pytest.mark.parametrize(
    ("space", "observation", "message"),
    [
        (Box(-1, 1, (2,)), np.array([0.0, 1.5]), r"element 1 is 1.5, outside the declared \[-1.0, 1.0\]"),
        (Box(-np.inf, np.inf, (2,)), np.array([np.nan, 0]), "element 0 is nan, not finite"),
        (Box(-np.inf, np.inf, (2,)), np.array([0, -np.inf]), "element 1 is -inf, not finite"),
        (Box(-1, 1, (2,)), np.zeros(3), r"its shape is \(3,\), declared is \(2,\)"),
        (Discrete(3), 3, "3 is outside the declared 0 to 2"),
        (Discrete(3), 0.5, "0.5 is not a whole number"),
        (MultiDiscrete([2, 3]), np.array([0, 3]), "is outside the declared"),
        (MultiBinary(2), np.array([0, 2]), "something other than 0 and 1"),
        (Tuple((Discrete(2),)), (5,), "part 0: 5 is outside"),
        (Dict(a=Discrete(2)), {"b": 1}, "part 'a' is missing"),
        (Dict(a=Discrete(2)), 1, "a dict of 1 parts is declared, got int"),
    ],
)
def test_what_is_not_in_the_space_is_named(space, observation, message):
    with pytest.raises(NotInSpaceError, match=message):
        vector_of(space, observation)


@pytest.mark.parametrize(
    "space", [Text(4), Graph(Box(0, 1, (1,)), None), Sequence(Discrete(2)), Dict(a=Discrete(2), mission=Text(4))]
)
def test_other_observations_are_refused_with_a_way_out(space):
    with pytest.raises(SpaceError, match=r"observations are not supported .*FilterObservation"):
        observations(space)


def test_discrete_actions_start_where_the_space_does():
    outputs, distribution, decode = actions(Discrete(3, start=5))
    assert (outputs, distribution, decode(np.int32(1))) == (3, Categorical(), 6)


def test_multi_discrete_actions_have_the_shape_of_the_space():
    space = MultiDiscrete([[2, 3]], start=[[1, 0]])
    outputs, distribution, decode = actions(space)
    assert (outputs, distribution) == (5, MultiCategorical((2, 3)))
    assert decode(np.array([1, 2], np.int32)) in space


def test_continuous_actions_reach_their_bounds_and_no_further():
    space = Box(np.array([-2.0, 0.0, -np.inf], np.float32), np.array([4.0, 1.0, np.inf], np.float32))
    outputs, distribution, decode = actions(space)
    assert (outputs, distribution) == (6, Gaussian(3))
    np.testing.assert_allclose(decode(np.array([0.0, 0.0, 7.0])), [1.0, 0.5, 7.0])
    np.testing.assert_allclose(decode(np.array([9.0, -9.0, -7.0])), [4.0, 0.0, -7.0])
    assert decode(np.array([9.0, -9.0, -7.0])) in space


@pytest.mark.parametrize("space", [MultiBinary(2), Tuple((Discrete(2),)), Box(0, 5, (1,), np.int32)])
def test_other_actions_are_refused_with_a_way_out(space):
    with pytest.raises(SpaceError, match=r"actions are not supported .*TransformAction"):
        actions(space)


def test_pictures_are_known():
    assert observations(Box(0, 255, (8, 8, 3), np.uint8)).shape == (8, 8, 3)
    assert observations(Box(0, 1, (3,))).shape is None
    assert gym.spaces.flatdim(Box(0, 255, (8, 8, 3), np.uint8)) == observations(Box(0, 255, (8, 8, 3), np.uint8)).size


@pytest.mark.parametrize("kind", [np.uint8, np.uint64, np.int8, np.int64])
def test_choices_of_any_dtype(kind):
    space = gym.spaces.MultiDiscrete([2, 3], dtype=kind, start=np.array([0, 1], kind))
    vector = spaces.observations(space)
    out = np.zeros(vector.size, np.float32)
    vector.write(np.array([1, 3], kind), out)
    assert out.tolist() == [0, 1, 0, 0, 1]
    for outside in ([2, 1], [0, 0], [0, 4]):
        with pytest.raises(spaces.NotInSpaceError):
            vector.write(np.array(outside, kind), out)


def write(space, value):
    vector = spaces.observations(space)
    out = np.zeros(vector.size, np.float32)
    vector.write(value, out)
    return out.tolist()


def test_wide_ranges_of_whole_numbers_keep_their_differences():
    """Scaled to [0, 1], neighbours of such a range would be the same as float32."""
    wide = gym.spaces.Box(0, 2**31 - 1, (2,), np.int32)
    assert write(wide, np.array([3, 9], np.int32)) == [3.0, 9.0]
    endless = gym.spaces.Box(-np.inf, np.inf, (2,), np.int64)
    assert write(endless, np.array([0, 1_000_000])) == [0.0, 1e6]
    assert write(gym.spaces.Box(0, 255, (2,), np.uint8), np.array([0, 51], np.uint8)) == [0.0, pytest.approx(0.2)]
    depth = gym.spaces.Box(0, 65535, (1,), np.uint16)
    assert write(depth, np.array([65535], np.uint16)) == [1.0]
    both = gym.spaces.Box(np.array([0, 0]), np.array([10, 2**40]), dtype=np.int64)
    assert write(both, np.array([5, 5])) == [0.5, 5.0]


def test_a_tuple_may_be_given_as_a_list():
    space = gym.spaces.Tuple([gym.spaces.Discrete(2), gym.spaces.Box(-1, 1, (1,))])
    assert write(space, [1, np.array([0.5], np.float32)]) == write(space, (1, np.array([0.5], np.float32)))
    for wrong in ([1], "ab", {0: 1, 1: 2}, None):
        with pytest.raises(spaces.NotInSpaceError):
            write(space, wrong)


@pytest.mark.parametrize(
    "value",
    [
        ["a", "b"],
        [[0.0], [0.0, 1.0]],
        np.zeros(2, complex),
        np.array([None, 0.0]),
        np.array(["2026-01-01"] * 2, "M8[D]"),
    ],
    ids=["text", "ragged", "complex", "object", "datetime"],
)
def test_what_holds_no_real_numbers(value):
    for space in (gym.spaces.Box(-1, 1, (2,)), gym.spaces.Box(0, 9, (2,), np.int8), gym.spaces.MultiBinary(2)):
        with pytest.raises(spaces.NotInSpaceError, match=r"it holds|it is no array"):
            write(space, value)


@pytest.mark.parametrize("space", [gym.spaces.Box(-1, 1, (0,)), gym.spaces.Dict(), gym.spaces.Tuple([])])
def test_spaces_that_hold_nothing(space):
    with pytest.raises(spaces.SpaceError, match="holds no numbers"):
        spaces.observations(space)


def test_descriptions_do_not_depend_on_print_options():
    rng = np.random.default_rng(0)
    fine = gym.spaces.Box(-rng.uniform(1, 2, 5), rng.uniform(1, 2, 5), dtype=np.float64)
    large = gym.spaces.Box(-rng.uniform(1, 2, 500), rng.uniform(1, 2, 500), dtype=np.float64)
    both = gym.spaces.Dict(a=gym.spaces.Tuple([fine, gym.spaces.MultiDiscrete([2, 3])]), b=large)
    for space in (fine, large, both, gym.spaces.MultiBinary(3), gym.spaces.Text(3)):
        known = spaces.describe(space)
        with np.printoptions(precision=2, threshold=3, suppress=True):
            assert spaces.describe(space) == known and spaces.is_described_by(space, known)
    other = gym.spaces.Box(fine.low, np.nextafter(fine.high, 3), dtype=np.float64)
    assert spaces.describe(other) != spaces.describe(fine)
    assert not spaces.is_described_by(other, spaces.describe(fine))
