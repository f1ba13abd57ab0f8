"""The episodic memory for PyTorch, true to the definition in JAX; see docs/torch.md.

Imported only by name: nothing else in recollect needs PyTorch. Start reading at ``memory``; ``kernel`` is the reservoir
on batches of tensors, ``weights`` carries parameters between JAX and PyTorch, ``policy`` is a trained agent as one step
function (``general`` of the default agent, ``episodic`` of the paper's), ``export`` writes that as ONNX. May import
``reservoir``, ``agents`` and ``store``.
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        "recollect.torch needs PyTorch: pip install 'recollect[torch]'; for the small CPU build, "
        "pip install torch==2.13.0 before it"
    ) from error

from recollect.torch.episodic import EpisodicPolicy
from recollect.torch.export import export_onnx
from recollect.torch.general import GeneralPolicy, GeneralState
from recollect.torch.kernel import State
from recollect.torch.memory import Info, ReservoirMemory, Scores
from recollect.torch.policy import Policy
from recollect.torch.weights import from_torch, load_weights, save_weights, to_torch

__all__ = [
    "EpisodicPolicy",
    "GeneralPolicy",
    "GeneralState",
    "Info",
    "Policy",
    "ReservoirMemory",
    "Scores",
    "State",
    "export_onnx",
    "from_torch",
    "load_weights",
    "save_weights",
    "to_torch",
]
