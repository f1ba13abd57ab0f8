"""How far back: what counts as solved and how soon, what a search draws, and the command."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from recollect import cli
from recollect.agents.episodic import EpisodicActorCritic
from recollect.agents.realtime import RealTimeActorCritic
from recollect.agents.recurrent import RecurrentActorCritic
from recollect.cli.lab import lengths as commands
from recollect.envs import SecretInformant, TMaze
from recollect.errors import FileError
from recollect.studies import lengths

pytestmark = pytest.mark.slow


def curves(*runs):
    """Returns [seed, 20 blocks], each seed from (blocks, return) pieces; NaN after the last."""
    rows = [np.concatenate([np.full(blocks, value) for blocks, value in run]) for run in runs]
    return np.array([np.pad(row, (0, 20 - len(row)), constant_values=np.nan) for row in rows])


def test_summary_by_hand():
    returns = curves(
        [(4, 0.0), (16, 1.0)],  # solved from the fifth block on
        [(9, 0.0), (1, 0.95), (8, 0.2), (2, 0.97)],  # at the tenth for the first time, lost, and there at the end
        [(2, 0.0), (1, 1.0), (16, 0.9), (1, 0.95)],  # at the third; the last tenth is short of it on average
        [(20, 0.3)],  # never
        [(6, 0.4)],  # looped
    )
    row = lengths.summarise(returns, np.where(np.isnan(returns), np.nan, 7.0), 2000)
    assert (row["seeds"], row["episodes"], row["finished"], row["solved"], row["share"]) == (5, 2000, 4, 2, 0.4)
    assert row["share_interval"] == pytest.approx((0.118, 0.769), abs=1e-3)
    assert row["median_episodes_to_solve"] == 1000 and row["quartiles_episodes_to_solve"] == [500, None]
    assert row["median_steps_to_solve"] == 7000 and row["quartiles_steps_to_solve"] == [3500, None]
    assert row["mean_final_return"] == pytest.approx((1 + 0.97 + 0.925 + 0.3) / 4)
    assert lengths.table([{"family": "t-maze", "length": 5, "agent": "gru", **row}]) == [
        ["t-maze", "5", "gru", "2 of 5", "0.12 to 0.77", "7,000", "0.799"]
    ]


def test_what_more_than_half_never_reach_has_no_median():
    solved, never, looped = [(20, 1.0)], [(20, 0.0)], [(1, 0.0)]
    row = lengths.summarise(curves(solved, never, looped), np.full((3, 20), 5.0), 200)
    assert row["median_steps_to_solve"] is None and row["quartiles_steps_to_solve"] == [50, None]
    assert lengths.summarise(curves(solved, never), np.full((2, 20), 5.0), 200)["median_steps_to_solve"] == 50
    row = lengths.summarise(curves(looped), np.full((1, 20), 5.0), 200)
    assert (row["finished"], row["mean_final_return"]) == (0, None)


def test_the_best_first():
    def row(share, steps, final):
        return {"share": share, "median_steps_to_solve": steps, "mean_final_return": final}

    best = [row(1.0, 10, 0.96), row(1.0, 20, 1.0), row(0.5, 5, 0.5), row(0.5, None, 0.9), row(0.5, None, None)]
    assert lengths.ranked(best[::-1]) == best


def test_the_best_of_an_earlier_search(tmp_path):
    report = tmp_path / "search.json"
    drawn = {name: lengths.draw(name, 3) for name in ("episodic", "gru")}
    rows = [{"agent": name, "settings": settings} for name in drawn for settings in drawn[name]]
    report.write_text(json.dumps({"rows": rows}))
    found = lengths.best(report, ["episodic", "gru"], 2)
    assert found == {name: settings[:2] for name, settings in drawn.items()}
    (fixed, _) = lengths.best(report, ["gru"], 2, fixed=["discount"])["gru"]
    assert "discount" not in fixed and fixed["decay"] == drawn["gru"][0]["decay"]
    with pytest.raises(FileError, match="no settings of fifo"):
        lengths.best(report, ["fifo"], 2)
    for content in ("[]", '{"rows": [1]}', "{", '{"rows": [{"agent": "gru"}]}'):
        report.write_text(content)
        with pytest.raises(FileError, match="not the report of a search"):
            lengths.best(report, ["gru"], 2)


@pytest.mark.parametrize("name", lengths.KINDS)
def test_a_search_draws_the_same_settings_twice_and_within_their_ranges(name):
    ranges = lengths.RANGES[name]
    drawn = lengths.draw(name, 32)
    assert lengths.draw(name, 32) == drawn and lengths.draw(name, 8) == drawn[:8]
    for option, (low, high, _) in ranges.items():
        values = np.array([settings[option] for settings in drawn])
        assert (low <= values).all() and (values <= high).all() and len(set(values)) > 28  # to six digits
    env = SecretInformant(5)
    for settings in drawn:
        lengths.make_agent("secret-informant", name, env, settings)
    assert all("discount" not in settings for settings in lengths.draw(name, 4, fixed=["discount"]))


def test_the_tasks():
    found = lengths.tasks(["t-maze"], [5, 40], ["episodic", "gru"], {"width": 3, "memory_size": 2})
    assert list(found) == ["t-maze 5 episodic", "t-maze 5 gru", "t-maze 40 episodic", "t-maze 40 gru"]
    task = found["t-maze 40 gru"]
    assert task.env == TMaze(40) and task.agent == RealTimeActorCritic(
        **{**lengths.SETTINGS["t-maze"]["gru"], "width": 3}
    )
    agent = found["t-maze 5 episodic"].agent
    assert (agent.memory_size, agent.hidden, agent.optimizer, agent.query_rate) == (2, 10, "rmsprop", 1.13091)
    (task,) = lengths.tasks(["secret-informant"], [7], ["episodic"], {}).values()
    assert task.agent == EpisodicActorCritic(memory_size=4)
    (task,) = lengths.tasks(["secret-informant"], [7], ["gru-full"], {}).values()
    assert task.env == SecretInformant(7, decisions=1, actions=3)
    assert task.agent == RecurrentActorCritic(width=5, learning_rate=0.003125, window=4 * 9)
    assert set(commands.FAMILIES) == set(lengths.FAMILIES)
    assert set(commands.AGENTS) == set(lengths.RANGES) == set(lengths.KINDS)
    assert set(lengths.SETTINGS) == set(lengths.FAMILIES)


def test_the_command(tmp_path, monkeypatch, capsys):
    """A report, its table and picture; what is there already is not done again."""
    tried = []

    def pretend(task, budget, on_progress):
        tried.append(task.head["length"])
        returns = curves(*[[(20, 1.0)]] * len(budget.seeds))
        return SimpleNamespace(returns=returns, lengths=returns * task.env.shortest_episode)

    monkeypatch.setattr(lengths, "_train", pretend)
    out, picture = tmp_path / "l.json", tmp_path / "l.png"
    words = f"lab lengths --families all --lengths 5,10 --agents none --seeds 3 --episodes 100 --out {out}".split()
    assert cli.main([*words, "--picture", str(picture)]) == 0
    report = json.loads(out.read_text())
    assert [(row["family"], row["length"], row["agent"]) for row in report["rows"]] == [
        (family, length, "none") for family in lengths.FAMILIES for length in (5, 10)
    ]
    for row in report["rows"]:
        assert (row["seeds"], row["episodes"], row["median_episodes_to_solve"]) == (3, 100, 5)
    assert "3 of 3" in capsys.readouterr().out and picture.stat().st_size > 10_000
    assert cli.main([*words, "--resume"]) == 0 and tried == [5, 10] * 2
    again = tmp_path / "again.png"
    assert cli.main(["lab", "lengths", "--draw", str(out), str(out), "--picture", str(again)]) == 0 and again.exists()


def test_a_search_runs_each_setting_as_if_alone(capsys):
    words = "lab lengths --lengths 2 --agents gru --set width=2 --seeds 2 --episodes 50 --search 3 --first-seed 7"
    assert cli.main([*words.split(), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert len(rows) == 3 and lengths.ranked(rows) == rows
    for k, settings in enumerate(lengths.draw("gru", 3)):
        (task,) = lengths.tasks(["t-maze"], [2], ["gru"], {"width": 2, **settings}).values()
        alone = lengths._train(task, lengths.Budget(range(7, 13), 50), lambda report: None)
        own = slice(2 * k, 2 * k + 2)
        summary = lengths.summarise(alone.returns[own], alone.lengths[own], 50)
        (row,) = (row for row in rows if row["settings"] == settings)
        assert row["finished"] == 2 and row["mean_final_return"] == summary["mean_final_return"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--episodes 120", "a multiple of 50 is needed"),
        ("--search 4", "one of the --lengths"),
        ("--search 4 --lengths 5 --picture x.png", "no --picture"),
        ("--out x.json --picture ./x.json", "choose another name for the picture"),
        ("--agents gru-full", "take gru there"),
        ("--set depth=3", "none of episodic, gru has an option depth"),
        ("--agents gru --set width=65", "64 is the most"),
        ("--best x.json", "--search K says how many"),
        ("--search 4 --lengths 5 --best nowhere.json", "nowhere.json"),
    ],
)
def test_wrong_input_is_refused_before_the_work(arguments, message, capsys):
    assert cli.main(["lab", "lengths", *arguments.split()]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
