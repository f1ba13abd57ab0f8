"""Parameters from JAX to PyTorch and back, and as safetensors files.

A parameter's name is its path in the agent's parameters, as in ``policy.0.weight``.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import Tensor

from recollect.errors import FileError
from recollect.store import files, trees

LARGEST_FILE = 2**34
"""Most bytes of a weights file that are read at all."""

_SUM = "recollect.sha256"


def to_torch(agent_state: Any) -> dict[str, Tensor]:
    """The parameters of any of recollect's agents as tensors by name.

    Those of ``GeneralActorCritic`` come with ``scales.…``, in what units it sees observations and counts returns,
    without which its parameters mean nothing, ``tried.…``, how episodes went by the way that chance was used, and
    ``reached.…``, between what returns have been.

    Args:
        agent_state: what ``agent.init`` and ``agent.step`` return, or ``learner.state()``.
    """
    return {name: torch.from_numpy(array) for name, array in trees.flatten(_learned(agent_state)).items()}


def from_torch(tensors: Mapping[str, Tensor], agent_state: Any) -> Any:
    """The agent's state with these parameters; all else in it, the memory among it, stays.

    Args:
        tensors: as ``to_torch`` or `Policy.weights` gives them; anything missing, left over, of another shape or dtype,
            or not finite is a ``FileError``.
        agent_state: a state of the agent they are for.
    """
    arrays = {name: tensor.numpy() for name, tensor in _on_host(tensors).items()}
    learned = trees.restore(arrays, _learned(agent_state))
    bad = [name for name, array in arrays.items() if not np.isfinite(array).all()]
    if bad:
        raise FileError(f"the parameters {', '.join(bad)} are not finite")
    learned = jax.tree.map(jnp.array, learned)
    if not (beside := _beside(agent_state)):
        return agent_state._replace(params=learned)
    beside = {name: learned.pop(name) for name in beside}
    return agent_state._replace(params=type(agent_state.params)(**learned), **beside)


def _on_host(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    for name, value in tensors.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} must be a tensor, got a {type(value).__name__}")
    return {name: tensor.detach().cpu() for name, tensor in tensors.items()}


def _beside(agent_state: Any) -> dict[str, Any]:
    """What an agent has learned beside its parameters."""
    return {name: getattr(agent_state, name) for name in ("scales", "tried", "reached") if hasattr(agent_state, name)}


def _learned(agent_state: Any) -> Any:
    """The parameters, and what has been learned beside them by its names."""
    if not hasattr(agent_state, "params"):
        kind = type(agent_state).__name__
        raise TypeError(f"agent_state must be what agent.init or learner.state() returns, got a {kind}")
    beside = _beside(agent_state)
    return {**agent_state.params._asdict(), **beside} if beside else agent_state.params


def save_weights(path: Path | str, tensors: Mapping[str, Tensor], **metadata: str) -> Path:
    """Write tensors as a safetensors file, whole or not at all, with a checksum that ``load_weights`` compares."""
    serialize = _safetensors().save
    own = {name: tensor.contiguous() for name, tensor in sorted(_on_host(tensors).items())}
    path = Path(path)
    files.replace(path, serialize(own, metadata={**metadata, _SUM: _checksum(own)}))
    return path


def load_weights(path: Path | str) -> dict[str, Tensor]:
    """The tensors of a safetensors file; a damaged one is a ``FileError``. Nothing in it is executed."""
    path = Path(path)
    content = files.read(path, LARGEST_FILE)
    safetensors = _safetensors()
    try:
        found = safetensors.load(content)
        length = int.from_bytes(content[:8], "little")
        given = json.loads(content[8 : 8 + length]).get("__metadata__", {}).get(_SUM)
    except Exception as error:
        raise FileError(f"{path} is not a safetensors file: {type(error).__name__}: {error}") from error
    if given is not None and given != _checksum(found):
        raise FileError(f"{path} is damaged: its tensors do not have the checksum it was written with")
    return found


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    found = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        found.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        found.update(tensor.numpy().tobytes())
    return found.hexdigest()


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError as error:
        raise ImportError("weights files need safetensors: pip install 'recollect[torch]'") from error
    return safetensors.torch
