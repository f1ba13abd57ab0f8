"""``recollect bench train`` of a pair that was named: what it measures, not how fast it is."""

import json
import os

import pytest

from recollect import cli
from recollect.studies.speed.pair import Pair, variants


def test_a_step_may_grow_with_what_the_pair_has():
    def options(agent, env):
        return {case["option"] for case, _ in variants(Pair(agent, env))}

    assert options("episodic", "recollect/TMaze-v0") == {"memory_size", "hidden", "length"}
    assert options("general", "recollect/TMaze-v0") == {"memory_size", "units.units", "length"}
    assert options("gru", "recollect/TMaze-v0") == {"width", "length"}
    case, longest = list(variants(Pair("gru", "recollect/TMaze-v0", (), (("passive", False),))))[-1]
    assert case == {"option": "length", "value": 1000}
    assert str(longest.made()[1]) == "TMaze(length=1000, passive=False, oracle=False)"


@pytest.mark.slow
def test_any_pair_is_measured(capsys, monkeypatch):
    monkeypatch.setenv("RECOLLECT_CACHE", "")
    words = ["--env", "recollect.envs.t_maze:TMaze", "--env-set", "length=2", "--agent", "none", "--set", "hidden=2"]
    assert cli.main(["bench", "train", *words, "--runs", "2", "--seconds", "0.01", "--skip", "growth", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["pair"] == "none on recollect.envs.t_maze:TMaze" and report["served_by"].startswith("engine 'cpu'")
    cold, warm = report["compiling"]
    assert cold["machine code"] > warm["machine code"] > 0 and os.environ["RECOLLECT_CACHE"] == ""
    fast, slow = report["by_runs"]
    assert (fast["engine"], slow["engine"]) == ("cpu", "jax") and fast["times_xla"] > 1 == slow["times_xla"]
    assert cli.main(["bench", "train", "--env", "CartPole-v1"]) == 1
    assert "is no environment in JAX" in capsys.readouterr().err
