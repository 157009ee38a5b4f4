"""A lowered program as the text of an LLVM module.

::

    void NAME(ptr args, i64 threads)                 one call; args[k] points to parameter or workspace k
    void NAME.repeat(ptr args, i64 threads, i64 n)   n calls, back to back

Parameters and workspaces never overlap, so that every buffer is a ``noalias`` argument of the
function that uses it.  The body of a parallel loop is a function of its own over a range of
iterations; what it uses from outside travels in a record of pointers and integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...ir import dtypes
from ...ir.collection import uncollected
from ...ir.expr import PREFETCH, Buffer, Call, Load, Var, variables
from ...ir.node import walk
from ...ir.stmt import (
    Allocate,
    Declare,
    Evaluate,
    For,
    If,
    Let,
    Seq,
    Stmt,
    Store,
    read_buffers,
    written_buffers,
)
from ...ir.target import Target
from ..legal.program import legal
from ..registers import accumulators
from .builder import plain
from .expr import Expressions
from .index import ONE, Lanes, Linear, Ramped
from .known import Known, place_of
from .load import Value
from .types import CodegenError, ModuleText, memory_type, suffix, value_type

if TYPE_CHECKING:
    from ..lower import Lowered

MAX_STACK_BYTES = 4 << 20
PARALLEL = "stridesmith_parallel"
LONGEST = 2**62  # no loop counts further
SECOND_CACHE = 2  # where LLVM's prefetch puts things, from 0 (memory) to 3 (the first cache)


@dataclass(frozen=True)
class _Context:
    """What all functions of a module share."""

    module: ModuleText
    name: str
    attributes: str
    registers: int
    register_bytes: int
    keeps_masks: bool
    written: dict[int, set[str]]
    accumulators: dict[int, int]


def entry_name(name: str) -> str:
    """The symbol of the function `name`: letters, digits and underscores."""
    return f"kernel_{plain(name)}"


@uncollected
def generate(lowered: Lowered, target: Target) -> str:
    """The module text of `lowered` for the CPU `target`, over buffers of one axis.  Raises CodegenError."""
    lowered, entry = legal(lowered, target), entry_name(lowered.name)
    for buffer in (*lowered.params, *lowered.workspaces):
        if len(buffer.shape) != 1:
            raise CodegenError(
                f"buffer `{buffer.name}` has {len(buffer.shape)} physical axes; CPU code takes linear memory of one, "
                f"flatten it without axis separators"
            )
    module = ModuleText(lowered.strict, target.cpu_features)
    register_bytes = max(target.vector_bits // 8, 16)
    attributes, keeps_masks = _attributes(target), target.has_mask_registers
    context = _Context(module, entry, attributes, target.registers, register_bytes, keeps_masks, {}, {})
    buffers = (*lowered.params, *lowered.workspaces)
    context.module.functions.append(_entry(entry, len(buffers)))
    function = Statements(context, f"{entry}.body", ["i64 %threads", *_noalias(b.name for b in buffers)])
    function.pointers.update({b.name: _pointer(b.name) for b in buffers})
    function.alignments.update({b.name: dtypes.nbytes(dtypes.element(b.dtype)) for b in lowered.params})
    function.alignments.update({b.name: 64 for b in lowered.workspaces})
    function.statement(lowered.body)
    context.module.functions.append(function.text("internal", context.attributes))
    return context.module.text()


def _pointer(name: str) -> str:
    """The argument for a buffer; LLVM takes names of other letters in quotes alone."""
    return f"%p.{name}" if name.isascii() and name.isidentifier() else f'%"p.{name}"'


def _noalias(names: Any) -> list[str]:
    return [f"ptr noalias nonnull {_pointer(name)}" for name in names]


def _attributes(target: Target) -> str:
    width = max(target.vector_bits, 128)
    pairs = {
        "prefer-vector-width": str(width),
        "min-legal-vector-width": str(width),
        "reciprocal-estimates": "none",
        "probe-stack": "inline-asm",  # a frame of several pages on a caller's small stack meets the guard page
    }
    return "nounwind " + " ".join(f'"{k}"="{v}"' for k, v in pairs.items())


def _entry(name: str, count: int) -> str:
    lines = [f"define void @{name}(ptr %args, i64 %threads) noinline nounwind {{"]
    for number in range(count):
        lines.append(f"  %a{number} = getelementptr ptr, ptr %args, i64 {number}")
        lines.append(f"  %p{number} = load ptr, ptr %a{number}, align 8")
    arguments = ", ".join(["i64 %threads", *(f"ptr %p{number}" for number in range(count))])
    lines += [f"  call void @{name}.body({arguments})", "  ret void", "}"]
    lines += [
        f"define void @{name}.repeat(ptr %args, i64 %threads, i64 %n) nounwind {{",
        "entry:",
        "  %any = icmp sgt i64 %n, 0",
        "  br i1 %any, label %loop, label %done",
        "loop:",
        "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]",
        f"  call void @{name}(ptr %args, i64 %threads)",
        "  %next = add i64 %i, 1",
        "  %more = icmp slt i64 %next, %n",
        "  br i1 %more, label %loop, label %done",
        "done:",
        "  ret void",
        "}",
    ]
    return "\n".join(lines)


class Statements(Expressions):
    """Emits statements into one function of the module."""

    def __init__(self, context: _Context, name: str, parameters: Sequence[str]) -> None:
        super().__init__(context.module, name, parameters)
        self.context = context
        self.vector_bits, self.keeps_masks = 8 * context.register_bytes, context.keeps_masks
        self.parallel_depth = 0
        self.stack_bytes = 0

    def statement(self, stmt: Stmt) -> None:
        """Emit `stmt` at this point."""
        if isinstance(stmt, Seq):
            for item in stmt.stmts:
                self.statement(item)
        elif isinstance(stmt, Store):
            self._store(stmt)
        elif isinstance(stmt, For):
            self._for(stmt)
        elif isinstance(stmt, If):
            self._if(stmt)
        elif isinstance(stmt, Let):
            self.bind(stmt.var, self.value(stmt.value))
            self.statement(stmt.body)
            self.unbind(stmt.var)
        elif isinstance(stmt, Allocate):
            self._allocate(stmt)
        elif isinstance(stmt, Declare):
            self.statement(stmt.body)
        elif isinstance(stmt, Evaluate):
            if isinstance(stmt.value, Call) and stmt.value.name == PREFETCH:
                self._prefetch(stmt.value)
            else:
                self.value(stmt.value)
        else:
            raise CodegenError(f"a {type(stmt).__name__} statement must be lowered before code generation")

    # --- loops and conditions -----------------------------------------------------------------

    def _for(self, stmt: For) -> None:
        if stmt.kind not in ("serial", "unrolled", "parallel"):
            raise CodegenError(f"loop `{stmt.var.name}` is {stmt.kind}, which a CPU kernel cannot hold after lowering")
        extent = self.linear(stmt.extent)
        if extent.is_const and (extent.const <= 1 or stmt.kind == "unrolled"):
            self._unrolled(stmt)
        elif stmt.kind == "parallel" and not self.parallel_depth and _annotation(stmt, "threads") != 1:
            self._parallel(stmt, extent)
        else:
            self._serial(stmt, extent)

    def _unrolled(self, stmt: For) -> None:
        """The iterations one after the other; the extent is constant here."""
        taken = self._accumulators(stmt)
        for number in range(self.linear(stmt.extent).const):
            if number and taken:
                self.relieve(self.context.registers - taken, self.context.register_bytes)
            self.bind(stmt.var, Linear(number))
            self.statement(stmt.body)
        self.unbind(stmt.var)

    def _accumulators(self, stmt: For) -> int:
        """The registers that a loop updates in each of its iterations, 0 for a loop over the registers themselves."""
        known = self.context.accumulators.get(id(stmt))
        if known is None:
            known = self.context.accumulators[id(stmt)] = accumulators(stmt, self.context.register_bytes)
        return known

    def _serial(self, stmt: For, extent: Linear) -> None:
        largest = min(max(extent.bounds()[1] - 1, 0), LONGEST)
        guarded = extent.bounds()[0] < 1
        written, name = self._written(stmt.body), stmt.var.name
        with self.loop("0", self.scalar(extent), (0, largest), guarded, written, name) as var:
            self.bind(stmt.var, var)
            self.statement(stmt.body)
            self.unbind(stmt.var)

    def _if(self, stmt: If) -> None:
        cond = self.value(stmt.cond)
        if isinstance(cond, bool):
            if cond:
                self.statement(stmt.then)
            elif stmt.orelse is not None:
                self.statement(stmt.orelse)
            return
        assert isinstance(cond, str)
        if dtypes.lanes(self.dtype(stmt.cond)) > 1:
            self._store_masked(stmt, cond)
            return
        orelse = stmt.orelse
        other = None if orelse is None else lambda: self.statement(orelse)
        self.branch(cond, lambda: self.statement(stmt.then), other, self._written(stmt))

    def _written(self, stmt: Stmt) -> set[str]:
        """The memory that `stmt` stores to, by root name."""
        known = self.context.written.get(id(stmt))
        if known is None:
            known = {buffer.memory for buffer in written_buffers(stmt)}
            self.context.written[id(stmt)] = known
        return known

    # --- memory -------------------------------------------------------------------------------

    def _allocate(self, stmt: Allocate) -> None:
        self.stack_bytes += stmt.buffer.nbytes
        if self.stack_bytes > MAX_STACK_BYTES:
            raise CodegenError(
                f"allocations of {self.stack_bytes} bytes inside one function exceed the stack's share of "
                f"{MAX_STACK_BYTES}; `{stmt.buffer.name}` ({stmt.buffer.nbytes} bytes) belongs in a workspace"
            )
        self.allocate(stmt.buffer)
        self.forget({stmt.buffer.name})
        self.statement(stmt.body)

    def _store(self, stmt: Store) -> None:
        buffer, dtype = stmt.buffer, self.dtype(stmt.value)
        value, offset = self.operand(stmt.value), self.flat(buffer, stmt.indices)
        count = dtypes.lanes(buffer.dtype) * (1 if isinstance(offset, Linear) else offset.lanes)
        if count != dtypes.lanes(dtype):
            raise CodegenError(f"a store of {dtype} to {count} elements of `{buffer.name}`")
        if isinstance(offset, Linear):
            self._store_here(buffer, offset, None, value, dtype)
        elif isinstance(offset, Ramped) and offset.stride == ONE:
            self._store_here(buffer, offset.base, ONE, value, dtype)
        else:
            self._store_lanes(buffer, offset, value, dtype)

    def _prefetch(self, call: Call) -> None:
        """Fetch what a load would read, into the second cache."""
        (load,) = call.args
        assert isinstance(load, Load)
        offset = self.flat(load.buffer, load.indices)
        assert isinstance(offset, Linear)
        function = self.module.declare("llvm.prefetch.p0", "void", "ptr", "i32", "i32", "i32")
        self.do(f"call void {function}(ptr {self.address(load.buffer, offset)}, i32 0, i32 {SECOND_CACHE}, i32 1)")

    def _store_masked(self, stmt: If, mask: str) -> None:
        """The lanes of a mask to memory, next to each other."""
        store = stmt.then
        if not isinstance(store, Store) or stmt.orelse is not None:
            raise CodegenError(f"a condition of lanes is one of a single store before code generation: {stmt.cond!r}")
        buffer, dtype, value = store.buffer, self.dtype(store.value), self.operand(store.value)
        offset = self.flat(buffer, store.indices)
        if not isinstance(offset, Ramped) or offset.stride != ONE or offset.lanes != dtypes.lanes(dtype):
            raise CodegenError(f"a store to `{buffer.name}` under a condition of lanes writes neighbours")
        kind, boolean = memory_type(dtype), value_type(self.dtype(stmt.cond))
        if dtypes.is_bool(dtype):
            value = self.emit(f"zext {boolean} {value} to {kind}")
        tag = suffix(dtype.replace("bool", "int8"))
        function = self.module.declare(f"llvm.masked.store.{tag}.p0", "void", kind, "ptr", "i32", boolean)
        place = f"ptr {self.address(buffer, offset.base)}, i32 {self.alignment(buffer, offset.base)}"
        self.do(f"call void {function}({kind} {value}, {place}, {boolean} {mask})")
        self.forget({self.root(buffer)})

    def _store_here(self, buffer: Buffer, base: Linear, stride: Linear | None, value: str, dtype: str) -> None:
        kind, stored = memory_type(dtype), value
        if dtypes.is_bool(dtype):
            stored = self.emit(f"zext {value_type(dtype)} {value} to {kind}")
        pointer = self.address(buffer, base)
        self.do(f"store {kind} {stored}, ptr {pointer}, align {self.alignment(buffer, base)}")
        root = self.root(buffer)
        known = self.memory.get(root)
        if known is None:
            known = self.memory[root] = Known()
        element, count = dtypes.split_dtype(dtype)
        known.store(place_of(element, base, stride, count), value)

    def _store_lanes(self, buffer: Buffer, offset: Ramped | Lanes, value: str, dtype: str) -> None:
        if dtypes.lanes(buffer.dtype) != 1:
            raise CodegenError(f"`{buffer.name}` holds {buffer.dtype}, which only scalar indices can address")
        one = dtypes.element(dtype)
        for lane in range(offset.lanes):
            scalar = self.emit(f"extractelement {value_type(dtype)} {value}, i64 {lane}")
            self._store_here(buffer, offset.lane(lane), None, scalar, one)

    # --- parallel loops -----------------------------------------------------------------------

    def _parallel(self, stmt: For, extent: Linear) -> None:
        """The loop as a task over a range of iterations, handed to the thread pool.

        Its annotations: `chunk`, the iterations of a range, and `threads`, at most so many; one makes a serial loop.
        """
        name = f"{self.context.name}.task{len(self.context.module.functions)}"
        self.context.module.functions.append("")  # reserves the number
        buffers, scalars = self._captured(stmt)
        pointers = [self.pointers[b] for b in buffers]
        values = [self.materialise(self.env[v.name], v.dtype) for v in scalars]
        kinds = ["ptr"] * len(buffers) + [value_type(v.dtype) for v in scalars]
        record = self._record([*pointers, *values], kinds, _places(len(buffers), scalars))
        self._outline(stmt, name, extent, buffers, scalars)
        function = self.module.declare(PARALLEL, "void", "ptr", "ptr", "i64", "i64", "i64")
        total, chunk, threads = self.scalar(extent), _annotation(stmt, "chunk"), "%threads"
        most = _annotation(stmt, "threads")
        if most:
            least = self.module.declare("llvm.smin.i64", "i64", "i64", "i64")
            threads = self.emit(f"call i64 {least}(i64 %threads, i64 {most})")
        self.do(f"call void {function}(ptr @{name}, ptr {record}, i64 {total}, i64 {chunk}, i64 {threads})")
        self.forget(self._written(stmt))

    def _captured(self, stmt: For) -> tuple[list[str], list[Var]]:
        """The memory and the variables from outside that the loop uses, by name."""
        inside = {n.buffer.name for n in walk(stmt.body) if isinstance(n, Allocate)}
        touched = (*read_buffers(stmt.body), *written_buffers(stmt.body))
        used = [b for b in touched if inside.isdisjoint((b.name, b.data))]
        outside = {v for v in variables(stmt.body) if v.name in self.env}
        return sorted({self.root(b) for b in used}), sorted(outside, key=lambda v: v.name)

    def _record(self, operands: list[str], kinds: list[str], places: list[int]) -> str:
        """Stack memory with the operands at `places`, in units of eight bytes; the last one is the end."""
        record = self.emit(f"alloca [{max(places[-1], 1)} x i64], align 64", self.entry)
        for place, operand, kind in zip(places, operands, kinds, strict=False):
            slot = self.emit(f"getelementptr i64, ptr {record}, i64 {place}")
            self.do(f"store {kind} {operand}, ptr {slot}, align 8")
        return record

    def _outline(self, stmt: For, name: str, extent: Linear, buffers: list[str], scalars: list[Var]) -> None:
        kinds = [value_type(v.dtype) for v in scalars]
        values = [f"{kind} %s.{number}" for number, kind in enumerate(kinds)]
        parameters = ["i64 %begin", "i64 %end", *_noalias(buffers), *values]
        inner = Statements(self.context, f"{name}.body", parameters)
        inner.stack_bytes = self.stack_bytes  # the thread that calls runs both
        inner.parallel_depth = self.parallel_depth + 1
        inner.pointers.update({b: _pointer(b) for b in buffers})
        inner.alignments.update({b: self.alignments[b] for b in buffers if b in self.alignments})
        for number, var in enumerate(scalars):
            inner.bind(var, inner.captured(f"%s.{number}", self.env[var.name], var))
        largest = min(max(extent.bounds()[1] - 1, 0), LONGEST)
        with inner.loop("%begin", "%end", (0, largest), True, set(), stmt.var.name) as iteration:
            inner.bind(stmt.var, iteration)
            inner.statement(stmt.body)
        self.context.module.functions.append(inner.text("internal", self.context.attributes))
        self.context.module.functions.append(
            _task(name, ["ptr"] * len(buffers) + kinds, _places(len(buffers), scalars))
        )

    def captured(self, name: str, outside: Value, var: Var) -> Value:
        """A variable from outside of the function: the argument `name`, with the interval that it had."""
        if var.dtype != dtypes.INDEX:
            return name
        bounds = outside.bounds() if isinstance(outside, Linear) else (-(2**63), 2**63 - 1)
        return self.parameter(name, *bounds)


def _annotation(stmt: For, key: str) -> int:
    """The number that a loop is annotated with, 0 if it is not."""
    value = next((int(v) for k, v in stmt.annotations if k == key), 0)
    if value < 0:
        raise CodegenError(f"loop `{stmt.var.name}` is annotated with `{key}` = {value}; it must be positive")
    return value


def _places(pointers: int, scalars: Sequence[Var]) -> list[int]:
    """Where each captured value starts in a record, and where the record ends, in units of eight bytes."""
    places = list(range(pointers + 1))
    for var in scalars:
        places.append(places[-1] + -(-dtypes.nbytes(var.dtype) // 8))
    return places


def _task(name: str, kinds: list[str], places: list[int]) -> str:
    """The function that the pool calls: unpack the record, run the iterations."""
    lines = [f"define internal void @{name}(ptr %record, i64 %begin, i64 %end) nounwind {{"]
    arguments = ["i64 %begin", "i64 %end"]
    for number, kind in enumerate(kinds):
        lines.append(f"  %a{number} = getelementptr i64, ptr %record, i64 {places[number]}")
        lines.append(f"  %r{number} = load {kind}, ptr %a{number}, align 8")
        arguments.append(f"{kind} %r{number}")
    lines += [f"  call void @{name}.body({', '.join(arguments)})", "  ret void", "}"]
    return "\n".join(lines)
