"""JAX environments of other libraries, and all JAX environments by name.

`adapt` wraps an environment of gymnax or xminigrid so that it keeps to `recollect.envs.base.Environment`; `named` makes
one from the name that the command line takes. Both packages come with the extra ``jax-envs``.
"""

import dataclasses
import functools
import importlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from recollect.envs.base import Environment
from recollect.envs.making import JAX_PACKAGES, is_foreign
from recollect.errors import RecollectError


@dataclasses.dataclass(frozen=True, eq=False)
class Adapted:
    """An environment of another library with its parameters; equal to another one that was made of the same."""

    original: Any
    params: Any

    @functools.cached_property
    def identity(self) -> Any:
        """What it is made of, as numbers and names."""
        return type(self), _content(self.original, vars(self.original)), _content(self.params)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Adapted) and self.identity == other.identity

    @functools.cached_property
    def _hash(self) -> int:
        return hash(self.identity)

    def __hash__(self) -> int:
        return self._hash


def _content(value: Any, fields: Mapping[str, Any] | None = None) -> Any:
    """A value as something that can be hashed and compared by what is in it; an object unknown here is itself."""
    if fields is None and dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if fields is not None:
        return type(value), tuple((name, _content(part)) for name, part in sorted(fields.items()))
    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        array = np.asarray(value)
        return array.shape, str(array.dtype), array.tobytes()
    if isinstance(value, (tuple, list)):
        return type(value), tuple(map(_content, value))
    if isinstance(value, Mapping):
        return dict, tuple((str(key), _content(part)) for key, part in value.items())
    if value is None or isinstance(value, (bool, int, float, str)):
        return type(value), value
    return type(value), id(value)


def as_written() -> Any:
    """Under which other libraries' code is called: it mixes types, which a program of one's own may have forbidden."""
    return jax.numpy_dtype_promotion("standard")


def settled(tree: Any) -> Any:
    """A state whose leaves are arrays of a type that does not depend on what it is combined with."""
    return jax.tree.map(lambda x: x if isinstance(x, jax.Array) and not x.weak_type else _strong(x), tree)


def _strong(x: Any) -> jax.Array:
    return jax.lax.convert_element_type(x, jnp.result_type(x))


def adapt(env: Any, params: Any = None) -> Environment[Any]:
    """An environment of gymnax (1.0 or later) or xminigrid as one that ``train`` takes.

    Observations become one float32 vector, as a Gymnasium environment's do: floats flattened, categories one-hot, boxes
    of whole numbers scaled to [0, 1]; xminigrid's tiles and colours are one-hot. Episodes are not restarted by the
    environment, and ``terminated`` and ``truncated`` stay apart.

    Args:
        env: the environment, as ``gymnax.make`` or ``xminigrid.make`` returns it.
        params: its parameters, the second thing they return; the default ones if None.
    """
    packages = {cls.__module__.split(".")[0] for cls in type(env).__mro__}
    if "gymnax" in packages:
        from recollect.envs.gymnax import GymnaxEnvironment, check

        check(env)
        return GymnaxEnvironment(env, env.default_params if params is None else params)
    if "xminigrid" in packages:
        from recollect.envs.xminigrid import XMiniGridEnvironment

        return XMiniGridEnvironment(env, env.default_params() if params is None else params)
    raise TypeError(f"env={env!r} is an environment of neither {' nor '.join(JAX_PACKAGES)}; see recollect.envs.base")


def _bring(package: str, name: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise RecollectError(f"{name} needs {package}: pip install 'recollect[jax-envs]' ({error})") from error


def ids(package: str) -> list[str]:
    """The names of a package's environments."""
    module = _bring(package, package)
    found = module.registered_envs if package == "gymnax" else module.registered_environments()
    return [f"{package}:{name}" for name in found]


def named(name: str, **options: Any) -> Environment[Any]:
    """The JAX environment of a name: gymnax:ID, xminigrid:ID, MODULE:CLASS, or this library's own by Gymnasium's id.

    >>> named("recollect/TMaze-v0", length=3)
    TMaze(length=3, passive=True, oracle=False)

    Args:
        name: PACKAGE:ID as ``recollect envs`` lists them, or a class of one's own.
        options: of the environment's parameters, or of what makes it.
    """
    try:
        if is_foreign(name):
            return _adapted(name.partition(":")[0], name, options)
        if name in OWN:
            return _attribute(*OWN[name])(**options)
        module, colon, attribute = name.partition(":")
        if not colon:
            raise RecollectError(f"{name!r} is no environment in JAX: {', '.join(OWN)}, {_FOREIGN} or MODULE:CLASS")
        return _attribute(module, attribute)(**options)
    except (TypeError, ValueError, AttributeError, ImportError) as error:
        raise RecollectError(f"cannot make {name!r}: {error}") from error


OWN = {
    "recollect/SecretInformant-v0": ("recollect.envs.secret_informant", "SecretInformant"),
    "recollect/TMaze-v0": ("recollect.envs.t_maze", "TMaze"),
}
_FOREIGN = ", ".join(f"{package}:ID" for package in JAX_PACKAGES)


def _attribute(module: str, attribute: str) -> Any:
    return getattr(importlib.import_module(module), attribute)


def _adapted(package: str, name: str, options: dict[str, Any]) -> Environment[Any]:
    module = _bring(package, name)
    if name not in ids(package):
        raise RecollectError(f"{package} has no environment {name!r}; `recollect envs {package}:` lists what there is")
    env_id = name.partition(":")[2]
    if package == "xminigrid":
        return adapt(*module.make(env_id, **options))
    _, params = module.make(env_id)
    of_params = {field.name for field in dataclasses.fields(params)} & set(options)
    env, params = module.make(env_id, **{k: v for k, v in options.items() if k not in of_params})
    return adapt(env, params.replace(**{k: options[k] for k in of_params}))
