"""A trained agent as an ONNX file: one step, with all that it remembers among its inputs and outputs.

Inputs: ``observation`` [batch, features], ``done`` [batch] bool (true where an episode begins: what is remembered there
is forgotten), ``uniforms`` [batch, draws] numbers in [0, 1), for an agent whose critic sees it the last ``reward``
[batch] (NaN where it is not known), and the tensors of the policy's state by the names of its ``state_dict``. Outputs:
``action``, ``logits``, ``value``, ``recalled``, and the state's tensors with ``next_`` before their names, to be given
to the next step. The first step may be given zeros for them, with ``done`` true.
"""

import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from recollect.torch.policy import Policy


class _Flat(nn.Module):
    """The step with tensors alone for arguments and results."""

    def __init__(self, policy: Policy):
        super().__init__()
        state = policy.initial_state(1)
        self.policy, self.names, self.kind = policy, tuple(state.state_dict()), type(state)
        self.given = ("reward",) if policy.sees_rewards else ()

    def forward(self, observation: Tensor, done: Tensor, uniforms: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        named = dict(zip((*self.given, *self.names), rest, strict=True))
        given = {name: named.pop(name) for name in self.given}
        step = self.policy(observation, self.kind.from_state_dict(named), done, uniforms=uniforms, **given)
        return (step.action, step.logits, step.value, step.recalled, *step.state.state_dict().values())


def export_onnx(policy: Policy, path: Path | str) -> Path:
    """Write the step as an ONNX file, for any number of environments at once; returns its path."""
    if not isinstance(policy, Policy):
        raise TypeError(
            f"export_onnx takes what Policy.from_learner or Policy.from_agent makes, got a {type(policy).__name__}"
        )
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError("ONNX files need onnx and onnxscript: pip install 'recollect[onnx]'") from error
    flat, batch = _Flat(policy.eval()), torch.export.Dim("batch", min=1)
    rest = (*(torch.zeros(2) for _ in flat.given), *policy.initial_state(2).state_dict().values())
    example = (torch.zeros(2, policy.features), torch.ones(2, dtype=torch.bool), torch.rand(2, policy.draws), *rest)
    example = tuple(tensor.to(policy.mean.device) for tensor in example)
    names = {
        "input_names": ["observation", "done", "uniforms", *flat.given, *flat.names],
        "output_names": ["action", "logits", "value", "recalled", *(f"next_{name}" for name in flat.names)],
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own, about its ways inside
        # In two steps: by itself the second falls back in silence to a file for one number of rows.
        rows = {0: batch}
        traced = torch.export.export(flat, example, dynamic_shapes=(rows, rows, rows, tuple(rows for _ in rest)))
        program = torch.onnx.export(traced, **names, dynamo=True, verbose=False)  # type: ignore[arg-type]
    path = Path(path)
    assert program is not None
    program.save(str(path))
    return path
