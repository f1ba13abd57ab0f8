"""One element of a node at a place, in instructions: views turn into other places, the rest into operations."""

import itertools
import math
from collections.abc import Callable, Sequence

from recollect.engines.compiler import affine
from recollect.engines.compiler.affine import Index
from recollect.engines.compiler.functions import Functions
from recollect.engines.compiler.graph import VIEWS, Node
from recollect.engines.compiler.plan import same_places
from recollect.engines.compiler.values import Buffer, Value
from recollect.engines.compiler.writer import Writer

Place = tuple[Index, ...]

CHOSEN = 8
"""In lanes, a row among fewer than so many is picked by choices, not by addresses."""


def source(n: Node, at: Place) -> Place:
    """Where a view's element is in what it is a view of."""
    inner = n.ins[0]
    if n.op == "bcast":
        return tuple(affine.ZERO if inner.shape[k] == 1 else at[d] for k, d in enumerate(n.params))
    if n.op == "transpose":
        places = [affine.ZERO] * len(at)
        for k, d in enumerate(n.params):
            places[d] = at[k]
        return tuple(places)
    if n.op == "slice":
        starts, steps = n.params
        return tuple(
            affine.add(affine.scale(i, s), affine.number(b)) for i, b, s in zip(at, starts, steps, strict=True)
        )
    if n.op == "rev":
        return tuple(
            affine.add(affine.number(n.shape[d] - 1), affine.scale(i, -1)) if d in n.params else i
            for d, i in enumerate(at)
        )
    moved = iter(i for i, s in zip(at, n.shape, strict=True) if s > 1)  # a reshape by axes of length 1
    return tuple(next(moved) if s > 1 else affine.ZERO for s in inner.shape)


