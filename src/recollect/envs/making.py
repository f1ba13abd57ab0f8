"""From what a user names to environments: an id, an environment, or a function that makes one."""

import contextlib
import importlib
import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator

from recollect.envs import register
from recollect.errors import RecollectError

BRINGS = {"MiniGrid-": "minigrid", "BabyAI-": "minigrid", "popgym-": "popgym"}
"""Packages that register their environments when they are imported, by how the ids begin."""

JAX_PACKAGES = ("gymnax", "xminigrid")
"""Packages of JAX environments that can be adapted: PACKAGE:ID names one."""

Factory = Callable[[], gym.Env]


class Source(NamedTuple):
    """Where environments come from. ``make``: a new one each time, or None if there is only the one that was given."""

    name: str
    first: Any
    make: Factory | None


def make(env_id: str, **options: Any) -> gym.Env:
    """An environment by id.

    As ``gymnasium.make``, and besides: packages that bring the environment are imported; ``bsuite/NAME/NUMBER`` is a
    bsuite experiment; ``gymnax:ID`` and ``xminigrid:ID`` are JAX environments of those packages, with options of their
    parameters or of what makes them; MiniGrid's partial view comes one-hot and without the mission text, with
    ``things`` only those kinds of things in it; popgym's environments have its ``Antialias`` flag for the first step.
    """
    register()
    module, colon, _ = env_id.rpartition(":")
    if colon and not all(part.isidentifier() for part in module.split(".")):
        raise RecollectError(
            f"cannot make {env_id!r}: MODULE:ID is an id with the module to import before its one colon"
        )
    if env_id.startswith("bsuite/"):
        from recollect.envs.bsuite import BsuiteEnv

        with _naming_options(env_id, BsuiteEnv, options):
            return BsuiteEnv(env_id.removeprefix("bsuite/"), **options)
    if is_foreign(env_id):
        from recollect.envs.adapters import named
        from recollect.envs.jax_env import JaxEnv

        return JaxEnv(named(env_id, **options))
    package = next((p for start, p in BRINGS.items() if env_id.startswith(start)), None)
    if package is not None:
        _bring(package, env_id)
    things = options.pop("things", ()) if package == "minigrid" else ()
    try:
        with _naming_options(env_id, None, options):
            env = gym.make(env_id, **options)
    except (gym.error.Error, ImportError) as error:
        raise RecollectError(f"cannot make {env_id!r}: {error}; `recollect envs` lists what there is") from error
    if package == "minigrid":
        return _one_hot_view(env, things)
    return _flag_first_step(env) if package == "popgym" else env


@contextlib.contextmanager
def _naming_options(env_id: str, creator: Any, options: Mapping[str, Any]) -> Iterator[None]:
    """Name an option that what makes the environment does not take; any other ``TypeError`` is the environment's own.

    ``creator``: what makes it; None for the one that Gymnasium has registered.
    """
    try:
        yield
    except TypeError as error:
        if creator is None:
            entry = gym.spec(env_id).entry_point
            creator = load_env_creator(entry) if isinstance(entry, str) else entry
        known = _options_of(creator)
        said = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        unknown = [n for n in options if n not in known] if known is not None else [said[1]] if said else []
        if not set(unknown) & set(options):
            raise
        has = "" if known is None else f"; it has {', '.join(known) or 'none'}"
        raise RecollectError(f"{env_id} has no option {', '.join(map(repr, unknown))}{has}") from error


def _options_of(creator: Any) -> list[str] | None:
    """What a class or a function takes by name, its base classes' options included; None where that is not told."""
    makers = [creator]
    if isinstance(creator, type):
        makers = [cls.__init__ for cls in creator.__mro__ if "__init__" in vars(cls)]
    names: dict[str, None] = {}
    for maker in makers:
        if maker is object.__init__:  # it looks as if it took anything, and takes nothing
            break
        parameters = inspect.signature(maker).parameters.values()
        by_name = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        names |= dict.fromkeys(name for name in by_name if name != "self")
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    else:
        return None
    return list(names)


def is_foreign(env_id: str) -> bool:
    """Whether an id names a JAX environment of a package that is adapted here."""
    return env_id.partition(":")[0] in JAX_PACKAGES and ":" in env_id


def _bring(package: str, env_id: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise RecollectError(f"{env_id} needs {package}: pip install 'recollect[tasks]'") from error


def _one_hot_view(env: gym.Env, things: Sequence[str]) -> gym.Env:
    from recollect.envs.minigrid import View, quicken

    quicken(env)
    return View(env, things)


def _flag_first_step(env: gym.Env) -> gym.Env:
    from popgym.wrappers import Antialias

    return Antialias(env.unwrapped)  # type: ignore[arg-type]


def source(env: Any) -> Source:
    """The environments behind an id, an environment or a factory."""
    if isinstance(env, str):
        return Source(env, make(env), lambda: make(env))
    if isinstance(env, (gym.Env, gym.vector.VectorEnv)):
        return Source(_name(env), env, None)
    if callable(env):
        first = env()
        if not isinstance(first, (gym.Env, gym.vector.VectorEnv)):
            raise TypeError(f"the factory {env!r} made a {type(first).__name__}, not a Gymnasium environment")
        return Source(_name(first), first, env)  # type: ignore[arg-type]
    raise TypeError(f"env={env!r} must be an id, a Gymnasium environment or a function that makes one")


def innermost(env: Any) -> Any:
    """The environment within all wrappers: where it is the same, so are the episodes."""
    return getattr(env, "unwrapped", env)


def _name(env: Any) -> str:
    return env.spec.id if getattr(env, "spec", None) is not None else type(env.unwrapped).__name__


def check(env: gym.Env, name: str) -> None:
    """Run Gymnasium's ``check_env``; what it finds is an error here, what it merely frowns upon is not."""
    from gymnasium.utils.env_checker import check_env

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            check_env(env.unwrapped, skip_render_check=True)
        except Exception as error:
            raise RecollectError(
                f"{name} does not keep to Gymnasium's rules: {type(error).__name__}: {error}; "
                "check=False trains on it all the same"
            ) from error


def listing() -> list[tuple[str, str]]:
    """Every environment that can be named here: id and the package it comes from."""
    register()
    for package in sorted(set(BRINGS.values())):
        try:
            _bring(package, package)
        except RecollectError:
            continue
    found = [(env_id, str(spec.entry_point).split(".")[0]) for env_id, spec in gym.registry.items()]
    return sorted(found) + _of_bsuite() + _of_jax_packages()


def _of_bsuite() -> list[tuple[str, str]]:
    try:
        from bsuite import sweep
    except ImportError:
        return []
    return [(f"bsuite/{name}", "bsuite") for name in sweep.SWEEP]


def _of_jax_packages() -> list[tuple[str, str]]:
    from recollect.envs import adapters

    found = []
    for package in JAX_PACKAGES:
        with warnings.catch_warnings(), contextlib.suppress(RecollectError):
            warnings.simplefilter("ignore")
            found += [(env_id, package) for env_id in adapters.ids(package)]
    return found
