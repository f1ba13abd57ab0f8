"""LLVM's language, written down: values that are wide or not, scopes that loops open, memory, elementary steps.

A value is *wide* if it differs along the vector, else a scalar. In lanes mode the vector is the runs, one per lane, and
all that comes out of a run's memory is wide. With a single run the vector is the innermost loop of a kernel, and what
does not depend on that loop is a scalar. Operations on scalars stay scalar; a scalar that meets a wide value is spread.

Each loop is a scope with lines and known values of its own. Code is put into the outermost scope in which its loop
variables exist: that is where it is computed once.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from recollect.engines.compiler import affine
from recollect.engines.compiler.affine import Index
from recollect.engines.compiler.graph import Node
from recollect.engines.compiler.values import (
    BYTES,
    SHORT,
    SMALL,
    STORED,
    TYPES,
    VECTOR,
    Buffer,
    Scope,
    Value,
    literal,
)

WRITTEN_OUT = {"lanes": (30, 4), "single": (8, 8)}
"""Of a loop's body that is written out several times rather than looped over: instructions, and turns at most."""


class Writer:
    """Writes one function; ``lanes`` runs in vector lanes, or 1."""

    def __init__(self, lanes: int):
        self.lanes = lanes
        self.alone = lanes == 1  # whether a branch or a loop is taken by one run, not by all of a vector
        self.late = False  # whether sums and tests are as threads of a GPU gain from
        self.strided = False  # whether a vector's elements may lie apart in memory at no cost
        self.least = 4  # elements from which on a vector is worth it
        self.written_out = WRITTEN_OUT["lanes" if lanes > 1 else "single"]
        self.width = lanes if lanes > 1 else VECTOR
        self.scopes: list[Scope] = [Scope(0)]
        self.allocas: list[str] = []
        self.tables: dict[Any, str] = {}
        self.declared: set[str] = set()
        self.depth_of: dict[str, int] = {}
        self.count = 0

    # -- lines

    @property
    def scope(self) -> Scope:
        """Where lines go."""
        return self.scopes[-1]

    def line(self, text: str) -> None:
        """One instruction."""
        self.scope.lines.append("  " + text)

    def serial(self) -> int:
        """A number not used before."""
        self.count += 1
        return self.count

    def new(self, text: str) -> str:
        """One instruction with a result; its name."""
        name = f"%v{self.serial()}"
        self.line(f"{name} = {text}")
        return name

    def at_depth(self, depth: int) -> Any:
        """Write into an outer scope for a while, but not out of a branch."""
        for k in range(len(self.scopes) - 1, depth, -1):
            if self.scopes[k].fence:
                depth = k
                break
        return nullcontext() if depth == len(self.scopes) - 1 else self._at(depth)

    @contextmanager
    def _at(self, depth: int) -> Iterator[None]:
        inner = self.scopes[depth + 1 :]
        del self.scopes[depth + 1 :]
        try:
            yield
        finally:
            self.scopes.extend(inner)

    def depth(self, *places: Index) -> int:
        """The outermost scope in which all these places exist."""
        return max((self.depth_of[name] for place in places for name, _ in place[1]), default=0)

    def remember(self, key: Any, make: Callable[[], Any]) -> Any:
        """What was computed before in this scope or around it, or else what ``make`` gives."""
        for scope in reversed(self.scopes):
            found = scope.known.get(key)
            if found is not None:
                return found
        made = make()
        self.scope.known[key] = made
        return made

    # -- control

    @contextmanager
    def loop(self, count: int, step: int = 1, vector: bool = False, mask: str | None = None) -> Iterator[Index]:
        """A loop over 0, step, … below ``count``; with one turn it is no loop, and its variable a constant 0."""
        k = self.serial()
        name = f"%i{k}"
        outer = self.scope
        inner = Scope(len(self.scopes), name if vector else outer.vector, mask or outer.mask)
        self.scopes.append(inner)
        self.depth_of[name] = inner.depth
        yield affine.variable(name)
        self.scopes.pop()
        lines = outer.lines
        if count <= step:
            lines.append(f"  {name} = add i64 0, 0")
            lines += inner.lines
            return
        lines += [f"  br label %p{k}", f"p{k}:", f"  br label %l{k}", f"l{k}:"]
        lines.append(f"  {name} = phi i64 [ 0, %p{k} ], [ %n{k}, %e{k} ]")
        lines += inner.lines
        lines += [f"  br label %e{k}", f"e{k}:", f"  %n{k} = add nuw nsw i64 {name}, {step}"]
        lines += [f"  %c{k} = icmp ult i64 %n{k}, {count}", f"  br i1 %c{k}, label %l{k}, label %x{k}", f"x{k}:"]

    @contextmanager
    def branch(self, condition: str) -> Iterator[None]:
        """Lines that run only if an i1 is true; nothing computed there is known outside."""
        k = self.serial()
        outer = self.scope
        inner = Scope(len(self.scopes), outer.vector, outer.mask, fence=True)
        self.scopes.append(inner)
        yield
        self.scopes.pop()
        outer.lines += [f"  br i1 {condition}, label %t{k}, label %j{k}", f"t{k}:"]
        outer.lines += [*inner.lines, f"  br label %j{k}", f"j{k}:"]

    def ramp(self, count: int) -> str:
        """The mask of a vector's first ``count`` elements."""
        return "<" + ", ".join(f"i1 {'true' if k < count else 'false'}" for k in range(self.width)) + ">"

    def slot(self, kind: str, wide: bool) -> str:
        """Memory for one value that a loop changes; LLVM turns it into a register."""
        name = f"%a{self.serial()}"
        self.allocas.append(f"  {name} = alloca {self.type(kind, wide)}, align 64")
        return name

    def get(self, slot: str, kind: str, wide: bool) -> Value:
        """What a slot holds."""
        return Value(self.new(f"load {self.type(kind, wide)}, ptr {slot}, align 64"), kind, wide)

    def put(self, slot: str, value: Value) -> None:
        """Change what a slot holds."""
        self.line(f"store {self.typed(value)}, ptr {slot}, align 64")

    # -- values

    def type(self, kind: str, wide: bool, types: dict[str, str] = TYPES) -> str:
        """LLVM's type."""
        return f"<{self.width} x {types[kind]}>" if wide else types[kind]

    def typed(self, value: Value) -> str:
        """A value with its type."""
        return f"{self.type(value.kind, value.wide)} {value.text}"

    def const(self, kind: str, number: Any) -> Value:
        """A constant."""
        return Value(literal(kind, number), kind, False)

    def widen(self, value: Value) -> Value:
        """A scalar in every element of a vector."""
        if value.wide:
            return value
        if not value.text.startswith("%"):
            return Value(f"splat ({TYPES[value.kind]} {value.text})", value.kind, True)

        def make() -> Value:
            t = self.type(value.kind, True)
            first = self.new(f"insertelement {t} poison, {TYPES[value.kind]} {value.text}, i32 0")
            all_ = self.new(f"shufflevector {t} {first}, {t} poison, <{self.width} x i32> zeroinitializer")
            return Value(all_, value.kind, True)

        return self.remember(("wide", value.text), make)

    def together(self, *values: Value) -> tuple[Value, ...]:
        """All wide, or all scalar."""
        return tuple(self.widen(v) for v in values) if any(v.wide for v in values) else values

    def do(self, instruction: str, *values: Value, kind: str | None = None) -> Value:
        """An instruction on operands of one type."""
        values = self.together(*values)
        t = self.type(values[0].kind, values[0].wide)
        text = self.new(f"{instruction} {t} " + ", ".join(v.text for v in values))
        return Value(text, kind or values[0].kind, values[0].wide)

    def cast(self, instruction: str, value: Value, kind: str) -> Value:
        """A conversion."""
        if TYPES[value.kind] == TYPES[kind] and instruction == "bitcast":
            return value._replace(kind=kind)
        text = self.new(f"{instruction} {self.typed(value)} to {self.type(kind, value.wide)}")
        return Value(text, kind, value.wide)

    def choose(self, condition: Value, yes: Value, no: Value) -> Value:
        """``yes`` where the condition holds."""
        if condition.wide or yes.wide or no.wide:
            yes, no = self.widen(yes), self.widen(no)
        if condition.wide and yes.kind == "b":  # processors choose between numbers, not between masks
            return self.do("xor", no, self.do("and", condition, self.do("xor", yes, no)))
        text = self.new(f"select {self.typed(condition)}, {self.typed(yes)}, {self.typed(no)}")
        return Value(text, yes.kind, yes.wide)

    def call(self, name: str, *values: Value, kind: str | None = None, extra: str = "") -> Value:
        """One of LLVM's functions on operands of one type."""
        values = self.together(*values)
        wide, result = values[0].wide, kind or values[0].kind
        tail = lambda k: self.prefix(wide) + (SHORT | {"b": "i1"})[k]  # noqa: E731
        full = f"@llvm.{name}.{tail(values[0].kind)}"
        if ".sat" in name:
            full = f"@llvm.{name}.{tail(result)}.{tail(values[0].kind)}"
        t, r = self.type(values[0].kind, wide), self.type(result, wide)
        more = ", i1" if extra else ""
        self.declared.add(f"declare {r} {full}({', '.join([t] * len(values))}{more})")
        text = self.new(f"call {r} {full}({', '.join(f'{t} {v.text}' for v in values)}{extra})")
        return Value(text, result, wide)

    def prefix(self, wide: bool) -> str:
        """What LLVM's functions have in their names before the type of an element."""
        return f"v{self.width}" if wide else ""

    # -- places

    def place(self, index: Index) -> str:
        """An index as an i64, computed where its variables are."""
        constant, terms = index
        if not terms:
            return str(constant)

        def make() -> str:
            total = None
            for name, k in terms:
                part = name if k == 1 else self.new(f"mul nsw i64 {name}, {k}")
                total = part if total is None else self.new(f"add nsw i64 {total}, {part}")
            return total if constant == 0 else self.new(f"add nsw i64 {total}, {constant}")  # type: ignore[return-value]

        with self.at_depth(self.depth(index)):
            return self.remember(("place", index), make)

    def _step(self, index: Index) -> int:
        """How far a place moves from one element of the vector to the next."""
        return affine.factor(index, self.scope.vector) if self.scope.vector else 0

    def index_value(self, index: Index, kind: str = "i") -> Value:
        """An index as a number to compute with, wide if it moves along the vector."""
        step = self._step(index)
        if not index[1]:
            return self.const(kind, index[0])
        base = Value(self.new(f"trunc i64 {self.place(index)} to i32"), kind, False)
        if step == 0:
            return base
        ramp = ", ".join(f"i32 {k * step}" for k in range(self.width))
        return self.do("add", base, Value(f"<{ramp}>", kind, True))

    # -- memory

    def array(self, size: int, kind: str, shared: bool = False) -> tuple[Buffer, int]:
        """Memory for an array of this step: on the stack, or else how many bytes of it the caller provides.

        ``shared``: one for all lanes.
        """
        many = self.lanes > 1 and not shared
        count = max(1, size) * (self.lanes if many else 1)
        name = f"%b{self.serial()}"
        buffer, needed = Buffer(name, kind, many), count * BYTES[kind]
        if needed > SMALL * (VECTOR if many else 1):
            return buffer, needed
        padded = count + (0 if many else VECTOR)
        self.allocas.append(f"  {name} = alloca [{padded} x {STORED[kind]}], align 64")
        return buffer, 0

    def stride(self, buffer: Buffer) -> int:
        """How many elements of memory lie between two elements of an array of one run."""
        return self.lanes if buffer.lanes else 1

    def align(self, buffer: Buffer) -> int:
        """What the address of an element (of its lanes) is a multiple of, in bytes."""
        return min(64, 4 * self.lanes) if buffer.lanes and buffer.kind != "b" else BYTES[buffer.kind]

    def arrange(self, plan: Any, over: dict[int, tuple[int, Node]]) -> dict[int, bool]:
        """Arrays of the state that are written over rather than into a second buffer, by the number of the output.

        ``over``: for each output the number of the array that it takes the place of, and its leaf. The result says
        whether the old values are put aside in the second buffer, for a guard that may still choose them.
        """
        del plan, over
        return {}

    def table(self, node: Node) -> Buffer:
        """A constant array."""
        if node.id not in self.tables:
            t = STORED[node.dtype]
            values = ", ".join(
                f"{t} {literal(node.dtype, v) if node.dtype != 'b' else int(v)}" for v in node.value.ravel()
            )
            self.tables[node.id] = (
                f"@g{len(self.tables)} = internal unnamed_addr constant [{node.size} x {t}] [{values}], align 64"
            )
        return Buffer(self.tables[node.id].split(" ", 1)[0], node.dtype, False)

    def pointer(self, buffer: Buffer, place: Index) -> str:
        """The address of an element (of its lanes)."""
        kind = buffer.kind
        where = affine.scale(place, self.stride(buffer))
        if where == affine.ZERO:
            return buffer.pointer
        at = self.place(where)
        return self.new(f"getelementptr inbounds {STORED[kind]}, ptr {buffer.pointer}, i64 {at}")

    def load(self, buffer: Buffer, place: Index) -> Value:
        """An element: wide if it is one of each lane, or if the place moves along the vector."""
        kind, step = buffer.kind, self._step(place)
        wide = buffer.lanes or step != 0
        if step not in (0, 1):
            return self.gather(buffer, self.index_value(place))
        pointer = self.pointer(buffer, place)
        t = self.type(kind, wide, STORED)
        if step and self.scope.mask:
            text = self.masked("load", kind, pointer, self.align(buffer), self.scope.mask)
        else:
            text = f"load {t}, ptr {pointer}, align {self.align(buffer)}"
        return self.loaded(text, kind, wide)

    def loaded(self, text: str, kind: str, wide: bool) -> Value:
        """What an instruction loads, as a value; a truth value is a byte in memory."""
        text = self.new(text)
        if kind == "b":
            text = self.new(f"trunc {self.type('b', wide, STORED)} {text} to {self.type('b', wide)}")
        return Value(text, kind, wide)

    def to_store(self, value: Value) -> str:
        """A value as it lies in memory."""
        if value.kind == "b":
            return self.new(f"zext {self.typed(value)} to {self.type('b', value.wide, STORED)}")
        return value.text

    def masked(self, what: str, kind: str, pointer: str, align: int, mask: str, text: str | None = None) -> str:
        """An instruction that loads elements, or stores ``text``, under a mask: gather and scatter at many pointers."""
        many = what in ("gather", "scatter")
        t, pointers = self.type(kind, True, STORED), f"<{self.width} x ptr>" if many else "ptr"
        name = f"@llvm.masked.{what}.v{self.width}{SHORT[kind]}.{f'v{self.width}' if many else ''}p0"
        given = [(pointers, pointer), ("i32", align), (self.type("b", True), mask)]
        given = [*given, (t, "zeroinitializer")] if text is None else [(t, text), *given]
        result = t if text is None else "void"
        self.declared.add(f"declare {result} {name}({', '.join(t for t, _ in given)})")
        return f"call {result} {name}({', '.join(f'{t} {x}' for t, x in given)})"

    def store(self, buffer: Buffer, place: Index, value: Value) -> None:
        """Put an element into memory."""
        kind, step = buffer.kind, self._step(place)
        if buffer.lanes or step:
            value = self.widen(value)
        assert buffer.lanes or step or not value.wide, "a value of each lane has no place where there is one for all"
        if step not in (0, 1):
            self.scatter(buffer, self.index_value(place), value, None)
            return
        text, pointer, align = self.to_store(value), self.pointer(buffer, place), self.align(buffer)
        if step and self.scope.mask:
            self.line(self.masked("store", kind, pointer, align, self.scope.mask, text))
        else:
            self.line(f"store {self.type(kind, value.wide, STORED)} {text}, ptr {pointer}, align {align}")

    def later(self, buffer: Buffer, place: Index, value: Value) -> None:
        """Put an element into memory before `settle`; nothing reads it from there until then."""
        self.store(buffer, place, value)

    def settle(self) -> None:
        """The end of a piece of a loop whose elements do not read one another."""

    def _addresses(self, buffer: Buffer, at: Value) -> str:
        """The addresses of elements at places that were computed (below 2^31)."""
        if buffer.lanes:
            at = self.do("mul", self.widen(at), self.const("i", self.lanes))
            at = self.do("add", at, Value("<" + ", ".join(f"i32 {k}" for k in range(self.lanes)) + ">", "i", True))
        far = self.cast("zext", at, "l")
        return self.new(f"getelementptr inbounds {STORED[buffer.kind]}, ptr {buffer.pointer}, {self.typed(far)}")

    def moved(self, buffer: Buffer, at: Value) -> Buffer:
        """The memory from a computed place on that is the same for all lanes."""
        stride = self.stride(buffer)
        far = self.cast("zext", at if stride == 1 else self.do("mul", at, self.const("i", stride)), "l")
        kind = STORED[buffer.kind]
        return buffer._replace(pointer=self.new(f"getelementptr inbounds {kind}, ptr {buffer.pointer}, i64 {far.text}"))

    def gather(self, buffer: Buffer, at: Value) -> Value:
        """Elements at computed places."""
        if buffer.lanes and not at.wide:
            return self.load(self.moved(buffer, at), affine.ZERO)
        wide = at.wide or buffer.lanes
        kind, where = buffer.kind, self._addresses(buffer, at)
        if wide:
            mask = self.scope.mask if self.scope.mask and not buffer.lanes else "splat (i1 true)"
            return self.loaded(self.masked("gather", kind, where, BYTES[kind], mask), kind, wide)
        return self.loaded(f"load {STORED[kind]}, ptr {where}, align {BYTES[kind]}", kind, wide)

    def scatter(self, buffer: Buffer, at: Value, value: Value, where: Value | None) -> None:
        """Put elements at computed places, those for which ``where`` holds."""
        if buffer.lanes and not at.wide:
            there = self.moved(buffer, at)
            if where is not None:
                value = self.choose(where, value, self.load(there, affine.ZERO))
            self.store(there, affine.ZERO, value)
            return
        if not (at.wide or buffer.lanes):
            self.scatter_one(buffer, at, value, where)
            return
        value, pointers = self.widen(value), self._addresses(buffer, at)
        text = self.to_store(value)
        mask = self.widen(where) if where is not None else Value("splat (i1 true)", "b", True)
        if self.scope.mask and not buffer.lanes:
            mask = self.do("and", mask, Value(self.scope.mask, "b", True))
        self.line(self.masked("scatter", buffer.kind, pointers, BYTES[buffer.kind], mask.text, text))

    def scatter_one(self, buffer: Buffer, at: Value, value: Value, where: Value | None) -> None:
        """One element to a computed place, if ``where`` holds."""
        with nullcontext() if where is None else self.branch(where.text):
            pointer = self._addresses(buffer, at)
            self.line(f"store {STORED[buffer.kind]} {self.to_store(value)}, ptr {pointer}, align {BYTES[buffer.kind]}")

    # -- across the vector

    def any(self, value: Value) -> str:
        """Whether a truth value holds in some lane, as an i1."""
        return self._of_lanes(value, "ne", 0)

    def all(self, value: Value) -> str:
        """Whether it holds in every lane."""
        return self._of_lanes(value, "eq", -1)

    def _of_lanes(self, value: Value, how: str, to: int) -> str:
        if not value.wide:
            return value.text
        bits = self.new(f"bitcast {self.typed(value)} to i{self.width}")
        return self.new(f"icmp {how} i{self.width} {bits}, {to}")

    def largest(self, value: Value) -> Value:
        """The largest of a whole number over the lanes: one for all of them."""
        if not value.wide or self.lanes == 1:
            return value
        name, t = f"@llvm.vector.reduce.smax.v{self.width}i32", self.type("i", True)
        self.declared.add(f"declare i32 {name}({t})")
        return Value(self.new(f"call i32 {name}({t} {value.text})"), "i", False)

    def fold(self, value: Value, combine: Callable[[Value, Value], Value], how: str = "") -> Value:
        """The elements of a vector combined as a tree: halves together until one is left; ``how``: the reduction."""
        del how
        width = self.width
        t = self.type(value.kind, True)
        half = width // 2
        while half:
            order = ", ".join(f"i32 {(k + half) % width}" for k in range(width))
            other = self.new(f"shufflevector {t} {value.text}, {t} poison, <{width} x i32> <{order}>")
            value = combine(value, Value(other, value.kind, True))
            half //= 2
        return Value(self.new(f"extractelement {t} {value.text}, i32 0"), value.kind, False)
