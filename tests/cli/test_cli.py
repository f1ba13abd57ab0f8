"""The command from the outside; ``reproduce`` has tests of its own in ``studies``."""

import functools
import json
import re
import subprocess
import sys

import pytest

import recollect
from recollect import cli
from recollect.cli.arguments import setting
from recollect.studies import plots


def test_version_and_help(capsys):
    out = subprocess.run([sys.executable, "-m", "recollect", "--version"], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == f"recollect {recollect.__version__}"
    with pytest.raises(SystemExit) as stop:
        cli.main(["--help"])
    text = capsys.readouterr().out
    assert stop.value.code == 0
    first_level = ["train", "evaluate", "inspect", "envs", "reproduce", "benchmark", "runs", "resume", "verify"]
    first_level += ["plot", "bench", "lab"]
    for command in first_level:
        assert re.search(rf"^    {command} +\w", text, re.M), command


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[(".5", 0.5), ("-.5e-3", -0.0005), ("2.", 2.0), ("1e3", 1000.0), ("3", 3), ("007", "007"), (".", ".")],
        *[
            ("true", True),
            ("True", True),
            ("null", None),
            ("None", None),
            ("relu", "relu"),
            ('"3"', "3"),
            ("a=b", "a=b"),
        ],
    ],
)
def test_values_that_are_set_are_numbers_however_they_are_written(text, value):
    name, found = setting(f"rate={text}")
    assert name == "rate" and found == value and type(found) is type(value)


def test_the_first_level_fits_one_screen(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = cli.parser().format_help().splitlines()
    assert len(lines) <= 32 and max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (["atlas", "--seeds", "3"], "recollect lab atlas"),
        (["lengths"], "recollect lab lengths"),
        (["soak", "--help"], "recollect lab soak"),
        (["bench", "estimators"], "recollect lab estimators"),
    ],
)
def test_old_spellings_give_a_hint(old, new, capsys):
    assert cli.main(old) == 2
    error = capsys.readouterr().err
    assert f"`{new}`" in error and error.count("\n") == 1
    if "--help" not in old:
        assert cli.parser().parse_args([*new.split()[1:], *old[1 if old[0] != "bench" else 2 :]]).run


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nothing"],
        ["demo"],
        ["plot"],
        ["bench"],
        ["bench", "reservoir", "--items", "0"],
        ["bench", "train", "--skip", "eager"],
    ],
)
def test_wrong_commands(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2 and "usage:" in capsys.readouterr().err


def test_the_examples_of_the_help_are_commands_that_exist():
    lines = [line.split() for line in cli.EXAMPLES.splitlines() if line.startswith("  recollect ")]
    assert len(lines) >= 3
    for _, *words in lines:
        assert cli.parser().parse_args(words).run


@pytest.mark.slow
def test_bench_reservoir(capsys):
    assert cli.main(["bench", "reservoir", "--json", "--capacities", "3", "--items", "20000", "--seconds", "0.1"]) == 0
    report = json.loads(capsys.readouterr().out)
    (row,) = report["nanoseconds_an_item"]
    assert row["n"] == 3 and all(row[m] > 0 for m in ("reservoir", "sum"))
    assert report["add_nanoseconds"]["median"] > 0


@pytest.mark.slow
def test_inclusion(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(plots, "draw_inclusion", functools.partial(plots.draw_inclusion, runs=200))
    assert cli.main(["lab", "inclusion", "--out", str(tmp_path / "a folder")]) == 0
    assert (tmp_path / "a folder" / "reservoir.png").stat().st_size > 10_000
    (tmp_path / "file").write_text("")
    assert cli.main(["lab", "inclusion", "--out", str(tmp_path / "file")]) == 1
    assert "recollect: " in capsys.readouterr().err


def test_plot_refuses_what_is_no_run(tmp_path, capsys):
    for path in (tmp_path, tmp_path / "nowhere"):
        assert cli.main(["plot", str(path)]) == 1
        assert capsys.readouterr().err == f"recollect: {path} is not a run folder: config.json is missing\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lab", "study", "--set", "nonsense=1"], "no such option"),
        (["lab", "study", "--set", "memory_size=0"], "memory_size=0 must be an integer of at least 1"),
        (["lab", "study", "--set", "learning_rate=null"], "one number or name is needed"),
        (["lab", "study", "--set", "learning_rate=[0.1,0.2]"], "one number or name is needed"),
        (["lab", "study", "--episodes", "1500"], "must be a multiple of 1000"),
        (["lab", "study", "--out", "{here}"], "exists already"),
        (["lab", "study", "--out", "/proc/none/x.json"], "cannot write"),
        (["lab", "tune", "1", "--episodes", "150"], "a multiple of 100 is needed"),
        (["lab", "readings", "--part", "9", "--parts", "4"], "numbered from 0 to 3"),
        (["lab", "readings", "--part", "-1"], "numbered from 0 to 0"),
    ],
)
def test_studies_refuse_before_they_begin(arguments, message, tmp_path, capsys):
    (tmp_path / "here").touch()
    arguments = [a.replace("{here}", str(tmp_path / "here")) for a in arguments]
    assert cli.main(arguments) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize("limit", ["0", "-1", "inf", "nan", "many"])
def test_step_limits_are_positive_numbers(limit, capsys):
    with pytest.raises(SystemExit):
        cli.main(["lab", "study", "--max-steps", limit])
    assert "--max-steps" in capsys.readouterr().err


