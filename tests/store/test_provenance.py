"""Numbers as JSON holds them, and what differs between two accounts."""

import json
from pathlib import Path

import numpy as np
import pytest

from recollect.store import provenance


def test_numpy_numbers_become_pythons():
    import jax.numpy as jnp

    given = {"a": np.int64(3), "b": np.float32(0.5), "c": np.bool_(True), "d": np.arange(3), "e": jnp.float32(2.0)}
    given |= {"f": (np.uint8(1), [np.float64(np.nan)]), np.int64(4): np.inf, "g": Path("a/b"), "h": np.str_("text")}
    found = json.loads(provenance.encode(given, "it"))
    assert found == {
        "a": 3, "b": 0.5, "c": True, "d": [0, 1, 2], "e": 2.0, "f": [1, [None]], "4": "inf", "g": "a/b", "h": "text"
    }  # fmt: skip
    assert [type(provenance.native(x)) for x in (np.int8(1), np.float16(1), np.bool_(0), 1, "x")] == [
        int, float, bool, int, str
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ({"a": {"b": [1, len]}}, r"a\.b\[1\] is a builtin_function_or_method"),
        ({"a": {(1, 2): 3}}, "a has the key"),
        (object(), "it is a object"),
        ({"a": {1, 2}}, "a is a set"),
    ],
)
def test_what_json_cannot_hold_is_named(value, what):
    with pytest.raises(TypeError, match=f"the config cannot be written as JSON: {what}"):
        provenance.encode(value, "the config")


def test_differences_are_named_field_by_field():
    was, now = {"a": {"x": 1, "y": [1]}, "b": 2}, {"a": {"x": 1.0, "y": [2]}, "c": 3}
    assert provenance.differences(was, now) == [
        "a.x: was 1, is 1.0",
        "a.y: was [1], is [2]",
        "b: was 2, is absent",
        "c: was absent, is 3",
    ]
    assert provenance.differences(was, now, ("a", "b", "c")) == []


def test_versions_name_all_that_bits_depend_on():
    assert set(provenance.BITS_DEPEND_ON) <= set(provenance.versions())
