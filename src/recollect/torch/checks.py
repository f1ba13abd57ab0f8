"""What the modules refuse, and how they say so: every message names what was expected and what came."""

import math
from typing import Any

import torch
from torch import Tensor, nn


def tensor(name: str, value: Any, shape: tuple[int, ...], like: Tensor, *, of: str, dtype: Any = None) -> None:
    """Refuse what is not a tensor of this shape, of the dtype and on the device of ``like``.

    Args:
        name: what it is called.
        value: what came.
        shape: what it must have.
        like: a tensor of the module's.
        of: what ``like`` belongs to, for the message.
        dtype: another than that of ``like``; "any" for whichever.
    """
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a tensor, got a {type(value).__name__}")
    if tuple(value.shape) != shape:
        raise ValueError(f"{name} must be {list(shape)}, got {list(value.shape)}")
    expected = like.dtype if dtype is None else dtype
    if expected not in ("any", value.dtype):
        why = "" if dtype is not None else f" as {of} is"
        raise TypeError(f"{name} must be {expected}{why}, got {value.dtype}")
    if value.device != like.device:
        raise ValueError(f"{name} is on {value.device} but {of} on {like.device}: move one with .to(...)")


def rows(name: str, value: Any, features: int, like: Tensor, *, of: str) -> int:
    """How many rows a tensor [batch, features] has; what is none is refused."""
    if isinstance(value, Tensor) and (value.ndim != 2 or value.shape[1] != features):
        raise ValueError(f"{name} must be [batch, {features}], got {list(value.shape)}")
    batch = value.shape[0] if isinstance(value, Tensor) else 0
    tensor(name, value, (batch, features), like, of=of)
    return batch


def finite(name: str, value: Tensor) -> None:
    """Refuse NaN and infinity, by row; not where code is compiled, which cannot raise: there, whoever calls must."""
    if torch.compiler.is_compiling() or bool(value.isfinite().all()):
        return
    where = (~value.isfinite()).nonzero().flatten().tolist()
    raise ValueError(f"{name} must be finite, but is not in rows {where[:10]}: no step was taken from it")


def count(name: str, value: Any) -> None:
    """Refuse what is not a number of things."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name}={value!r} must be an integer of at least 1")


def number(name: str, value: Any, low: float, high: float, *, open_low: bool = False, hint: str = "") -> None:
    """Refuse what is not a number between these."""
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high
    if not fits or (open_low and value == low):
        least = f"above {low:g}" if open_low else f"at least {low:g}" if low > -1e300 else ""
        most = "" if high == math.inf else "finite" if high >= 1e300 else f"at most {high:g}"
        raise ValueError(f"{name}={value!r} must be a number, {' and '.join(filter(None, (most, least)))}{hint}")


def module(name: str, value: Any, dtype: torch.dtype) -> None:
    """Refuse a network that is none, or whose parameters are of another dtype."""
    if not isinstance(value, nn.Module):
        raise TypeError(f"{name} must be an nn.Module, got a {type(value).__name__}")
    other = {p.dtype for p in value.parameters() if p.is_floating_point()} - {dtype}
    if other:
        raise TypeError(f"{name} has parameters of {', '.join(map(str, other))}, the memory is made with dtype={dtype}")
