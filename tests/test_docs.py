"""The documentation against the code: what it names exists, and what cites the paper is named."""

import ast
import re
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


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_quoted_commands_parse(page):
    from recollect import cli

    for command in re.findall(r"^(?: {4}|\$ )(recollect .+)$", page.read_text(), re.M):
        words = command.split("#")[0].split()[1:]
        if words != ["--help"]:
            cli.parser().parse_args(words)
