"""A trained agent as an ONNX file: one step, with the memory's state among its inputs and outputs.

Inputs: ``observation`` [batch, features], ``done`` [batch] bool (true where an episode begins: that memory is emptied),
``uniforms`` [batch, draws] numbers in [0, 1), and the memory's tensors by the names of `State`. Outputs: ``action``,
``logits``, ``value``, ``recalled``, and the memory's tensors with ``next_`` before their names, to be given to the next
step. The first step may be given zeros for them, with ``done`` true.
"""

import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from recollect.torch.kernel import State
from recollect.torch.policy import EpisodicPolicy

INPUTS = ("observation", "done", "uniforms", *State._fields)
OUTPUTS = ("action", "logits", "value", "recalled", *(f"next_{name}" for name in State._fields))


class _Flat(nn.Module):
    """The step with tensors alone for arguments and results."""

    def __init__(self, policy: EpisodicPolicy):
        super().__init__()
        self.policy = policy

    def forward(self, observation: Tensor, done: Tensor, uniforms: Tensor, *memory: Tensor) -> tuple[Tensor, ...]:
        step = self.policy(observation, State(*memory), done, uniforms=uniforms)
        return (step.action, step.logits, step.value, step.recalled, *step.state)


def export_onnx(policy: EpisodicPolicy, path: Path | str) -> Path:
    """Write the step as an ONNX file, for any number of environments at once; returns its path."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError("ONNX files need onnx and onnxscript: pip install 'recollect[onnx]'") from error
    batch = torch.export.Dim("batch", min=1)
    per_row = tuple({0: batch} for _ in State._fields)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own, about its ways inside
        # In two steps: by itself the second falls back in silence to a file for one number of rows.
        traced = torch.export.export(
            _Flat(policy.eval()), _example(policy, 2), dynamic_shapes=({0: batch}, {0: batch}, {0: batch}, per_row)
        )
        names = {"input_names": list(INPUTS), "output_names": list(OUTPUTS)}
        program = torch.onnx.export(traced, **names, dynamo=True, verbose=False)  # type: ignore[arg-type]
    path = Path(path)
    assert program is not None
    program.save(str(path))
    return path


def _example(policy: EpisodicPolicy, batch: int) -> tuple[Tensor, ...]:
    state = policy.memory.initial_state(batch)
    done = torch.ones(batch, dtype=torch.bool)
    return torch.zeros(batch, policy.memory.features), done, torch.rand(batch, policy.draws), *state
