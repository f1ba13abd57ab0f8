"""The documentation against the code: what it names exists, and what cites the paper is named."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "recollect"
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


def citing():
    """Every function, method or class whose docstring cites the paper, as module.name."""
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        for node in ast.parse(path.read_text()).body:
            for owner, inner in [(None, node), *((node, child) for child in getattr(node, "body", []))]:
                if isinstance(inner, (ast.FunctionDef, ast.ClassDef)) and "Paper: " in (ast.get_docstring(inner) or ""):
                    yield ".".join([module, *([owner.name] if isinstance(owner, ast.ClassDef) else []), inner.name])


def test_everything_that_cites_the_paper_is_on_the_map():
    page = (ROOT / "docs" / "paper.md").read_text()
    names = list(citing())
    assert len(names) > 12
    assert [name for name in names if f"`{name}`" not in page] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_named_tests_and_files_exist(page):
    text = page.read_text()
    for path, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text):
        assert (ROOT / path).exists(), path
        if name:
            assert re.search(rf"^def {name}\b", (ROOT / path).read_text(), re.M), f"{path}::{name}"
    for target in re.findall(r"\]\(([\w./-]+\.(?:md|json|png|svg|cff))(?:#[\w-]+)?\)", text):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_costs_of_a_cluster_are_those_that_were_measured():
    """The row of the table on paper is what the benchmark of sampling says it takes."""
    sample, cluster = (json.loads((ROOT / "benchmarks" / name).read_text()) for name in ("sample.json", "cluster.json"))
    measured = cluster["measured"]["seconds_a_row"]
    assert measured == pytest.approx(sample["nanoseconds_a_row"]["sample n=10000"] * 1e-9, rel=1e-12)
    page = (ROOT / "docs" / "scale.md").read_text()
    assert f"| a row, one worker, n = 10,000 | {measured * 1e9:.1f} ns |" in page
    assert f"| `recollect sample`, n = 10,000 | {measured * 1e9:.1f} |" in page


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_quoted_commands_parse(page):
    from recollect import cli

    for command in re.findall(r"^(?: {4}|\$ )(recollect .+)$", page.read_text(), re.M):
        words = command.split("#")[0].split()[1:]
        if words != ["--help"]:
            cli.parser().parse_args(words)


def python_blocks(page):
    return "\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S))


@pytest.mark.slow
def test_the_tutorial_solves_its_task(tmp_path):
    """Run as the reader would, all of it."""
    (tmp_path / "errand.py").write_text(python_blocks(ROOT / "docs" / "tutorial.md"))
    done = subprocess.run(
        [sys.executable, "errand.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stderr
    evaluation = next(line for line in done.stdout.splitlines() if line.startswith("return "))
    assert float(evaluation.split()[1]) > 0.9, evaluation


def run_blocks(page, tmp_path, before, *shorter):
    """The Python of a page, run as a reader would who has done what is in ``before``, with fewer steps."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.M | re.S)
    text = "\n".join(block for block in blocks if not block.startswith(">>>"))  # those are doctests
    for long, short in shorter:
        assert long in text, long
        text = text.replace(long, short)
    (tmp_path / "page.py").write_text(f"{before}\n{text}\n")
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_examples_of_environments_run(tmp_path):
    shorter = ("100_000", "400"), ("10_000", "100"), ("20_000", "200"), ("episodes=20", "episodes=1")
    run_blocks("environments.md", tmp_path, "", *shorter)


@pytest.mark.slow
def test_the_examples_of_reliability_run(tmp_path):
    before = """
import recollect
from recollect.envs.t_maze import TMazeEnv as Errand
learner = recollect.Learner(recollect.EpisodicActorCritic(memory_size=2), Errand)
learner.learn(20, folder="runs/errand").save("errand-agent")
"""
    run_blocks("reliability.md", tmp_path, before)


@pytest.mark.slow
def test_the_readme_prints_what_it_says(tmp_path):
    """Its first program, and the line below it."""
    text = (ROOT / "README.md").read_text()
    program, printed = re.search(r"^```python\n(.*?)^```\n\n    ([^\n]+)$", text, re.M | re.S).groups()
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == printed.strip()


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("mkdocs", reason="the extra `docs` brings mkdocs")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    settings = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, cwd=ROOT, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "EpisodicActorCritic" in (tmp_path / "site" / "reference" / "index.html").read_text()
