"""Ctrl-C, SIGTERM, a second process, another config, other versions, another place: each works or says why not."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from recollect import cli
from recollect.store import checkpoints, files, lock, run_folders, run_reading
from recollect.store.interrupts import Interrupts
from recollect.studies import reproduce
from reliability import commands, standin
from reliability.commands import content, events, finish, read_json, wait_for
from reliability.standin import ARGUMENTS, outcome

FAST = ("--checkpoint-every", "0.01")


@pytest.fixture(autouse=True)
def _standin(monkeypatch):
    monkeypatch.setattr(standin, "TICK", 0.0)
    standin.install(monkeypatch.setattr)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that was left alone."""
    path = tmp_path_factory.mktemp("whole") / "run"
    finish(commands.standin("reproduce", *ARGUMENTS, "--out", path, STANDIN_TICK="0"))
    return path


@pytest.fixture(scope="module")
def stopped_once(tmp_path_factory):
    """A run that was stopped on its way: one group finished, two under way with several checkpoints, one not begun."""
    path, stopping = tmp_path_factory.mktemp("stopped") / "run", threading.Event()

    def saved(group, count):
        return lambda: len(checkpoints.listing(path / "checkpoints" / group)) >= count

    def begin(plan, job, group, state):
        name = f"{job.name}-{group}"
        for report in standin.begin(plan, job, group, state):
            yield report
            if name in ("episodic-0", "recurrent-1") and report.steps in (20, 40):
                wait_for(saved(name, report.steps // 20))
            if name == "episodic-0" and report.steps == 40:
                wait_for(lambda: saved("recurrent-1", 2)() and saved("recurrent-0", 1)())
                os.kill(os.getpid(), signal.SIGINT)
            if name == "recurrent-1" and report.steps == 60:
                wait_for(lambda: (path / "log.jsonl").exists() and stopping.is_set())

    with pytest.MonkeyPatch.context() as patch:
        standin.install(patch.setattr)
        patch.setattr(standin, "TICK", 0.002)
        patch.setattr(reproduce, "begin", begin)
        receive = Interrupts._receive
        patch.setattr(Interrupts, "_receive", lambda self, *a: (receive(self, *a), stopping.set()))
        with pytest.raises(KeyboardInterrupt):
            reproduce.train(reproduce.make_plan("fig4", seeds=2, episodes=2500), path, every=1e-9)
    assert read_json(path / "status.json")["status"] == "interrupted"
    assert saved("episodic-0", 2)() and saved("recurrent-1", 2)() and not saved("recurrent-2", 1)()
    return path


@pytest.fixture
def stopped(stopped_once, tmp_path):
    """A copy of it for each test."""
    return shutil.copytree(stopped_once, tmp_path / "run")


def resume(path, *options):
    return cli.main(["resume", str(path), *map(str, options)])


# -- signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_once_saves_and_ends(tmp_path, whole, number):
    """Exit 130, with a checkpoint of where the run stood, not of some time before."""
    run = tmp_path / "run"
    process = commands.standin("reproduce", *ARGUMENTS, "--out", run, "--checkpoint-every", 1000, STANDIN_TICK="0.02")
    wait_for(
        lambda: run.exists() and (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").stat().st_size, process
    )
    time.sleep(0.3)
    process.send_signal(number)
    _, err = finish(process, 130)
    assert "saving a checkpoint; once more to stop at once" in err and "recollect resume continues it" in err
    lines = len((run / "metrics.jsonl").read_text().splitlines())
    newest = [checkpoints.load(group) for group in (run / "checkpoints").iterdir()]
    assert lines > 10 and sum(found.meta["metrics"]["lines"] for found in newest) == lines
    assert read_json(run / "status.json")["status"] == "interrupted" and not (run / "lock.json").exists()
    assert resume(run) == 0
    assert outcome(run) == outcome(whole)


def test_twice_ends_at_once(tmp_path, whole):
    """During a compiled call of 30 s: exit 130 within a moment, and the earlier checkpoint is what there was."""
    run = tmp_path / "run"
    process = commands.standin("reproduce", *ARGUMENTS, "--out", run, *FAST, STANDIN_TICK="0.02")
    wait_for(lambda: len(commands.checkpoints_of(run)) >= 2, process)
    process.send_signal(signal.SIGINT)
    finish(process, 130)
    before = content(run / "checkpoints")
    process = commands.standin("resume", run, STANDIN_TICK="30")
    wait_for(lambda: any(event["event"] == "resumed" for event in events(run)), process)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    wait_for(lambda: b"saving" in os.read(process.stderr.fileno(), 4096), process)
    asked = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.wait(timeout=10)
    assert process.returncode == 130 and time.monotonic() - asked < 2
    assert b"stopped at once" in os.read(process.stderr.fileno(), 4096)
    process.communicate()
    assert content(run / "checkpoints") == before
    assert resume(run) == 0
    assert outcome(run) == outcome(whole)


# -- the lock


def test_the_second_process_leaves_at_once_and_names_the_first(tmp_path):
    run = tmp_path / "run"
    first = commands.standin("reproduce", *ARGUMENTS, "--out", run, STANDIN_TICK="5")
    wait_for(lambda: run.exists() and (run / "log.jsonl").exists(), first)
    holder = read_json(run / "lock.json")
    assert holder["pid"] == first.pid and holder["host"] and holder["started"].endswith("Z")
    for options in ((), ("--break-lock",)):
        asked = time.monotonic()
        _, err = finish(commands.standin("resume", run, *options), 1)
        assert time.monotonic() - asked < 60, "it did not wait: the first holds the folder for minutes"
        expected = f"{run} is in use by process {first.pid} on {holder['host']}, started {holder['started']}"
        assert expected in err and err.count("\n") == 1
    assert run_reading.summary(run)["status"] == "running" and str(first.pid) in run_reading.summary(run)["holder"]
    first.kill()
    first.communicate()
    assert lock.holder(run) is None and run_reading.summary(run)["status"] == "stopped"
    assert resume(run) == 0, "a holder that died here is known to be dead"
    assert f"process {first.pid}" in next(e["of"] for e in events(run) if e["event"] == "took over the lock")


def test_a_lock_from_elsewhere_is_broken_only_when_asked(stopped, whole, capsys):
    left = {"host": "elsewhere", "pid": 17, "started": "2020-01-01T00:00:00Z", "boot": "other"}
    (stopped / "lock.json").write_text(json.dumps(left))
    before = content(stopped)
    assert resume(stopped) == 1
    error = capsys.readouterr().err
    assert "locked by process 17 on elsewhere, started 2020-01-01T00:00:00Z" in error and "--break-lock" in error
    assert content(stopped) == before
    assert "elsewhere" in run_reading.summary(stopped)["holder"]
    assert resume(stopped, "--break-lock") == 0
    assert outcome(stopped) == outcome(whole) and "took over the lock" in [e["event"] for e in events(stopped)]


@pytest.mark.parametrize("garbage", [b"{", b"[]", b"\xff" * 100, b"17", b"[" * 4000])
def test_a_damaged_lock_is_a_stale_one(stopped, garbage, capsys):
    (stopped / "lock.json").write_bytes(garbage)
    assert resume(stopped) == 1 and "--break-lock" in capsys.readouterr().err
    assert resume(stopped, "--break-lock") == 0


def test_a_lock_that_is_a_link_is_refused(stopped, tmp_path, capsys):
    (tmp_path / "precious").write_text("precious")
    (stopped / "lock.json").symlink_to(tmp_path / "precious")
    assert resume(stopped, "--break-lock") == 1
    assert "cannot lock" in capsys.readouterr().err and (tmp_path / "precious").read_text() == "precious"


# -- damage


def newest(run, group="episodic-0"):
    return checkpoints.listing(run / "checkpoints" / group)[-1]


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
@pytest.mark.parametrize("name", ["arrays.safetensors", "manifest.json", "SHA256SUMS"])
def test_damage_is_named_and_refused_or_passed_over(stopped, whole, name, damage, capsys):
    path = newest(stopped) / name
    if damage == "flip":
        found = bytearray(path.read_bytes())
        found[-3 if name == "SHA256SUMS" else len(found) // 2] ^= 4  # not in a sum, which would blame what it is of
        path.write_bytes(found)
    elif damage == "truncate":
        path.write_bytes(path.read_bytes()[:-3])
    else:
        path.unlink()
    before = content(stopped)
    assert cli.main(["verify", str(stopped)]) == 1
    assert str(path) in capsys.readouterr().out
    assert resume(stopped) == 1
    error = capsys.readouterr().err
    assert str(path) in error and "--fallback" in error and error.count("\n") == 1
    assert content(stopped) == before
    assert resume(stopped, "--fallback") == 0
    assert outcome(stopped) == outcome(whole)
    (went,) = [event for event in events(stopped) if event["event"] == "went back a checkpoint"]
    assert str(path) in went["reason"] and went["group"] == "episodic-0"


@pytest.mark.parametrize("damage", ["flip", "truncate", "garble", "remove"])
def test_damaged_metrics_are_named_and_refused(stopped, damage, capsys):
    path = stopped / "metrics.jsonl"
    text = path.read_bytes()
    changed = {
        "flip": text.replace(b'"length": 12.0', b'"length": 13.0', 1),
        "truncate": text[: len(text) // 2],
        "garble": b"{" + text,
    }
    path.unlink()
    if damage in changed:
        path.write_bytes(changed[damage])
    before = content(stopped)
    assert cli.main(["verify", str(stopped)]) == 1 and "metrics.jsonl" in capsys.readouterr().out
    assert resume(stopped) == 1 and "metrics.jsonl" in capsys.readouterr().err
    assert content(stopped) == before


def test_half_a_line_of_metrics_is_cut_off(stopped, whole):
    with open(stopped / "metrics.jsonl", "ab") as out:
        out.write(b'{"agent": "episodic", "se')
    assert resume(stopped) == 0
    assert outcome(stopped) == outcome(whole)


# -- config and versions


def change(path, *keys, value):
    config = read_json(path)
    place = config
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    path.write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("agents", "episodic", "hyperparameters", "learning_rate"), 0.1, "learning_rate: was 0.1, is 0.005"),
        (("plan", "seeds"), 3, r"agents.episodic.seeds: was [0, 1], is [0, 1, 2]"),
        (("plan", "episodes"), 5000, "agents.episodic.episodes: was 2500, is 5000"),
        (("plan", "preset"), "robust", 'preset: was "paper", is "robust"'),
        (("environment", "observation_size"), 9, "environment.observation_size: was 9, is 8"),
        (("agents", "episodic", "surprise"), 1, "agents.episodic.surprise: was 1, is absent"),
        (("plan",), {"figure": "fig4"}, "holds no plan that can be resumed"),
        (("plan", "figure"), "fig9", "holds no plan that can be resumed: ValueError: unknown figure 'fig9'"),
    ],
)
def test_another_config_is_refused_field_by_field(stopped, keys, value, message, capsys):
    change(stopped / "config.json", *keys, value=value)
    before = content(stopped)
    assert resume(stopped) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and content(stopped) == before


def test_a_config_that_is_whole_and_yet_another_is_refused(stopped, capsys):
    """Plan and hyperparameters changed together: the checkpoints know what the run began with."""
    other = reproduce.make_plan("fig4", "robust", seeds=2, episodes=2500).config()
    config = read_json(stopped / "config.json")
    (stopped / "config.json").write_text(json.dumps({**config, **run_folders.plain(other)}))
    assert resume(stopped) == 1
    error = capsys.readouterr().err
    assert 'preset: was "paper", is "robust"' in error and "hyperparameters.discount: was 1.0, is 0.99" in error
    assert "only checkpoints may change" in error


def test_listed_fields_may_change(stopped, whole):
    change(stopped / "config.json", "checkpoints", "every", value=7.5)
    assert resume(stopped) == 0
    assert outcome(stopped) == outcome(whole)


def test_resuming_by_the_first_command(tmp_path, stopped, whole, capsys):
    """``reproduce --resume`` goes on, does nothing twice, begins what is missing, and refuses another plan."""
    words = ["reproduce", *ARGUMENTS, "--out", str(stopped), "--resume"]
    assert cli.main([*words[:3], "5000", *words[4:]]) == 1
    assert "plan.episodes: was 2500, is 5000" in capsys.readouterr().err
    assert cli.main(words) == 0
    assert outcome(stopped) == outcome(whole)
    saved = content(stopped / "checkpoints")
    assert cli.main(words) == 0
    assert content(stopped / "checkpoints") == saved and outcome(stopped) == outcome(whole)
    assert cli.main(["reproduce", *ARGUMENTS, "--out", str(tmp_path / "new"), "--resume"]) == 0
    assert outcome(tmp_path / "new") == outcome(whole)


@pytest.mark.parametrize("name", ["jax", "prng", "backend", "xla_flags"])
def test_other_versions_are_refused_or_marked(stopped, whole, name, monkeypatch, capsys):
    monkeypatch.setattr(run_folders, "versions", lambda: {**standin.VERSIONS, name: "another"})
    before = content(stopped)
    assert resume(stopped) == 1
    error = capsys.readouterr().err
    assert (
        f'{name}: was "stand-in", is "another"' in error and "--allow-inexact" in error and content(stopped) == before
    )
    assert resume(stopped, "--allow-inexact") == 0
    assert read_json(stopped / "status.json")["exact"] is False
    assert f'{name}: was "stand-in", is "another"' in str(events(stopped))
    assert cli.main(["runs", str(stopped.parent)]) == 0 and "finished, not bit-exact" in capsys.readouterr().out
    # The mark stays, also when nothing differs any more.
    assert resume(stopped) == 0
    assert read_json(stopped / "status.json")["exact"] is False


def test_the_versions_are_recorded(monkeypatch):
    monkeypatch.undo()
    found = run_folders.versions()
    assert set(found) >= {"recollect", "jax", "jaxlib", "numpy", "prng", "platform", "python", "processor", "backend"}
    assert found["prng"] == "recollect_philox4x32" and found["backend"] == "cpu"


def test_another_observation_is_refused_with_expected_and_got(stopped, monkeypatch, capsys):
    monkeypatch.setattr(standin, "SIZE", 60)
    before = content(stopped)
    assert resume(stopped) == 1
    assert "x: expected float64[60], got float64[50]" in capsys.readouterr().err and content(stopped) == before


# -- sweeps


def test_one_failed_run_is_recorded_and_resumed_alone(tmp_path, whole, monkeypatch, capsys):
    """The group that fails is tried again from where it stood; the finished ones are not trained again."""
    begun = {}

    def failing(plan, job, group, state):
        name = f"{job.name}-{group}"
        begun[name] = 0 if state is None else int(state["t"])
        for report in standin.begin(plan, job, group, state):
            yield report
            if broken and name == "recurrent-1" and report.steps == 40:
                raise RuntimeError("out of luck")

    broken, run = True, tmp_path / "run"
    monkeypatch.setattr(reproduce, "begin", failing)
    assert cli.main(["reproduce", *ARGUMENTS, "--out", str(run), "--checkpoint-every", "1e-9"]) == 1
    assert read_json(run / "status.json")["errors"] == {
        "recurrent-1": "training of the recurrent agent failed: RuntimeError: out of luck"
    }
    assert cli.main(["runs", str(tmp_path)]) == 0 and "out of luck" in " ".join(capsys.readouterr().out.split())
    broken = False
    begun.clear()
    assert resume(run) == 0
    assert 0 < begun.pop("recurrent-1") < 40
    assert begun == {"episodic-0": 100, "recurrent-0": 100, "recurrent-2": 100}, "finished: at their ends already"
    assert outcome(run) == outcome(whole)


# -- places and clocks


def test_the_clock_may_jump(tmp_path, whole, monkeypatch):
    """Years back and forth while training and between: nothing is timed by the wall clock."""
    jumps = iter(range(10**9))
    monkeypatch.setattr(time, "time", lambda: (-1) ** next(jumps) * 1e9 + 1e9)
    monkeypatch.setattr(time, "gmtime", lambda *a, real=time.gmtime: real((next(jumps) % 7) * 1e8))
    run = tmp_path / "run"
    monkeypatch.setattr(standin, "TICK", 0.0005)
    assert cli.main(["reproduce", *ARGUMENTS, "--out", str(run), *FAST]) == 0
    assert outcome(run) == outcome(whole) and len(commands.checkpoints_of(run)) > 8


def test_the_folder_may_move_and_be_called_anything(stopped, whole, tmp_path, monkeypatch):
    place = tmp_path / "anderswo – 別の場所" / "a run, with 'spaces' & \N{SNOWMAN}"
    place.parent.mkdir()
    shutil.move(stopped, place)
    monkeypatch.chdir(place.parent)
    assert cli.main(["verify", place.name]) == 0
    assert cli.main(["runs", "."]) == 0
    assert resume(place.name) == 0
    assert outcome(place) == outcome(whole)


def _unshare(*script):
    """A command in a mount namespace of its own, where anyone may mount; None where that is not permitted."""
    command = ["unshare", "--map-root-user", "--mount", "sh", "-ec"]
    if subprocess.run([*command, "mount -t tmpfs none /mnt"], capture_output=True).returncode:
        return None
    return subprocess.run([*command, *script], env=commands.environment(), capture_output=True, text=True, timeout=120)


def test_a_folder_that_cannot_be_written_says_so(stopped):
    """Read-only: listed and verified, and resuming says what is the matter."""
    script = (
        'mount --bind "$0" "$0"; mount -o remount,bind,ro "$0"; for c in verify runs resume; do "$1" "$2" $c "$0"; done'
    )
    done = _unshare(script.replace('$c "$0"; done', '$c "$0" || echo "exit $?"; done'), str(stopped), sys.executable,
                    str(commands.HERE / "standin.py"))  # fmt: skip
    if done is None:
        pytest.skip("no mounting here")
    assert done.stdout.count("intact") >= 4 and "interrupted" in done.stdout and done.stdout.endswith("exit 1\n")
    assert f"cannot lock {stopped}: lock.json: Read-only file system" in done.stderr and "Traceback" not in done.stderr


DISK_FULL = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from reliability import standin
from recollect import cli
from recollect.store import run_reading
from recollect.studies import reproduce
from recollect.training.batch import Progress
standin.install()
run, fill = Path(sys.argv[1]) / "run", []
def begin(plan, job, group, state):
    for report in standin.begin(plan, job, group, state):
        yield report
        if job.name == "episodic" and state is None and isinstance(report, Progress) and report.steps == 30:
            with open(run.parent / "ballast", "wb", buffering=0) as out:
                try:
                    while True:
                        out.write(bytes(4096))
                except OSError:
                    pass
reproduce.begin = begin
code = cli.main(["reproduce", *standin.ARGUMENTS, "--out", str(run), "--checkpoint-every", "0.01"])
print("exit", code)
print("faults", [fault for _, fault in run_reading.verify(run) if fault])
print("saved", len(run_reading.saved(run)), "hidden", [p.name for p in run.rglob(".*")])
(run.parent / "ballast").unlink()
print("resumed", cli.main(["resume", str(run)]))
import shutil
shutil.copytree(run, sys.argv[3])
"""


def test_a_full_disk(tmp_path, whole):
    """A tmpfs that fills up: exit 1 naming the path, earlier checkpoints sound; given room, the run goes on."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "script.py").write_text(DISK_FULL)
    script = 'mount -t tmpfs -o size=3m none "$0"; "$1" "$2" "$0" "$3" "$4"'
    done = _unshare(
        script,
        str(tmp_path / "disk"),
        sys.executable,
        str(tmp_path / "script.py"),
        str(commands.HERE.parent),
        str(tmp_path / "copy"),
    )
    if done is None:
        pytest.skip("no mounting here")
    lines = done.stdout.splitlines()
    assert "exit 1" in lines and "faults []" in lines and lines[-1] == "resumed 0", done.stdout + done.stderr
    assert "hidden []" in done.stdout
    errors = [line for line in done.stderr.splitlines() if line.startswith("recollect: ")]
    assert (
        len(errors) == 1 and f"cannot write {'the checkpoint in ' * ('checkpoint' in errors[0])}{tmp_path}" in errors[0]
    )
    assert "No space left on device" in errors[0]
    assert outcome(tmp_path / "copy") == outcome(whole)


def test_a_quota_on_files(tmp_path):
    """The same without mounting: no file may grow beyond a limit."""
    code = (
        "import resource, sys, signal\n"
        "from pathlib import Path\n"
        "import numpy as np\n"
        "from recollect import RecollectError\n"
        "from recollect.store import checkpoints\n"
        "here = Path(sys.argv[1])\n"
        "checkpoints.save(here, {'x': np.zeros(100)}, {})\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))\n"
        "try:\n"
        "    checkpoints.save(here, {'x': np.zeros(100_000)}, {})\n"
        "except RecollectError as error:\n"
        "    print(error)\n"
        "print(len(checkpoints.load(here).arrays['x']), sorted(p.name for p in here.iterdir()))\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, env=commands.environment(), capture_output=True, text=True, check=True)
    first, last = done.stdout.splitlines()
    assert first.startswith(f"cannot write the checkpoint in {tmp_path}: File too large")
    assert last == "100 ['checkpoint-00000001']"


# -- malice


def test_nothing_in_a_run_folder_is_executed_or_followed(stopped, tmp_path, capsys):
    """A pickle under every name, links and climbing names in every place: refused, or left alone."""
    bomb = b"cposix\nsystem\n(S'touch " + str(tmp_path / "executed").encode() + b"'\ntR."
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("precious")
    for name in ("config.json", "status.json", "metrics.jsonl"):
        path = stopped / name
        kept = path.read_bytes()
        path.write_bytes(bomb + b"\n")
        assert resume(stopped) == 1 or name == "status.json"
        assert cli.main(["verify", str(stopped)]) == 1 or name == "status.json"
        cli.main(["runs", str(stopped)])
        path.unlink()
        path.symlink_to(tmp_path / "precious" / "file")
        assert resume(stopped) == 1 or name == "status.json"
        assert "precious" not in capsys.readouterr().out
        path.unlink()
        path.write_bytes(kept)
    group = stopped / "checkpoints" / "episodic-0"
    group.rename(tmp_path / "moved")
    group.symlink_to(tmp_path / "moved")
    assert resume(stopped) == 1 and "it is a link" in capsys.readouterr().err
    assert not (tmp_path / "executed").exists()
    assert (tmp_path / "precious" / "file").read_text() == "precious"


def test_a_config_that_is_all_hole_is_refused(stopped, capsys):
    os.truncate(stopped / "config.json", 2**40)
    assert resume(stopped) == 1 and f"more than the {files.LARGEST_JSON:,}" in capsys.readouterr().err
    assert cli.main(["runs", str(stopped.parent)]) == 0 and "damaged" in capsys.readouterr().out


# -- memory and handles


def test_many_checkpoints_leave_no_handles_and_no_memory(tmp_path):
    """A hundred seconds' worth of saving in a few: the short version of ``recollect lab soak``."""
    from recollect.studies.reliability import open_handles, resident_bytes

    plan = reproduce.make_plan("fig4", seeds=2, episodes=2500)
    looks = []
    for number in range(8):
        reproduce.train(plan, tmp_path / str(number), every=1e-9)
        looks.append((open_handles(), resident_bytes()))
    assert len({handles for handles, _ in looks[1:]}) == 1
    assert looks[-1][1] - looks[3][1] < 8 * 2**20


def test_the_soak_says_what_it_saw(tmp_path, capsys):
    assert cli.main(
        ["lab", "soak", "--minutes", "0.02", "--out", str(tmp_path / "soak"), "--checkpoint-every", "0.2"]
    ) in (
        0,
        1,
    )
    printed = capsys.readouterr()
    assert "open files" in printed.out or "too short" in printed.err
