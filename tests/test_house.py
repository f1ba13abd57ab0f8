"""The house rules that a machine can hold: who imports whom, what loads when, what never appears."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "recollect"

# Each room may import the rooms listed; "errors" and "_version" are open to all.
ROOMS = {
    "reservoir": set(),
    "cores": set(),
    "ranges": {"files"},
    "prng": set(),
    "files": set(),
    "checkpoints": {"files"},
    "lock": {"files"},
    "provenance": {"prng"},
    "interrupts": set(),
    "trees": {"prng", "checkpoints"},
    "memory": {"reservoir", "learning"},
    "networks": set(),
    "learning": set(),
    "actions": {"learning"},
    "encoders": set(),
    "pictures": set(),
    "agents": {"reservoir", "memory", "networks", "learning", "actions", "encoders", "pictures"},
    "envs": set(),
    "training": {"agents", "engines", "envs", "learning", "prng", "trees"},
    "compiled": {"networks", "agents", "engines", "envs", "training", "trees"},
    "statistics": set(),
    "runs": {"checkpoints", "files", "lock", "provenance"},
    "plots": {"reservoir", "runs", "statistics"},
    "progress": {"training"},
    "spaces": {"actions"},
    "host": {"agents", "prng"},
    "native": {"actions", "agents", "engines", "host", "networks", "prng", "reservoir"},
    "hosting": {"agents", "host", "native"},
    "normalization": set(),
    "fleet": {"host", "normalization", "spaces"},
    "player": {"agents", "fleet", "host", "hosting", "normalization", "prng", "spaces"},
    "recording": {"files", "runs"},
    "callbacks": set(),
    "engines": {"actions", "agents", "cores", "envs", "reservoir", "prng"},
}
ROOMS["learner"] = set(ROOMS) - {"training", "compiled", "plots", "statistics", "reservoir", "memory"}
ROOMS["resuming"] = {"callbacks", "checkpoints", "files", "learner", "recording", "runs"}
ROOMS["tasks"] = {"ranges"}
ROOMS["inspection"] = {"agents", "learner"}
ROOMS["benchmark"] = {"agents", "interrupts", "learner", "ranges", "statistics", "tasks"}
ROOMS["bench"] = {"reservoir", "agents", "envs", "training", "experiments", "runs", "interrupts", "learner", "native"}
ROOMS["experiments"] = set(ROOMS) - {"progress", "bench", "benchmark", "inspection", "learner", "resuming"}
ROOMS["commands"] = set(ROOMS)
ROOMS["cli"] = {"commands", "interrupts"}
OPTIONAL = {
    "matplotlib": {"plots"},
    "gymnasium": {"envs", "spaces", "fleet", "player", "learner"},
    "minigrid": {"envs"},
    "popgym": {"envs"},
    "bsuite": {"envs"},
    "tensorboardX": {"recording"},
    "stable_baselines3": {"bench"},
    "numba": {"reservoir", "engines", "native", "normalization", "envs", "bench", "experiments"},
    "optax": {"agents"},
    "cupy": {"engines"},
}


def imports_of(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "recollect":
                yield from (f"recollect.{alias.name}" for alias in node.names)
            else:
                yield node.module


def room_of(path):
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def public_homes():
    import recollect

    return {name: home.split(".")[1] for name, home in recollect._HOME.items()}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_direction_of_imports(path):
    room = room_of(path)
    homes = public_homes()
    for name in imports_of(path):
        top, *rest = name.split(".")
        if top in OPTIONAL:
            assert room in OPTIONAL[top], f"{path} imports {name}, which belongs in {OPTIONAL[top]}"
        if top != "recollect" or not rest or room in ("__init__", "__main__"):
            continue
        other = homes.get(rest[0], rest[0])
        if other in ("errors", "_version", "cli", "__init__") or other == room:
            assert other != "cli", f"{path} imports the command line"
            continue
        assert other in ROOMS[room], f"{path}: {room} may not import {other}"


def test_import_is_light():
    code = "import sys, recollect; print(*{'jax', 'numba', 'numpy', 'gymnasium', 'matplotlib'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == ""


def test_nothing_loaded_is_ever_executed():
    """No pickle, eval or exec anywhere in the package, and no NumPy load that would unpickle."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec", "compile", "__import__"), path
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert isinstance(node.value, ast.Constant) and node.value.value is False, path
        assert not {"pickle", "cloudpickle", "dill", "marshal", "shelve"} & {n.split(".")[0] for n in imports_of(path)}


def test_unknown_names_are_named():
    import recollect

    with pytest.raises(AttributeError, match="public names: "):
        recollect.Resevoir  # noqa: B018
    assert {"Reservoir", "__version__"} <= set(dir(recollect))
    for name in recollect.__all__:
        assert getattr(recollect, name) is not None
