"""TensorBoard's file: what is in it, and that it holds nothing twice after a run was resumed."""

import struct

import pytest

from recollect import Learner
from recollect.training.recording import read_rows
from recollect.training.resuming import resume
from training.probes import AGENT, Three

event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")


def points(run):
    """(tag, step, value) of every event of the file, whose sums are checked."""
    from tensorboardX.record_writer import masked_crc32c

    (file,) = (run / "tensorboard").iterdir()
    content, at, found = file.read_bytes(), 0, []
    while at < len(content):
        (length,) = struct.unpack_from("<Q", content, at)
        assert struct.unpack_from("<I", content, at + 8)[0] == masked_crc32c(content[at : at + 8])
        event = event_pb2.Event.FromString(content[at + 12 : at + 12 + length])
        found += [(value.tag, event.step, value.simple_value) for value in event.summary.value]
        at += 16 + length
    return found


@pytest.mark.slow
def test_what_is_in_the_file(tmp_path):
    Learner(AGENT, Three, check=False).learn(30, log_every=10, folder=tmp_path / "run", log="tensorboard")
    found, rows = points(tmp_path / "run"), read_rows(tmp_path / "run")
    for row in rows:
        assert [v for tag, step, v in found if tag.endswith("return") and step == row["steps"]] == pytest.approx(
            [row["return"]]
        )
    assert len(found) == len({(tag, step) for tag, step, _ in found})


@pytest.mark.slow
def test_it_is_cut_back_when_the_run_goes_on(tmp_path):
    """Rows after the newest checkpoint come again: their points are there once."""
    run = tmp_path / "run"
    learner = Learner(AGENT, Three, check=False).learn(20, log_every=10, folder=run, log="tensorboard")
    learner.goal = 60
    learner.save(run)
    kept = (run / "checkpoints", run / "metrics.jsonl")
    from shutil import copytree, rmtree

    copytree(kept[0], tmp_path / "kept")
    assert resume(run, Three).steps == 60
    rmtree(kept[0])
    copytree(tmp_path / "kept", kept[0])  # as if it had been killed at the end, before another checkpoint
    assert resume(run, Three).steps == 60
    found = points(run)
    assert sorted({step for _, step, _ in found}) == [10, 20, 30, 40, 50, 60]
    assert len(found) == len({(tag, step) for tag, step, _ in found})


@pytest.mark.slow
def test_it_is_written_from_where_it_is_asked_for(tmp_path):
    learner = Learner(AGENT, Three, check=False).learn(20, log_every=10, folder=tmp_path / "run")
    assert not (tmp_path / "run" / "tensorboard").exists()
    learner.learn(10, log_every=10, log="tensorboard")
    assert {step for _, step, _ in points(tmp_path / "run")} == {10, 20, 30}
