"""Pictures of runs, from made-up folders."""

import json

import numpy as np
import pytest

from recollect import FileError, cli
from recollect.store.run_reading import read
from recollect.studies import plots
from studies.synthetic import write_run
from tiers import first_quick

LOOPS = {"episodes_done": 40}


def panels_of(path):
    config, curves, status = read(path)
    return plots._panels(config, curves, status), plots._title(config, status)


def test_panels_are_those_of_the_captions(tmp_path):
    panels, title = panels_of(write_run(tmp_path / "3", "fig3", [{}] * 3, baseline=[{}] * 3))
    assert title.startswith("Figure 3: length 10, 1 decision, 1 state of memory\npreset robust · 3 seeds")
    assert [p.title for p in panels] == ["(a) mean write weight", "(b) average return"]
    marks = [[(line.label, line.colour, line.marker) for line in p.lines] for p in panels]
    assert marks[0] == [("informative states", "#66a61e", "o"), ("uninformative states", "#d95f02", "s")]
    assert marks[1] == [("episodic memory", "#e7298a", "o"), ("recurrent baseline (3 seeds)", "#666666", "s")]
    panels, _ = panels_of(write_run(tmp_path / "4", "fig4", [{}] * 3, baseline=[{}] * 3))
    assert [p.title for p in panels[2:]] == ["(c) query vector in the decision state"]
    panels, _ = panels_of(write_run(tmp_path / "6", "fig6", [{}] * 3))
    assert [line.label for line in panels[1].lines] == ["episodic memory"]
    assert len(panels) == 4 and "second" in panels[3].title
    assert [(line.label, line.colour, line.marker) for line in panels[2].lines] == [
        ("uninformative indicator", "#1b9e77", "^"),
        ("informative indicator", "#a6761d", "s"),
        ("first decision identifier", "#7570b3", "o"),
        ("second decision identifier", "#e6ab02", "v"),
    ]
    # Each decision's own identifier is .8 in the made-up curves, the other's −.8.
    assert [line.values[0, -1] for line in panels[2].lines] == [-0.9, 0.9, 0.8, -0.8]
    assert [line.values[0, -1] for line in panels[3].lines] == [-0.9, 0.9, -0.8, 0.8]


@pytest.mark.slow
def test_seeds_that_did_not_finish_are_noted(tmp_path):
    path = write_run(tmp_path / "run", "fig4", [{}, LOOPS, LOOPS], baseline=[LOOPS, {}, {}])
    panels, _ = panels_of(path)
    assert panels[0].notes == panels[2].notes == ["2 of 3 seeds did not finish (looping)"]
    assert [note.split(":")[0] for note in panels[1].notes] == ["episodic", "recurrent"]
    # The mean is over the seeds that got so far.
    mean, error = plots.mean_and_standard_error(panels[0].lines[0].values)
    np.testing.assert_allclose(mean, 0.9)
    assert np.isfinite(error[:40]).all() and np.isnan(error[40:]).all()
    assert all(p.stat().st_size > 10_000 for p in plots.draw_figure(path))


@pytest.mark.parametrize(("figure", "percent"), first_quick([("fig5", 50), ("fig5", 0), ("fig3", 0)]))
def test_a_run_under_way_is_drawn(tmp_path, figure, percent):
    begun = {"episodes_done": percent}
    path = write_run(tmp_path / "run", figure, [begun] * 2, baseline=[begun], status="running", episodes=500)
    panels, title = panels_of(path)
    assert not any(p.notes for p in panels)
    assert "2 seeds" in title and "500 episodes instead of" in title and "still running" in title
    assert [p.name for p in plots.draw_figure(path)] == ["figure.png", "figure.svg"]


@pytest.mark.slow
def test_the_same_run_gives_the_same_picture(tmp_path):
    path = write_run(tmp_path / "run", "fig3", [{}, {"return": 0.9}])
    first = [p.read_bytes() for p in plots.draw_figure(path)]
    assert first == [p.read_bytes() for p in plots.draw_figure(path)]


@pytest.mark.parametrize("missing", ["figure", "experiment", "environment", "preset"])
def test_other_folders_are_refused(tmp_path, missing):
    path = write_run(tmp_path / "run", "fig4", [{}])
    config = json.loads((path / "config.json").read_text())
    del config[missing]
    (path / "config.json").write_text(json.dumps(config))
    with pytest.raises(FileError, match="is not a run of one of the paper's figures"):
        plots.draw_figure(path)
    assert not (path / "figure.png").exists()


@pytest.mark.parametrize("command", ["lengths", "atlas"])
def test_a_picture_takes_the_place_of_nothing_that_was_not_named(command, tmp_path, capsys):
    report, foreign = tmp_path / "len.json", tmp_path / "len.png"
    report.write_text('{"rows": []}')
    foreign.write_text("a picture of mine")
    for words, message in (([], "--picture says where"), (["--picture", str(report)], "among what was given")):
        assert cli.main(["lab", command, "--draw", str(report), *words]) == 1
        assert message in capsys.readouterr().err
    assert report.read_text() == '{"rows": []}' and foreign.read_text() == "a picture of mine"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"rows": [{"task": "a", "agent": "gru", "return": 1}]}', "no report of lab {}: KeyError"),
        (
            '{"rows": [{"family": "t-maze", "length": 5, "agent": "gru", "share": 1, "seeds": 2}]}',
            "no report of lab {}",
        ),
        ('{"rows": [{"experiment": "fig3", "kind": "alone", "changes": 5}]}', "no report of lab {}"),
        *[(content, "no report of lab {}: it has no rows") for content in ('{"a": 5}', '{"rows": 5}', '{"rows": [5]}')],
        *[(content, "report.json is damaged") for content in ("[1]", "text", "")],
    ],
)
@pytest.mark.parametrize("command", ["lengths", "atlas"])
def test_other_files_than_reports_are_not_drawn(command, content, message, tmp_path, capsys):
    (tmp_path / "report.json").write_text(content)
    assert cli.main(["lab", command, "--draw", str(tmp_path / "report.json")]) == 1
    said = capsys.readouterr().err
    assert message.format(command) in said and str(tmp_path / "report.json") in said and said.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("lengths --out y", "out"),
        ("lengths --out y --resume", "out"),
        ("lengths --search 3", "search"),
        ("lengths --best z", "best"),
        ("lengths --json", "json"),
        ("atlas --resume", "resume"),
    ],
)
def test_what_has_no_effect_beside_draw_is_refused(words, option, capsys):
    assert cli.main(["lab", *words.split(), "--draw", "x.json"]) == 1
    assert f"--{option}: --draw only draws" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        "lab lengths --picture {}",
        "lab lengths --draw x.json --picture {}",
        "lab looping --picture {}",
        "bench train --picture {}",
        "inspect nowhere --out {}",
    ],
)
def test_a_picture_of_no_known_kind_is_refused_before_the_work(words, tmp_path, capsys):
    assert cli.main(words.format(tmp_path / "p.txt").split()) == 1
    assert f"cannot draw {tmp_path / 'p.txt'}: its name ends in none of " in capsys.readouterr().err
