"""The house rules that a machine can hold: who imports whom, what loads when, what never appears."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "recollect"

# One total order: a room imports only itself and the rooms before it. `_version` is open to all.
ROOMS = [
    "errors",
    "prng",
    "cores",
    "reservoir",
    "agents",
    "envs",
    "store",
    "engines",
    "training",
    "wrappers",
    "torch",
    "studies",
    "view",
    "cli",
]
OPTIONAL = {
    "matplotlib": {"studies"},
    "gymnasium": {"envs", "training", "view", "wrappers"},
    "minigrid": {"envs"},
    "popgym": {"envs"},
    "gymnax": {"envs"},
    "xminigrid": {"envs"},
    "bsuite": {"envs"},
    "tensorboardX": {"training"},
    "stable_baselines3": {"studies"},
    "numba": {"reservoir", "engines", "envs", "training", "studies"},
    "optax": {"agents"},
    "cupy": {"engines"},
    "torch": {"torch"},
    "safetensors": {"store", "torch"},
    "onnx": {"torch"},
    "onnxruntime": set(),
    "pyarrow": {"reservoir", "cli"},
    "ray": {"studies"},
    "optuna": {"studies"},
}
# A method that shows its own object reaches for the page when it is called, not before.
LATER = {("training/online.py", "recollect.view")}
FRONT = {"__init__", "__main__", "_version"}  # at the top and in no room: the public names and the way in


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
    assert room in FRONT or room in ROOMS, f"{path} is in no room of the house"
    homes = public_homes()
    for name in imports_of(path):
        top, *rest = name.split(".")
        if top in OPTIONAL:
            assert room in OPTIONAL[top], f"{path} imports {name}, which belongs in {OPTIONAL[top]}"
        if top != "recollect" or not rest or room in FRONT or rest[0] in FRONT or name == "recollect.__version__":
            continue
        if (path.relative_to(SOURCE).as_posix(), name) in LATER:
            continue
        other = homes.get(rest[0], rest[0])
        assert other in ROOMS, f"{path} imports {name}, which is in no room of the house"
        assert ROOMS.index(other) <= ROOMS.index(room), f"{path}: {room} may not import {other}, a room after it"


def test_the_front_stays_small():
    assert len(list(SOURCE.glob("*.py"))) <= 10


@pytest.mark.slow
def test_no_room_takes_a_public_name():
    """A package called ``train`` would take the place of ``recollect.train`` when any of its modules is imported."""
    import recollect

    assert not {path.name for path in SOURCE.iterdir() if path.is_dir()} & set(recollect.__all__)
    code = "import recollect, recollect.training.online; from recollect import train; print(callable(train))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "True"


@pytest.mark.parametrize("room", ["store", "training"])
def test_every_module_has_a_test_file_of_its_own(room):
    modules = {path.stem for path in (SOURCE / room).glob("*.py")} - {"__init__"}
    tested = {path.stem.removeprefix("test_") for path in (Path(__file__).parent / room).glob("test_*.py")}
    assert modules - tested == set()


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


MODULE, FUNCTION = 500, 60  # lines at most; of a function without its docstring
KERNELS = {
    ("reservoir/passes.py", "pass_linear"),  # one pass over memory, compiled by Numba as a whole
    ("engines/compiler/kernels.py", "kernel"),  # emits one loop: what it shares is the loop's own state
}
"""Functions that may be longer, and why each is."""


def length_of(function):
    first = function.body[0]
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    docstring = first.end_lineno - first.lineno + 1 if documented else 0
    return function.end_lineno - function.lineno + 1 - docstring


def test_modules_and_functions_stay_short():
    longest = {}
    for path in SOURCE.rglob("*.py"):
        text, name = path.read_text(), path.relative_to(SOURCE).as_posix()
        assert len(text.splitlines()) <= MODULE, f"{name} has more than {MODULE} lines: divide it by reason to change"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                longest[name, node.name] = max(length_of(node), longest.get((name, node.name), 0))
    too_long = {place for place, lines in longest.items() if lines > FUNCTION}
    assert too_long - KERNELS == set(), f"more than {FUNCTION} lines: divide them, or say in KERNELS why not"
    assert KERNELS - too_long == set(), "named in KERNELS, and short"
