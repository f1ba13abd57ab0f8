"""Settings every test runs under: JAX refuses silent dtype promotion, and no program is compiled twice.

What JAX and the step compiler compile is kept in pytest's own cache folder, for the other workers, for the processes
that tests start, and for the next time; what takes no time to compile as well, for there are thousands of it.

XLA compiles without optimising, and with the older of its two code generators for CPUs: programs half as fast, made in
a quarter of the time, and most run once. ``XLA_FLAGS= make test`` has them compiled as they are for users.

Tiers: a test is in the quick one unless it is marked ``slow``, ``ray``, ``gpu`` or ``browser``; ``make check`` runs
that tier, ``make test`` all that the machine can, but for the further clusters of Ray.
"""

import gc
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jaxlib.version
import pytest

SETTINGS = {
    "jax_compilation_cache_dir": str(Path(__file__).parents[1] / ".pytest_cache" / "jax"),
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": 0,
    "jax_traceback_in_locations_limit": 0,  # lines of source in every operation of a program that nobody reads
}
os.environ.setdefault("RECOLLECT_CACHE", str(Path(__file__).parents[1] / ".pytest_cache" / "code"))
for name, value in SETTINGS.items():
    jax.config.update(name, value)
    os.environ[name.upper()] = str(value)
jax.config.update("jax_numpy_dtype_promotion", "strict")
if jaxlib.version.__version_info__[:2] == (0, 10):  # XLA ends the process at a flag that it does not know
    quickly = "use_fusion_emitters=false", "parallel_codegen_split_count=1"
    flags = ["--xla_backend_optimization_level=0", *(f"--xla_cpu_{flag}" for flag in quickly)]
    os.environ.setdefault("XLA_FLAGS", " ".join(flags))

OPTIMISED = (Path(__file__).parent / "engines", Path(__file__).parent / "reliability" / "test_kill.py")
"""Where LLVM optimises: of the engines themselves, and where other processes run long with what users run."""
TIERS = ("slow", "ray", "gpu", "browser")
LONG = (
    "test_package.py",
    "test_ray.py",
    "test_steps.py",
    "test_teams.py",
    "test_kill.py",
    "test_recipes.py",
    "test_docs.py",
    "test_examples.py",
)
"""Files whose tests take long each: every worker begins with some of them, so that none is left for the end."""


@pytest.hookimpl(tryfirst=True)  # before -m chooses, and after the folders whose own conftest marks them
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not any(item.get_closest_marker(tier) for tier in TIERS):
            item.add_marker(pytest.mark.quick)
    items[:] = dealt(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def dealt(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """In an order in which each of ``workers`` equal parts, as xdist hands them out, begins with long ones."""
    long = sorted((item for item in items if item.path.name in LONG), key=lambda item: LONG.index(item.path.name))
    short = [item for item in items if item.path.name not in LONG]
    order: list[pytest.Item] = []
    for k in range(workers):
        first = long[k::workers]
        end = len(items) * (k + 1) // workers - len(order) - len(first)
        order += [*first, *short[: max(end, 0)]]
        del short[: max(end, 0)]
    return order + short


@pytest.fixture(autouse=True, scope="module")
def _code_as_it_stands(request: pytest.FixtureRequest) -> Iterator[None]:
    """Elsewhere LLVM optimises nothing either: the same bits, in a fifth of the time.

    ``tests/engines/compiler/test_steps.py`` holds that they are the same.
    """
    from recollect.engines import compiled
    from recollect.engines.compiler.program import Program

    compile_program = Program.__init__

    def quickly(self: Program, step: Any, lanes: int = 1, shared: Sequence[bool] = (), often: bool = True) -> None:
        compile_program(self, step, lanes, shared, often=False)

    with pytest.MonkeyPatch.context() as patch:
        if any(request.path.is_relative_to(path) for path in OPTIMISED):
            compiled._program.cache_clear()  # what other tests in this process have compiled quickly
        else:
            patch.setattr(Program, "__init__", quickly)
        yield


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """What was never closed is found here; pytest looks through all that there is twice more, but not the frozen."""
    gc.collect()
    gc.freeze()


def pytest_collection_finish() -> None:
    """What was imported stays, and need not be looked through for garbage again and again while JAX traces."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(1_000_000, 20, 50)
