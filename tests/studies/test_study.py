"""The study and the atlas: what is counted as solved, which agents stand beside each other, what is changed."""

import json
import math

import numpy as np
import pytest

from recollect import EpisodicActorCritic, GeneralActorCritic, cli
from recollect.agents.episodic import PRESETS
from recollect.cli.lab import experiments
from recollect.cli.lab import study as command
from recollect.studies import atlas, study
from recollect.studies.paper import FIGURES, HARDER


def test_summary_by_hand():
    nan = math.nan
    returns = np.array(
        [
            [0.2, 0.95, 1.0, 1.0],  # solved at both looks, from 2,000 episodes on
            [0.2, 0.99, 0.9, 1.0],  # solved at the budget (2,000), lost, found again
            [0.2, 0.3, 0.99, 1.0],  # too late
            [0.96, 0.2, 1.0, 0.2],  # solved early, lost at the budget
            [0.1, nan, nan, nan],  # looped
        ]
    )
    lengths = np.where(np.isnan(returns), nan, 24.0)
    lengths[0] = 12.0
    row = study.summarise(returns, lengths, shortest=12, budget=2000)
    assert (row["seeds"], row["budget"], row["episodes"], row["reached_budget"]) == (5, 2000, 4000, 4)
    assert (row["solved_at_some_time"], row["solved_at_budget"], row["solved_at_end"]) == (3, 2, 3)
    assert row["solved_at_both"] == 2 and row["share"] == 0.4
    assert row["median_episodes_to_solve"] == 2000 and row["slowest_episodes_to_solve"] is None
    assert row["return_at_budget"] == pytest.approx((0.95 + 0.99 + 0.3 + 0.2) / 4)
    assert row["length_at_budget"] == pytest.approx((1 + 2 + 2 + 2) / 4) and row["longest_at_budget"] == 2.0


def test_nothing_solved_has_no_median():
    row = study.summarise(np.full((4, 2), 0.3), np.full((4, 2), 12.0), 12, 1000)
    assert row["median_episodes_to_solve"] is None and row["solved_at_both"] == 0
    assert row["share_interval"][0] == 0.0


def test_the_plain_agent_is_the_robust_preset():
    assert EpisodicActorCritic(memory_size=3) == EpisodicActorCritic.preset("robust", memory_size=3)
    assert set(PRESETS["robust"]) == set(PRESETS["paper"])


def test_the_agents_of_a_study():
    experiment = FIGURES["fig5"]
    robust = study.episodic("robust", experiment)
    assert robust.memory_size == 3 and robust == EpisodicActorCritic(memory_size=3)
    for name in ("none", "fifo", "uniform"):
        assert study.episodic(name, experiment) == robust.replace(memory=name)
    assert study.episodic("oracle", experiment) == robust.replace(oracle_bit=experiment.env.informative_bit)
    assert study.episodic("paper", experiment, hidden=4).learning_rate == 0.005
    plain, changed = {"fig5": experiment}, {"hidden": 4}
    assert study.units(["general"], plain, [0], {})["fig5 general"].args[2] == GeneralActorCritic()  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="nothing set, not with hidden"):
        study.units(["general"], plain, [0], changed)
    assert set(study.units(command.AGENTS, plain, [0], {})) == {f"fig5 {name}" for name in command.AGENTS}
    assert set(experiments.HARDER) == set(HARDER)


def test_the_task_without_the_bit():
    env = HARDER["no-bit"].env
    assert not env.correct_path_bit and env.observation_size == FIGURES["fig5"].env.observation_size - 1


def test_atlas_choices_differ_from_the_preset():
    choices = atlas.number_choices()
    assert choices[0] == {} and len({json.dumps(c, sort_keys=True) for c in choices}) == len(choices)
    for choice in choices:
        assert all(PRESETS["robust"].get(name) != value for name, value in choice.items())
        EpisodicActorCritic(**choice)
    for name, values in (atlas.NAMES | atlas.GENERAL).items():
        assert all(EpisodicActorCritic(**{name: value}) != EpisodicActorCritic() for value in values)


def test_the_ladder_leads_from_paper_to_robust():
    steps = atlas.ladder()
    assert steps[0][1] == PRESETS["paper"] and steps[-1][1] == PRESETS["robust"]


@pytest.mark.slow
def test_study_and_atlas_from_the_command_line(tmp_path, capsys):
    out = tmp_path / "s.json"
    cli.main(f"lab study --figures fig3 --agents robust,fifo --seeds 2 --episodes 40 --out {out}".split())
    report = json.loads(out.read_text())
    assert [(r["experiment"], r["agent"]) for r in report["rows"]] == [("fig3", a) for a in ("robust", "fifo")]
    assert all(r["episodes"] == 80 and r["seeds"] == 2 for r in report["rows"])
    assert "fig3 robust" in capsys.readouterr().err
    out = tmp_path / "a.json"
    cli.main(f"lab atlas --figures fig3 --seeds 1 --episodes 20 --parts numbers --out {out}".split())
    rows = json.loads(out.read_text())["rows"]
    assert len(rows) == len(atlas.number_choices()) + len(atlas.ladder())
    cli.main(["lab", "atlas", "--draw", str(out)])
    assert (tmp_path / "a.png").stat().st_size > 10_000


def test_wrong_input(capsys):
    for arguments, message in (
        ("lab study --agents nobody", "unknown agent nobody"),
        ("lab study --figures fig9", "unknown figure fig9"),
        ("lab atlas --parts everything", "unknown part everything"),
    ):
        with pytest.raises(SystemExit):
            cli.main(arguments.split())
        assert message in capsys.readouterr().err
    assert cli.main(["lab", "study", "--figures", "fig3", "--episodes", "1500"]) != 0
    assert "must be a multiple of 1000" in capsys.readouterr().err
