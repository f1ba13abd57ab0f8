"""Loops of the program itself: scans, and whiles that continue as long as some lane does."""

from collections.abc import Sequence
from typing import Any

from recollect.engines.compiler import affine
from recollect.engines.compiler.affine import Index
from recollect.engines.compiler.graph import Node
from recollect.engines.compiler.lines import Lines
from recollect.engines.compiler.plan import contract, one_for_all, replaced_in_place, written_in_place
from recollect.engines.compiler.primitives import Subgraph
from recollect.engines.compiler.values import Buffer


class Control(Lines):
    """Loops whose carry lies in memory."""

    def in_memory(self, n: Node) -> Buffer:
        """A node's memory; a scalar or a view gets some."""
        inner = self.e.unreshaped(n)
        if n.shape != () and (inner.op == "const" or inner.id in self.buffers):
            return self.e.address(inner)
        buffer = self.allocate(n.size, n.dtype, n.shape == () and not self.e.at(n, ()).wide)
        self.fill(buffer, n)
        return buffer

    def program_loop(self, n: Node) -> None:
        """A scan or a while, its carry in memory."""
        if n.params[0] == "scan":
            self.scan(n)
        else:
            self.while_loop(n)

    def _inside(
        self, body: Subgraph, outs: Sequence[Node], memory: Sequence[Buffer], to: Sequence[Buffer | None]
    ) -> None:
        """One turn of a loop's body from ``memory`` to ``to``."""
        from recollect.engines.compiler.emission import emit_graph

        for leaf, buffer in zip(body.leaves, memory, strict=True):
            self.buffers[leaf.id] = buffer
        targets, plan = self.targets, self.plan
        whole: Any = self
        emit_graph(whole, body.graph, body.leaves, outs, list(to))
        self.targets, self.plan = targets, plan

    def _results(self, n: Node) -> dict[int, Buffer]:
        """Where results of a loop are wanted in the end, by their number: a carry can lie there from the start."""
        return {p.params: self.targets[p.id] for p in self.plan.users[n.id] if p.op == "part" and p.id in self.targets}

    def _one_end(self, n: Node, fixed: Sequence[Buffer]) -> list[bool] | None:
        """Which carries of a while are one for all lanes, if all lanes leave it together; else None."""
        _, test, body, nc, nb = n.params
        shared = [i.shape == () and i.dtype != "f" and not self.e.at(i, ()).wide for i in n.ins[nc + nb :]]

        def leaves(of: Subgraph, given: Sequence[Buffer]) -> list[Node]:
            return [leaf for leaf, one in zip(of.leaves, [*(not b.lanes for b in given), *shared], strict=True) if one]

        while True:
            found = one_for_all(body.outs, leaves(body, fixed[nc:]))
            still = [a and b for a, b in zip(shared, found, strict=True)]
            if still == shared:
                break
            shared = still
        return shared if all(one_for_all(test.outs, leaves(test, fixed[:nc]))) else None

    def _carried(
        self, body: Subgraph, first: int, carry: Sequence[Buffer], masked: bool
    ) -> tuple[list[Node], list, list]:
        """The body's outputs, where each new carry goes (None: it stays), and which must be copied back."""
        leaves = body.leaves[first : first + len(carry)]
        outs = written_in_place(body.graph, leaves, contract(body.graph, body.outs))
        over = [False] * len(carry) if masked else replaced_in_place(leaves, outs)
        to: list[Buffer | None] = []
        back: list[tuple[Buffer, Buffer, int]] = []
        for leaf, o, buffer, directly in zip(leaves, outs, carry, over, strict=False):
            if o is leaf:
                to.append(None)
            elif directly or o.op.endswith("_in_place"):
                to.append(buffer)
            else:
                fresh = self.allocate(o.size, o.dtype, shared=not buffer.lanes)
                to.append(fresh)
                back.append((fresh, buffer, o.size))
        return outs, to, back

    def scan(self, n: Node) -> None:
        """A loop of known length."""
        w = self.w
        _, body, consts, carries, length, reverse = n.params
        fixed = [self.in_memory(i) for i in n.ins[:consts]]
        carry = []
        for i in n.ins[consts : consts + carries]:
            carry.append(self.allocate(i.size, i.dtype))
            self.fill(carry[-1], i)
        rows = [self.in_memory(i) for i in n.ins[consts + carries :]]
        stacked = [self.allocate(o.size * length, o.dtype) for o in body.outs[carries:]]
        outs, to, back = self._carried(body, consts, carry, False)
        with w.loop(length) as t:
            w.scope.fence = True
            k = affine.add(affine.number(length - 1), affine.scale(t, -1)) if reverse else t
            row = lambda b, size: b._replace(pointer=w.pointer(b, affine.scale(k, size)))  # noqa: E731
            xs = [row(b, leaf.size) for b, leaf in zip(rows, body.leaves[consts + carries :], strict=True)]
            ys = [row(b, o.size) for b, o in zip(stacked, outs[carries:], strict=True)]
            self._inside(body, outs, [*fixed, *carry, *xs], [*to, *ys])
            for new, old, size in back:
                self._copy(new, old, size)
        self.several[n.id] = [*carry, *stacked]

    def while_loop(self, n: Node) -> None:
        """A loop that continues while some lane has not finished; lanes that have keep what they have."""
        w = self.w
        _, test, body, nc, nb = n.params
        fixed = [self.in_memory(i) for i in n.ins[: nc + nb]]
        together = self._one_end(n, fixed)
        masked = not w.alone and together is None
        places = self._results(n)
        carry = []
        for k, i in enumerate(n.ins[nc + nb :]):
            carry.append(places.get(k) or self.allocate(i.size, i.dtype, together is not None and together[k]))
            self.fill(carry[-1], i)
        outs, to, back = self._carried(body, nb, carry, masked)
        going = self.allocate(1, "b", shared=not masked)
        k = w.serial()
        w.line(f"br label %w{k}")
        w.scope.lines.append(f"w{k}:")
        with w.branch("true"):  # a scope of its own; its code is inside the loop
            self._inside(test, contract(test.graph, test.outs), [*fixed[:nc], *carry], [going])
            on = w.load(going, affine.ZERO)
            w.line(f"br i1 {w.any(on)}, label %y{k}, label %z{k}")
            w.scope.lines.append(f"y{k}:")
            around, self.going = self.going, on if masked else None
            self._inside(body, outs, [*fixed[nc:], *carry], to)
            self.going = around
            for new, old, size in back:
                if not masked:
                    self._copy(new, old, size)
                    continue

                def keep(v: list[Index], new: Buffer = new, old: Buffer = old) -> None:
                    value = w.choose(w.load(going, affine.ZERO), w.load(new, v[0]), w.load(old, v[0]))
                    w.store(old, v[0], value)

                self.loops([size], keep, 4)
            w.line(f"br label %w{k}")
            w.scope.lines.append(f"z{k}:")
        self.several[n.id] = carry