@pytest.mark.slow
def test_small_studies(tmp_path):
    out = tmp_path / "new folder" / "study.json"
    changes = ["--set", "memory_size=2", "--set", "discount=0.9"]
    arguments = ["lab", "study", "--figures", "fig3", "--seeds", "2", "--episodes", "50", *changes, "--out", str(out)]
    assert cli.main(arguments) == 0
    report = json.loads(out.read_text())
    assert report["changes"] == {"memory_size": 2, "discount": 0.9}
    (row,) = report["rows"]
    assert row["seeds"] == 2 and row["budget"] == 50 and 0 <= row["solved_at_both"] <= 2
    out = tmp_path / "tune.json"
    assert (
        cli.main(["lab", "tune", "1", "--widths", "3,2", "--rates", "4", "--episodes", "200", "--out", str(out)]) == 0
    )
    rows = json.loads(out.read_text())["rows"]
    assert {r["width"] for r in rows} == {2, 3} and all(r["learning_rate"] == 0.003125 for r in rows)
    out = tmp_path / "readings.json"
    few = ["--figure", "fig3", "--readings", "2", "--seeds", "1", "--max-steps", "0.001", "--records", "1"]
    assert cli.main(["lab", "readings", *few, "--part", "1", "--parts", "4", "--out", str(out)]) == 0
    rows = json.loads(out.read_text())["readings"]
    assert len(rows) == 2 and {(r["estimator"], r["write"]) for r in rows} == {("queried", "before")}


def test_choices_are_those_of_the_library():
    from recollect.agents.episodic import PRESETS
    from recollect.cli import reproduce
    from recollect.studies.paper import FIGURES

    assert tuple(FIGURES) == reproduce.FIGURES and tuple(PRESETS) == reproduce.PRESETS


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--stop-at", "nan", "'nan': must be a finite number"),
        ("--record", "1", "'1': must be a whole number of at least 2, or 0 for none"),
        ("--record", "-3", "must be a whole number of at least 2"),
        ("--steps", "99999999999999999999999999", "every number must be below 2^63"),
        ("--steps", "1e1000000000", "every number must be below 2^63"),
        ("--steps", "1.5", "every number must be whole"),
        ("--steps", "nan", "every number must be whole"),
        ("--steps", "many", "is not a comma-separated list of whole numbers"),
    ],
)
def test_numbers_of_train_are_refused_by_name(option, value, message, capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", "--env", "CartPole-v1", f"{option}={value}"])
    error = capsys.readouterr().err
    assert message in error and option in error


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("units.units=eight", "units='eight' must be a whole number of at least 0"),
        ("units.units=2.5", "units=2.5 must be a whole number"),
        ("network.hidden=64", r"hidden=64 must be whole numbers, such as \(64, 32\)"),
        ("memory.radius=none", "radius='none' must be None or a number"),
        ("memory.law=3", "law=3: choose one of"),
        ("trace_decay=None", "trace_decay=None must be a number"),
        ("actor_optimizer=None", "actor_optimizer=None: that is a part with options of its own"),
        (f"surprise=1{'0' * 400}", "surprise is a number of more than"),
    ],
)
def test_wrong_values_of_options_are_one_line(setting, message, capsys, tmp_path):
    out = tmp_path / "run"
    assert cli.main(["train", "--env", "CartPole-v1", "--set", setting, "--out", str(out)]) == 1
    error = capsys.readouterr().err
    assert re.match(f"recollect: {message}", error) and error.count("\n") == 1 and not out.exists()


def test_an_option_may_be_none(monkeypatch):
    taken = []
    monkeypatch.setattr(recollect, "Learner", lambda agent, *args, **options: taken.append(agent) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cli.main(["train", "--env", "CartPole-v1", "--set", "memory.radius=None"])
    assert taken[0].memory.radius is None


def test_whole_numbers_are_read_exactly():
    steps = [
        cli.parser().parse_args(["train", "--env", "X", "--steps", text]).steps for text in ("9007199254740993", "2e6")
    ]
    assert steps == [9007199254740993, 2_000_000]


def test_an_environment_without_such_an_option_and_an_id_that_there_is_not(capsys, tmp_path):
    out = tmp_path / "run"
    assert cli.main(["train", "--env", "CartPole-v1", "--env-set", "nosuch=1", "--out", str(out)]) == 1
    assert capsys.readouterr().err.startswith("recollect: CartPole-v1 has no option 'nosuch'; it has ")
    assert cli.main(["envs", "nosuch"]) == 1 and not out.exists()
    assert "no id contains 'nosuch'; `recollect envs` lists all" in capsys.readouterr().err


def test_evaluate_goes_back_a_checkpoint_when_asked(tmp_path, capsys):
    run = tmp_path / "run"
    learner = recollect.Learner(recollect.EpisodicActorCritic(memory_size=2), "CartPole-v1", check=False)
    learner.learn(20, folder=run)
    newest = learner.save(run) / "arrays.safetensors"
    newest.write_bytes(newest.read_bytes()[:-4] + b"oops")
    command = ["evaluate", str(run), "--episodes", "1"]
    assert cli.main(command) == 1 and "--fallback goes back to it" in capsys.readouterr().err
    assert cli.main([*command, "--fallback"]) == 0


def test_inspect_takes_the_place_of_nothing(tmp_path, capsys):
    photo = tmp_path / "photo.jpg"
    photo.write_text("a photo of mine")
    assert cli.main(["inspect", str(tmp_path), "--out", str(photo)]) == 1
    assert f"{photo} exists already: choose another --out" in capsys.readouterr().err
    assert photo.read_text() == "a photo of mine"


def test_train_says_when_it_evaluates(capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", "--help"])
    assert "every so many steps, at the next row of metrics (--log-every)" in " ".join(capsys.readouterr().out.split())
