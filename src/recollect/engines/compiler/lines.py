"""Operations that need loops of their own: along lines of an array, at computed places, sorting."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from recollect.engines.compiler import affine
from recollect.engines.compiler.affine import Index
from recollect.engines.compiler.elements import Place
from recollect.engines.compiler.graph import Node
from recollect.engines.compiler.reductions import Reductions
from recollect.engines.compiler.values import Buffer, Value


class Lines(Reductions):
    """Operations whose results always lie in memory."""

    def concat(self, n: Node) -> None:
        """Part after part."""
        w, buffer, axis, offset = self.w, self.place_for(n), n.params, 0
        for part in n.ins:
            shift = offset

            def body(variables: list[Index], part: Node = part, shift: int = shift) -> None:
                to = [affine.add(v, affine.number(shift)) if d == axis else v for d, v in enumerate(variables)]
                w.store(buffer, affine.linear(n.shape, to), self.e.at(part, tuple(variables)))

            self.each(part.shape, body, self.plan.cost.get(part.id, 1.0) + 1)
            offset += part.shape[axis]
        self.buffers[n.id] = buffer

    @contextmanager
    def _lines_of(self, shape: Sequence[int], axis: int) -> Iterator[Callable[[Index], Place]]:
        """For each line along an axis, the places of its elements."""
        with self.nest([*shape[:axis], *shape[axis + 1 :]]) as outer:
            yield lambda k: (*outer[:axis], k, *outer[axis:])

    def cumulative(self, n: Node) -> None:
        """Sums (products, extremes) so far, one line after the other."""
        w, buffer = self.w, self.place_for(n)
        kind, axis, reverse = n.params
        wide = w.lanes > 1
        count = n.shape[axis]

        if n.size:
            with self._lines_of(n.shape, axis) as place:
                slot = self.beginning(n, wide)

                def body(variables: list[Index]) -> None:
                    k = variables[0]
                    at = place(affine.add(affine.number(count - 1), affine.scale(k, -1)) if reverse else k)
                    new = self.f.combine(kind, w.get(slot, n.dtype, wide), self.e.at(n.ins[0], at))
                    w.put(slot, new)
                    w.store(buffer, affine.linear(n.shape, at), new)

                self.loops([count], body, self.plan.cost.get(n.ins[0].id, 1.0) + 2)
        self.buffers[n.id] = buffer

    def arg(self, n: Node) -> None:
        """The place of the first largest or smallest element; of the first NaN if there is one."""
        w = self.w
        kind, axis = n.params
        x = n.ins[0]
        wide = w.lanes > 1
        buffer = self.place_for(n) if n.shape != () else None

        with self._lines_of(x.shape, axis) as place:
            best, where = w.slot(x.dtype, wide), w.slot("i", wide)
            first = self.e.at(x, place(affine.ZERO))
            w.put(best, w.widen(first) if wide else first)
            w.put(where, w.widen(w.const("i", 0)) if wide else w.const("i", 0))

            def body(variables: list[Index]) -> None:
                k = affine.add(variables[0], affine.number(1))
                old, value = w.get(best, x.dtype, wide), self.e.at(x, place(k))
                value = w.widen(value) if wide else value
                if x.dtype == "f":
                    better = w.do(f"fcmp o{'gt' if kind == 'max' else 'lt'}", value, old, kind="b")
                    nan = w.do("fcmp uno", value, value, kind="b")
                    better = w.do("or", better, w.do("and", nan, w.do("fcmp ord", old, old, kind="b")))
                else:
                    sign = "s" if x.dtype == "i" else "u"
                    better = w.do(f"icmp {sign}{'gt' if kind == 'max' else 'lt'}", value, old, kind="b")
                w.put(best, w.choose(better, value, old))
                w.put(where, w.choose(better, w.index_value(k), w.get(where, "i", wide)))

            if x.shape[axis] > 1:
                self.loops([x.shape[axis] - 1], body, self.plan.cost.get(x.id, 1.0) + 4)
            result = w.get(where, "i", wide)._replace(kind=n.dtype)
            if buffer is None:
                self.scalars[n.id] = result
            else:
                spot = place(affine.ZERO)
                w.store(buffer, affine.linear(n.shape, spot[:axis] + spot[axis + 1 :]), result)
        if buffer is not None:
            self.buffers[n.id] = buffer

    def _copy_of(self, n: Node) -> Buffer:
        """A copy of what ``n`` changes, or the thing itself where it is changed in place."""
        if n.op.endswith("_in_place"):
            return self.buffers[n.ins[0].id]
        buffer = self.place_for(n)
        self.fill(buffer, n.ins[0])
        return buffer

    def _going(self, n: Node, where: Value | None) -> Value | None:
        """Lanes that have left a loop write nothing in place."""
        if self.going is None or not n.op.endswith("_in_place"):
            return where
        return self.going if where is None else self.w.do("and", where, self.going)

    def scatter_many(self, n: Node) -> None:
        """A copy, and then each update at its place in order; updates outside are dropped."""
        w = self.w
        kind, window, inserted, axes, clip, together, index_batch = n.params
        _, indices, updates = n.ins
        buffer = self._copy_of(n)
        batch = [d for d in range(len(updates.shape)) if d not in window]

        if updates.size:
            with self.nest(updates.shape) as done:
                where = [done[d] for d in batch]
                moved = iter(window)
                places, inside, shift = [], None, None
                for d in range(len(n.shape)):
                    if d in together:
                        places.append(where[index_batch[together.index(d)]])
                        continue
                    own = None if d in inserted else next(moved)
                    places.append(affine.ZERO if own is None else done[own])
                    if d not in axes:
                        continue
                    which = (*where, affine.number(axes.index(d)))
                    room = n.shape[d] - (1 if own is None else updates.shape[own])
                    raw = self.e.at(indices, which)
                    if not clip:
                        fits = w.do("icmp ule", raw, w.const(raw.kind, room), kind="b")
                        inside = fits if inside is None else w.do("and", inside, fits)
                    start = self.e.clamp(raw, room)
                    stride = math.prod(n.shape[d + 1 :])
                    part = w.do("mul", start, w.const("i", stride))
                    shift = part if shift is None else w.do("add", shift, part)
                at = w.index_value(affine.linear(n.shape, places))
                at = at if shift is None else w.do("add", shift, at)
                value = self.e.at(updates, tuple(done))
                if kind != "set":
                    how: str = {"add": "sum", "mul": "prod"}.get(kind) or kind
                    value = self.f.combine(how, w.gather(buffer, at), value)
                w.scatter(buffer, at, value, self._going(n, inside))
        self.buffers[n.id] = buffer

    def update_many(self, n: Node) -> None:
        """A copy, and the window over it."""
        w, buffer = self.w, self._copy_of(n)
        _, update, *starts = n.ins
        shift = None
        for d, s in enumerate(starts):
            room = n.shape[d] - update.shape[d]
            if room:
                part = w.do("mul", self.e.start(s, (), room), w.const("i", math.prod(n.shape[d + 1 :])))
                shift = part if shift is None else w.do("add", shift, part)
        shift = shift or w.const("i", 0)

        def body(variables: list[Index]) -> None:
            at = w.do("add", shift, w.index_value(affine.linear(n.shape, variables)))
            w.scatter(buffer, at, self.e.at(update, tuple(variables)), self._going(n, None))

        self.loops(update.shape, body, 4)
        self.buffers[n.id] = buffer

    def sort(self, n: Node) -> None:
        """By exchanging neighbours: stable, the same steps for every lane, and quick for the few elements of a step."""
        w = self.w
        axis, keys = n.params
        buffers = []
        for i in n.ins:
            buffers.append(self.allocate(i.size, i.dtype))
            self.fill(buffers[-1], i)
        shape = n.ins[0].shape
        count = shape[axis]

        def after(a: Value, b: Value) -> tuple[Value, Value]:
            """Whether a comes after b, and whether neither does."""
            if a.kind != "f":
                sign = "s" if a.kind == "i" else "u"
                return w.do(f"icmp {sign}gt", a, b, kind="b"), w.do("icmp eq", a, b, kind="b")
            nan_a, nan_b = (w.do("fcmp uno", x, x, kind="b") for x in (a, b))
            later = w.do(
                "or", w.do("fcmp ogt", a, b, kind="b"), w.do("and", nan_a, w.do("xor", nan_b, w.const("b", True)))
            )
            return later, w.do("or", w.do("fcmp oeq", a, b, kind="b"), w.do("and", nan_a, nan_b))

        if count > 1:
            with self._lines_of(shape, axis) as place, w.loop(count), w.loop(count - 1) as j:
                at = [affine.linear(shape, place(affine.add(j, affine.number(k)))) for k in (0, 1)]
                pairs = [tuple(w.load(b, p) for p in at) for b in buffers]
                swap: Value | None = None
                for a, b in reversed(pairs[:keys]):
                    later, same = after(a, b)
                    swap = later if swap is None else w.do("or", later, w.do("and", same, swap))
                assert swap is not None
                for buffer, (a, b) in zip(buffers, pairs, strict=True):
                    w.store(buffer, at[0], w.choose(swap, b, a))
                    w.store(buffer, at[1], w.choose(swap, a, b))
        self.several[n.id] = buffers

    def part(self, n: Node) -> None:
        """One of several results."""
        buffer = self.several[n.ins[0].id][n.params]
        if n.id in self.targets:
            whole = self.targets[n.id]
            if whole != buffer:
                self._copy(buffer, whole, n.size)
            buffer = whole
        if n.shape == ():
            self.scalars[n.id] = self.w.load(buffer, affine.ZERO)
        else:
            self.buffers[n.id] = buffer
