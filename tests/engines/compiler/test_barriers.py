"""Where a team's threads wait for one another, in texts of a few lines."""

import pytest

from recollect.engines.compiler.barriers import WAIT, placed

SPANS = {"%x": ("x", 0, 64), "%y": ("y", 0, 64), "%low": ("arrays", 0, 64), "%high": ("arrays", 32, 96)}


def _load(name, owner=""):
    return f"  %v1 = load float, ptr {name}, align 4" + (f" ; {owner}" if owner else "")


def _store(name, owner=""):
    return f"  store float %v0, ptr {name}, align 4" + (f" ; {owner}" if owner else "")


def _waits(lines):
    """The numbers of the lines before which threads wait."""
    found, at = [], 0
    for line in placed(lines, SPANS):
        if line == WAIT:
            found.append(at)
        else:
            at += 1
    assert at == len(lines)
    return found


@pytest.mark.parametrize(
    ("first", "second", "waits"),
    [
        (_store("%x", "each 1"), _load("%x", "each 1"), []),  # its own elements
        (_store("%x", "each 1"), _load("%x", "each 4"), [1]),  # other threads' elements
        (_store("%x", "each 1"), _load("%x"), [1]),
        (_store("%x", "mixed"), _load("%x", "mixed"), [1]),
        (_store("%x"), _load("%x"), []),  # what every thread wrote itself
        (_store("%x"), _load("%x", "each 1"), []),
        (_store("%x"), _store("%x"), []),
        (_store("%x"), _store("%x", "each 1"), [1]),
        (_load("%x"), _store("%x", "each 1"), [1]),
        (_load("%x"), _load("%x", "each 1"), []),
        (_store("%x", "each 1"), _load("%y"), []),
        (_store("%low", "each 1"), _load("%high", "each 1"), [1]),  # places on the chip that overlap
    ],
)
def test_a_barrier_is_where_one_thread_touches_what_another_wrote(first, second, waits):
    assert _waits([first, second]) == waits


def test_an_address_inside_an_array_is_the_array():
    place = "  %p = getelementptr inbounds float, ptr %x, i64 %i"
    assert _waits([_store("%x", "each 1"), place, _load("%p")]) == [2]


def test_one_barrier_serves_all_that_was_touched_before():
    lines = [_store("%x", "each 1"), _store("%y", "each 1"), _load("%x"), _load("%y")]
    assert _waits(lines) == [2]


def _loop(body):
    head = ["  br label %p7", "p7:", "  br label %l7", "l7:", "  %i7 = phi i64 [ 0, %p7 ], [ %n7, %e7 ]"]
    return [*head, *body, "  br label %e7", "e7:", "  br i1 %c7, label %l7, label %x7", "x7:"]


def test_the_end_of_a_turn_is_seen_by_the_start_of_the_next():
    assert _waits(_loop([_load("%x"), _load("%y", "each 1"), _store("%x", "each 1")])) == [5, 7]


def test_what_only_the_first_turn_must_wait_for_is_waited_for_before_the_loop():
    lines = [_store("%x", "each 1"), *_loop([_load("%x")])]
    assert _waits(lines) == [1]


def test_nobody_waits_where_some_threads_go_another_way():
    part = ["  br i1 %below3, label %m5, label %n5", "m5:", _store("%x", "each 1"), "  br label %n5", "n5:"]
    assert _waits([_load("%x"), *part]) == [1]


def test_what_a_branch_may_have_touched_counts_after_it():
    branch = ["  br i1 %c, label %t5, label %j5", "t5:", _store("%x", "each 1"), "  br label %j5", "j5:"]
    assert _waits([*branch, _load("%x")]) == [5]