class Elements:
    """Elements of the nodes of one plan; ``buffers`` says where stored nodes and leaves are."""

    def __init__(self, writer: Writer, buffers: dict[int, Buffer], scalars: dict[int, Value]):
        self.w, self.f = writer, Functions(writer)
        self.buffers, self.scalars = buffers, scalars
        self.reduce_at: Callable[[Node, Place], Value]

    def at(self, n: Node, at: Place) -> Value:
        """The element of a node at a place, computed where the place is first known."""
        if n.op == "const" and (n.size == 1 or not any(i[1] for i in at)):
            return self.w.const(n.dtype, n.value.reshape(-1)[0] if n.size == 1 else n.value[tuple(i[0] for i in at)])
        if n.shape == () and n.id in self.scalars:
            return self.scalars[n.id]
        w = self.w
        with w.at_depth(w.depth(*at)):
            return w.remember((n.id, at), lambda: self._fresh(n, at))

    def _fresh(self, n: Node, at: Place) -> Value:
        if n.op == "const" or n.id in self.buffers:
            return self.w.load(self.address(n), affine.linear(n.shape, at))
        return self.compute(n, at)

    def unreshaped(self, n: Node) -> Node:
        """What has the same elements in memory, if anything has."""
        while n.op == "reshape" and n.id not in self.buffers:
            n = n.ins[0]
        return n

    def address(self, n: Node) -> Buffer:
        """The memory of a node, seen through reshapes."""
        n = self.unreshaped(n)
        return self.w.table(n) if n.op == "const" else self.buffers[n.id]

    def compute(self, n: Node, at: Place) -> Value:
        """An element from its operands, whether or not it is in memory."""
        op = n.op
        if op == "reshape" and not same_places(n):
            if n.size == 1:
                return self.at(n.ins[0], tuple(affine.ZERO for _ in n.ins[0].shape))
            return self.w.load(self.address(n.ins[0]), affine.linear(n.shape, at))
        if op in VIEWS:
            return self.at(n.ins[0], source(n, at))
        if op == "copy":
            return self.at(n.ins[0], at)
        if op == "reduce":
            return self.reduce_at(n, at)
        if op == "largest":
            return self.w.largest(self.at(n.ins[0], at))
        if op == "dynamic_slice":
            return self._dynamic_slice(n, at)
        if op == "gather":
            return self._gather(n, at)
        if op == "dynamic_update_slice":
            return self._update(n, at)
        if op == "scatter":
            return self._scatter(n, at)
        return self.f.apply(n, [self.at(i, at) for i in n.ins])

    # -- computed places

    def clamp(self, start: Value, room: int) -> Value:
        """A start moved so that what begins there fits."""
        w = self.w
        low = start if start.kind == "u" else w.call("smax", start, w.const("i", 0))
        return w.call("umin", low._replace(kind="u"), w.const("u", room))._replace(kind="i")

    def start(self, n: Node, at: Place, room: int) -> Value:
        """A scalar of a node as a clamped start, once."""
        w = self.w
        with w.at_depth(w.depth(*at)):
            return w.remember(("clamp", n.id, at, room), lambda: self.clamp(self.at(n, at), room))

    def take(self, n: Node, places: Sequence[Index], starts: dict[int, tuple[Value, int]]) -> Value:
        """The element of ``n`` at ``places``, moved along some axes by starts below or at the given rooms."""
        w = self.w
        if not starts:
            return self.at(n, tuple(places))
        if w.lanes > 1 and len(starts) == 1 and n.op != "const":
            ((axis, (start, room)),) = starts.items()
            if start.wide and room < CHOSEN:
                moved = lambda k: tuple(  # noqa: E731
                    affine.add(p, affine.number(k)) if d == axis else p for d, p in enumerate(places)
                )
                result = self.at(n, moved(0))
                for k in range(1, room + 1):
                    hit = w.remember(
                        ("is", start.text, k), lambda k=k: w.do("icmp eq", start, w.const("i", k), kind="b")
                    )
                    result = w.choose(hit, self.at(n, moved(k)), result)
                return result
        buffer = self.address(n)
        shift: Value | None = None
        for d, (start, _) in starts.items():
            stride = math.prod(n.shape[d + 1 :])
            part = start if stride == 1 else w.do("mul", start, w.const("i", stride))
            shift = part if shift is None else w.do("add", shift, part)
        assert shift is not None
        place = affine.linear(n.shape, places)
        if not shift.wide:
            return w.load(w.moved(buffer, shift), place)
        return w.gather(buffer, w.do("add", shift, w.index_value(place)))

    def _dynamic_slice(self, n: Node, at: Place) -> Value:
        operand, starts = n.ins[0], {}
        for d, s in enumerate(n.ins[1:]):
            room = operand.shape[d] - n.shape[d]
            if room:
                starts[d] = (self.start(s, (), room), room)
        return self.take(operand, at, starts)

    def _gather(self, n: Node, at: Place) -> Value:
        offsets, collapsed, axes, batch, index_batch, sizes, fill, fill_value = n.params
        operand, indices = n.ins
        where = [at[d] for d in range(len(n.shape)) if d not in offsets]
        moved = iter(at[d] for d in offsets)
        w = self.w
        places, starts, inside = [], {}, None
        for d in range(len(operand.shape)):
            if d in batch:
                places.append(where[index_batch[batch.index(d)]])
                continue
            places.append(affine.ZERO if d in collapsed else next(moved))
            if d not in axes:
                continue
            room = operand.shape[d] - sizes[d]
            which = (*where, affine.number(axes.index(d)))
            if fill:
                raw = self.at(indices, which)
                fits = w.do("icmp ule", raw, w.const(raw.kind, room), kind="b")
                inside = fits if inside is None else w.do("and", inside, fits)
            if room:
                starts[d] = (self.start(indices, which, room), room)
        value = self.take(operand, places, starts)
        if inside is not None:
            missing = {"f": math.nan, "i": -(2**31), "u": 2**32 - 1, "b": True}[n.dtype]
            value = w.choose(inside, value, w.const(n.dtype, missing if fill_value is None else fill_value))
        return value

    def _hit(self, start: Value, place: Index, known: Value | None) -> Value:
        w = self.w
        same = w.do("icmp eq", start, w.index_value(place, start.kind), kind="b")
        return same if known is None else w.do("and", known, same)

    def _update(self, n: Node, at: Place) -> Value:
        """Windows of one element along the axes in which they move."""
        operand, update = n.ins[:2]
        hit, inner = None, []
        for d, s in enumerate(n.ins[2:]):
            room = n.shape[d] - update.shape[d]
            if room:
                hit = self._hit(self.start(s, (), room), at[d], hit)
            inner.append(affine.ZERO if room else at[d])
        value = self.at(update, tuple(inner))
        return value if hit is None else self.w.choose(hit, value, self.at(operand, at))

    def _scatter(self, n: Node, at: Place) -> Value:
        """A few windows of one element along the axes in which they move; those outside change nothing."""
        kind, window, inserted, axes, clip, batch, index_batch = n.params
        operand, indices, updates = n.ins
        result = self.at(operand, at)
        lengths = [1 if d in index_batch else s for d, s in enumerate(indices.shape[:-1])]
        scattered = [d for d in range(len(updates.shape)) if d not in window]
        for row in itertools.product(*map(range, lengths)):
            where = [affine.number(k) for k in row]
            for d, k in zip(batch, index_batch, strict=True):
                where[k] = at[d]
            inner: list[Index] = [affine.ZERO] * len(updates.shape)
            for d, place in zip(scattered, where, strict=True):
                inner[d] = place
            moved, hit = iter(window), None
            for d in range(len(n.shape)):
                if d in batch:
                    continue
                own = None if d in inserted else next(moved)
                if d in axes:
                    which = (*where, affine.number(axes.index(d)))
                    room = n.shape[d] - (1 if own is None else updates.shape[own])
                    if room or own is None:
                        start = self.start(indices, which, room) if clip else self.at(indices, which)
                        hit = self._hit(start, at[d], hit)
                    elif own is not None:  # a window as long as the axis starts at 0 or is dropped
                        if not clip:
                            hit = self._hit(self.at(indices, which), affine.ZERO, hit)
                        inner[own] = at[d]
                elif own is not None:
                    inner[own] = at[d]
            value = self.at(updates, tuple(inner))
            if kind == "add":
                value = self.f.combine("sum", result, value)
            result = value if hit is None else self.w.choose(hit, value, result)
        return result
