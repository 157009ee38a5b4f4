"""A lowered program as OpenCL C: one kernel for each statement at its top.

A loop that is bound to ``blockIdx.*``, ``threadIdx.*`` or ``subgroup`` becomes a group or local id, every
other loop stays or, if unrolled, is written out.  Loops bound to one axis may differ in extent; the
largest counts, and the others are guarded.  Buffers of scope ``local`` are private arrays, which
live in registers once all loops over them are written out; scope ``shared`` is local memory,
with a barrier wherever one statement uses what another has written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from ...ir import dtypes
from ...ir.arith.intervals import Facts
from ...ir.arith.linear import as_ramp
from ...ir.arith.simplifier import simplifier_for
from ...ir.expr import Buffer, Const, Expr, Load, Not, Ramp, Var, as_int, binary, const, substitute, variables
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
    memories_read,
    memories_written,
    read_buffers,
    walk_stmts,
)
from ...ir.target import BYTE_DOTS, Target
from ..legal.program import legal
from ..llvm.types import CodegenError
from .access import ARRAY_ALIGNMENT, lane
from .binary import POCL
from .images import check_image, is_image
from .launch import Launch, Source, with_digest
from .meeting import FLAGS, Fence, Memories, fence_between, fence_of_loop, needs_barrier
from .parts import (
    AXES,
    NUMBERED,
    along,
    check_work_group,
    is_serial,
    most_threads,
    place_of,
    sizes,
    statements_at_top,
    uses_registers,
    written_out,
)
from .subgroups import Subgroups, subgroup_loops, subgroup_size
from .sums import keep_sums
from .types import (
    CALL_BYTES,
    DOT_BUILTIN,
    POCL_CALL_BYTES,
    Helpers,
    Names,
    array_type,
    bare,
    emulated,
    memory_type,
    pieces,
)
from .writer import NeedsLong

if TYPE_CHECKING:
    from ..lower import Lowered

MAX_WRITTEN_OUT = 1 << 14
"""Statements of one kernel beyond which unrolled loops stay loops, for the compiler to unroll."""
MAX_COPIED = 64
"""Statements beyond which unrolled loops that keep nothing in registers stay loops.

Stores of a starting value that lie apart are as many as a tile has elements: written out, PoCL takes some seconds to
look which of them are neighbours, and they are no faster.
"""
MAX_PRIVATE_BYTES = 256 << 10
MAX_RANK = 2


def generate(lowered: Lowered, target: Target) -> Source:
    """OpenCL C for `lowered`.  Raises CodegenError for what it cannot express or the device cannot hold."""
    lowered = legal(lowered, target)
    is_pocl = target.platform == POCL and target.is_cpu_device
    helpers = Helpers(POCL_CALL_BYTES if is_pocl else CALL_BYTES, target.has_avx512_builtins)
    buffers = (*lowered.params, *lowered.workspaces)
    parts = statements_at_top(lowered.body)
    names = Names()
    kernels: list[str] = []
    launches: list[Launch] = []
    changed = {k for k, b in enumerate(buffers) if b.name in memories_written(lowered.body)}  # by the call before
    for part in parts:
        name = names.fresh(f"{lowered.name}_kernel" if len(parts) == 1 else f"{lowered.name}_kernel_{len(launches)}")
        if target.warp > 1 and not lowered.strict:  # a CPU's driver keeps what lives across barriers in memory anyway
            part = keep_sums(part)
        text, launch = _kernel(name, part, buffers, target, helpers, lowered.strict)
        kernels.append(text)
        launches.append(replace(launch, stale=tuple(k for k in launch.images if k in changed)))
        written = {k for k, b in enumerate(buffers) if b.name in memories_written(part)}
        changed = (changed - set(launch.images)) | written
    header = "#pragma OPENCL FP_CONTRACT ON\n"
    used = {dtypes.element(n.dtype) for n in walk(lowered.body) if isinstance(n, (Expr, Buffer))}
    if "float64" in used:
        if "cl_khr_fp64" not in target.features.split():
            raise CodegenError(f"`{target.name}` has no float64 arithmetic (cl_khr_fp64 is missing)")
        header += "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
    if "float16" in used and "float16" not in emulated(target):
        header += "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n"
    text = helpers.text() + "\n" + "\n".join(kernels)
    if DOT_BUILTIN in text:
        header += f"#pragma OPENCL EXTENSION {BYTE_DOTS} : enable\n"
    text = header + text
    return with_digest(text, launches)


def _kernel(
    name: str, body: Stmt, buffers: Sequence[Buffer], target: Target, helpers: Helpers, strict: bool
) -> tuple[str, Launch]:
    # 64-bit addresses cost a CPU nothing, and sign extensions in the inner loop would; a GPU pays for them.
    if not target.is_cpu_device:
        try:
            return _Kernel(name, body, buffers, target, helpers, "int", strict).finished()
        except NeedsLong:
            pass
    return _Kernel(name, body, buffers, target, helpers, "long", strict).finished()


class _Kernel(Subgroups):
    """Writes one kernel."""

    def __init__(
        self, name: str, body: Stmt, buffers: Sequence[Buffer], target: Target, helpers: Helpers, index_type: str,
        strict: bool,
    ) -> None:  # fmt: skip
        super().__init__(index_type, helpers, emulated(target), target.is_cpu_device)
        self.facts = Facts({}, strict=strict)
        self.name, self.body, self.buffers, self.target = name, body, buffers, target
        self.groups, self.items = sizes(body)
        self.may_fence &= not subgroup_loops(body)
        self.written = memories_written(body)
        self.memories = Memories((), tuple(b for b in buffers if b.name in self.written))
        self.has_barriers = needs_barrier(body, self.memories)
        self.group = ""
        self.local_bytes = 0
        self.divergent = 0
        self.loops = 0
        self.private_bytes = 0
        self.active: set[str] = set()
        self.differing: set[Var] = set()

    def finished(self) -> tuple[str, Launch]:
        """The text of the kernel and its launch."""
        self.names.fresh(self.name)
        used = {b.memory for b in read_buffers(self.body)} | self.written
        args = [k for k, b in enumerate(self.buffers) if b.name in used]
        for k in args:
            self._declare_parameter(self.buffers[k])
        check_work_group(self.name, prod(self.items.values()), self.target)
        local = [self.items.get(a, 1) for a in AXES]
        counts = [self.groups.get(a, 1) for a in AXES]
        images = tuple(k for k in args if self.spaces[self.buffers[k].name] == "image")
        if self.target.has_thread_pool and self.groups and not images:
            counts = [prod(counts), 1, 1]
            self.group = self.names.fresh("group")
            self.first_lines.append(f"    const long {self.group} = {NUMBERED};")
        self.statement(self.body)
        if self.local_bytes > self.target.local_bytes:
            raise CodegenError(
                f"kernel `{self.name}` needs {self.local_bytes} bytes of local memory, "
                f"but `{self.target.name}` has {self.target.local_bytes}"
            )
        header = f"__kernel __attribute__((reqd_work_group_size({', '.join(map(str, local))})))\n"
        if size := subgroup_size(self.name, self.body, self.items.get("x", 1)):
            header += f"__attribute__((intel_reqd_sub_group_size({size})))\n"
        parameters = ", ".join(self._parameter(self.buffers[k]) for k in args)
        header += f"void {self.name}({parameters}) {{\n"
        text = header + "\n".join([*self.first_lines, *self.lines]) + "\n}\n"
        sizes_ = tuple(c * n for c, n in zip(counts, local, strict=True))
        if len(images) > self.target.image_args:
            raise CodegenError(
                f"kernel `{self.name}` reads {len(images)} images, "
                f"but `{self.target.name}` takes {self.target.image_args}"
            )
        serial = any(isinstance(node, For) and is_serial(node) for node in walk(self.body))
        threads = most_threads(self.body)
        return text, Launch(self.name, sizes_, tuple(local), tuple(args), images, serial=serial, threads=threads)

    def _declare_parameter(self, buffer: Buffer) -> None:
        if is_image(buffer.scope):
            check_image(buffer, self.target)
            if buffer.name not in self.written:
                self.declare(buffer, "image")
                return
        if len(buffer.shape) > MAX_RANK:
            raise CodegenError(
                f"buffer `{buffer.name}` has {len(buffer.shape)} physical axes; OpenCL code takes linear memory of one "
                f"or two; use fewer axis separators"
            )
        self.declare(buffer, "global")

    def _parameter(self, buffer: Buffer) -> str:
        pointer = self.pointers[buffer.name]
        if self.spaces[buffer.name] == "image":
            return f"__read_only image2d_t {pointer}"
        if buffer.name in self.written:
            return f"__global {self._array(buffer)}* restrict {pointer}"
        # `restrict` tells a compiler that no fence changes what is only read here, so it would keep what it has loaded.
        alone = "" if self.loads_again else " restrict"
        return f"__global const {self._array(buffer)}*{alone} {pointer}"

    def _array(self, buffer: Buffer) -> str:
        return array_type(buffer.dtype) if buffer.dtype in self.emulated else memory_type(buffer.dtype)

    # ------------------------------------------------------------ statements

    def statement(self, stmt: Stmt) -> None:
        if isinstance(stmt, Seq):
            self._sequence(stmt)
        elif isinstance(stmt, Store):
            self._store(stmt)
        elif isinstance(stmt, For):
            self._for(stmt)
        elif isinstance(stmt, If):
            self._if(stmt)
        elif isinstance(stmt, Let):
            self._let(stmt)
        elif isinstance(stmt, Allocate):
            self._allocate(stmt)
        elif isinstance(stmt, Declare):
            self.statement(stmt.body)
        elif isinstance(stmt, Evaluate):
            self.line(f"(void){self.scalar(self.fixed(stmt.value))};")
        else:
            raise CodegenError(f"a {type(stmt).__name__} statement must be lowered before code generation")

    def _sequence(self, stmt: Seq) -> None:
        if any(isinstance(n, For) and n.thread.startswith("blockIdx") for n in walk(stmt)):
            raise CodegenError(
                f"kernel `{self.name}`: statements one after the other hold loops bound to blockIdx, and groups do not "
                f"wait for each other; put each such loop at the top of the program"
            )
        before: list[Stmt] = []
        ordered = dict.fromkeys(FLAGS, 0)  # how many of them a barrier of each memory has made visible
        around = self.memories
        for item in self._in_order(stmt):
            fence = frozenset(
                flag
                for at in range(min(ordered.values()), len(before))
                for flag in fence_between(before[at], item, self.memories)
                if at >= ordered[flag]
            )
            if fence:
                self._barrier(fence)
                ordered |= dict.fromkeys(fence, len(before))
            self.statement(item)
            before.append(item)
        self.memories = around

    def _in_order(self, stmt: Stmt) -> Iterator[Stmt]:
        """The statements of a sequence; local memory that is allocated in between is there for the rest of it."""
        while isinstance(stmt, Allocate) and stmt.buffer.scope == "shared":
            self._declare_shared(stmt.buffer)
            stmt = stmt.body
        if not isinstance(stmt, Seq):
            yield stmt
            return
        for item in stmt.stmts:
            yield from self._in_order(item)

    def _barrier(self, fence: Fence) -> None:
        # A condition that all work-items agree about is no exception: PoCL 3.0 lets items of one group leave
        # barriers in two branches of one condition by different ways.
        if self.divergent:
            raise CodegenError(
                f"kernel `{self.name}` needs a barrier inside a condition, or inside a loop that differs between "
                f"work-items; move the condition into the loop over the work-items"
            )
        self.line(f"barrier({' | '.join(sorted(fence, reverse=True))});")

    def _store(self, stmt: Store) -> None:
        if stmt in self.together:
            self._reduce(stmt)
            return
        indices = tuple(self.fixed(i) for i in stmt.indices)
        value = self.fixed(stmt.value)
        self.note_loads(replace(stmt, value=value))
        self._check_owner(stmt)
        position = self.position(stmt.buffer, indices)
        lanes = dtypes.lanes(position.dtype)
        if lanes == 1:
            self.write(stmt.buffer, position, self.scalar(value))
            return
        ramp = as_ramp(position)
        by_lane = dtypes.is_bool(stmt.buffer.dtype) or stmt.buffer.dtype in self.emulated
        if ramp is not None and ramp[1] == const(1) and not by_lane:
            self._store_vector(stmt.buffer, ramp[0], value, lanes)
        else:
            self._store_lanes(stmt.buffer, position, value, lanes)

    def _reduce(self, stmt: Store) -> None:
        """What the items of a subgroup do together; memory that they share is written by the first."""
        update = self.reduced(stmt)
        if self.space(stmt.buffer) == "private":
            self._store(update)
        else:
            with self.braces(self.first_item):
                self._store(update)

    def _check_owner(self, stmt: Store) -> None:
        """Memory that work-items share is written inside of every bound loop, or each item would repeat the store."""
        place = self._left_out(stmt.buffer.memory)
        if place is not None:
            raise CodegenError(
                f"kernel `{self.name}` stores to `{stmt.buffer.name}` outside of the loop that is bound to {place}; "
                f"every work-item would repeat it"
            )

    def _check_kept(self, value: Expr, body: Stmt) -> None:
        """What is computed outside of a bound loop reads no memory that `body` changes: items would overtake others."""
        for memory in sorted(memories_read(value) & memories_written(body)):
            place = self._left_out(memory)
            if place is not None:
                raise CodegenError(
                    f"kernel `{self.name}` reads `{memory}` outside of the loop that is bound to {place}, and writes "
                    f"it inside; some work-items would read what others have written"
                )

    def _left_out(self, memory: str) -> str | None:
        """An axis whose work-items share a memory, and inside of whose bound loop the text is not; None without one."""
        items = ("threadIdx", self.items)
        tables = {"global": (("blockIdx", self.groups), items), "local": (items,)}
        for where, table in tables.get(self.spaces.get(memory, ""), ()):
            for axis, extent in table.items():
                if extent > 1 and f"{where}.{axis}" not in self.active:
                    return f"{where}.{axis}"
        return None

    def _store_vector(self, buffer: Buffer, base: Expr, value: Expr, lanes: int) -> None:
        parts = pieces(lanes)
        kind = memory_type(buffer.dtype)
        texts = [self.vector(value, start, count) for start, count in parts]
        if len(parts) > 1 and buffer.memory in memories_read(value):
            texts = self.before(texts, [kind if count == 1 else f"{kind}{count}" for _, count in parts])
        for (start, count), text in zip(parts, texts, strict=True):
            if self.under is not None:
                self.write_under(buffer, binary("+", base, start), text, start, count)
            elif count == 1:
                self.write(buffer, binary("+", base, start), text)
            else:
                self.write_vector(buffer, binary("+", base, start), count, text)

    def _store_lanes(self, buffer: Buffer, position: Expr, value: Expr, lanes: int) -> None:
        if self.under is not None:
            raise CodegenError(f"a store to `{buffer.name}` under a condition of lanes writes neighbours")
        kind = self.value_type(buffer.dtype)
        texts = self.before([self.vector(value, k, 1) for k in range(lanes)], [kind] * lanes)
        for k, text in enumerate(texts):
            self.write(buffer, lane(position, k), text)

    def _for(self, stmt: For) -> None:
        if is_serial(stmt):
            self._loop(stmt)
        elif stmt.kind == "thread_binding":
            self._bound(stmt)
        elif self._is_written_out(stmt):
            if not fence_of_loop(stmt, self.memories) and (square := self.square(stmt)) is not None:
                self.transpose(square)
            elif written_out(stmt) > MAX_COPIED and not uses_registers(stmt):
                self._loop(replace(stmt, kind="serial"))
            else:
                self._write_out(stmt, as_int(self.fixed(stmt.extent)))
        elif stmt.kind in ("serial", "unrolled"):
            self._loop(stmt)
        else:
            raise CodegenError(f"loop `{stmt.var.name}` is {stmt.kind}, which OpenCL cannot express; bind it instead")

    def _is_written_out(self, stmt: For) -> bool:
        known = isinstance(self.fixed(stmt.extent), Const)
        return known and stmt.kind == "unrolled" and written_out(stmt) <= MAX_WRITTEN_OUT

    def _write_out(self, stmt: For, extent: int) -> None:
        fence = fence_of_loop(stmt, self.memories)
        spare = self.spare(stmt, self.target)
        self.loops += 1
        for value in range(extent):
            if value and spare is not None:
                self.relieve(spare, self.target.vector_bits // 8)
            self.constants[stmt.var] = const(value)
            self.statement(stmt.body)
            if fence:
                self._barrier(fence)
        self.constants.pop(stmt.var, None)
        self.loops -= 1

    def _loop(self, stmt: For) -> None:
        extent = self.fixed(stmt.extent)
        self._check_kept(extent, stmt.body)
        limit = self.scalar(extent)
        if self._changes(extent):  # the extent counts as it is when the loop begins
            (limit,) = self.before([limit], [self.ctype(extent.dtype)])
        name = self.variables[stmt.var] = self.names.fresh(stmt.var.name)
        facts = self._range(stmt.var, extent)
        uneven = self._differs(extent)
        if uneven:
            self.differing.add(stmt.var)
        self.divergent += uneven
        self.loops += 1
        if stmt.kind == "unrolled":
            self.line("#pragma unroll")
        head = f"for ({self.index_type} {name} = 0; {name} < {limit}; ++{name})"
        self.begin_loop()
        with self.knowing(facts), self.braces(head):
            self.statement(stmt.body)
            if fence := fence_of_loop(stmt, self.memories):
                self._barrier(fence)
        self.loops -= 1
        self.divergent -= uneven

    def _range(self, var: Var, extent: Expr) -> Facts:
        facts = self.facts.looping(var, extent)
        return facts if isinstance(extent, Const) else facts.assuming(var < extent)

    def _bound(self, stmt: For) -> None:
        where, axis = place_of(stmt)
        place = f"{where}.{axis}"
        if where == "blockIdx" and self.loops:
            raise CodegenError(f"loop `{stmt.var.name}` is bound to {stmt.thread} inside of a loop; move it outside")
        number, extent = AXES.index(axis), as_int(stmt.extent)
        name = self.variables[stmt.var] = self.names.fresh(stmt.var.name)
        function = "get_group_id" if where == "blockIdx" else "get_local_id"
        value = f"({self.index_type}){function}({number})"
        if where == "blockIdx" and self.group:
            value = along(axis, self.groups, self.group)
        largest = (self.groups if where == "blockIdx" else self.items)[axis]
        if place in self.active:
            raise CodegenError(f"loop `{stmt.var.name}` is bound to {stmt.thread} inside of another loop bound to it")
        if where == "threadIdx":
            self.differing.add(stmt.var)
        self.active.add(place)
        inside = self.in_subgroup(stmt, name) if stmt.reduces else nullcontext()
        with self.knowing(self._range(stmt.var, stmt.extent)), self.braces(""), inside:
            self.line(f"const {self.index_type} {name} = {value};")
            if extent == largest and not self._is_fenced(stmt):
                self.statement(stmt.body)
            else:
                uneven = where == "threadIdx"
                self.divergent += uneven
                with self.braces(f"if ({name} < {extent})"):
                    self.statement(stmt.body)
                self.divergent -= uneven
        self.active.remove(place)

    def _is_fenced(self, stmt: For) -> bool:
        """Whether a loop over work-items stands between barriers, and holds none.

        PoCL adds barriers of its own to innermost loops that all items run, where a kernel has any; a condition that
        follows such a loop is then decided by one item for all.  It adds none below a condition on the item.
        PoCL has no subgroups, whose functions are left out of conditions.
        """
        is_plain = stmt.has_items and not stmt.reduces
        return is_plain and self.has_barriers and not needs_barrier(stmt.body, self.memories)

    def _if(self, stmt: If) -> None:
        cond = simplifier_for(self.facts).expr(self.fixed(stmt.cond))
        if isinstance(cond, Const):
            chosen = stmt.then if cond.value else stmt.orelse
            if chosen is not None:
                self.statement(chosen)
            return
        self._check_kept(cond, stmt)
        if dtypes.lanes(cond.dtype) > 1:
            self._if_lanes(cond, stmt)
            return
        self.divergent += 1
        head = f"if ({bare(self.scalar(cond))})"  # before the condition counts as known
        with self.knowing(self.facts.assuming(cond)), self.braces(head):
            self.statement(stmt.then)
        if stmt.orelse is not None:
            with self.knowing(self.facts.assuming(cond, False)), self.braces("else"):
                self.statement(stmt.orelse)
        self.divergent -= 1

    def _if_lanes(self, cond: Expr, stmt: If) -> None:
        """Each side for its own lanes, which are in one vector."""
        sides = [(cond, stmt.then)] + ([] if stmt.orelse is None else [(Not(cond), stmt.orelse)])
        for lanes, side in sides:
            with self.braces(""), self.where(lanes):
                self.statement(side)

    def _differs(self, expr: Expr) -> bool:
        """Whether work-items of one group may disagree about the value."""
        uses = any(isinstance(n, Load) for n in walk(expr)) or not self.differing.isdisjoint(variables(expr))
        return bool(self.items) and uses

    def _let(self, stmt: Let) -> None:
        value = self.fixed(stmt.value)
        dtype = stmt.var.dtype
        if isinstance(value, (Const, Var)) or dtypes.lanes(dtype) > 1:
            self._substituted(stmt, value)
            return
        self._check_kept(value, stmt.body)
        if self._differs(value):
            self.differing.add(stmt.var)
        with self.braces(""):
            text = self.scalar(value)
            name = self.variables[stmt.var] = self.names.fresh(stmt.var.name)
            self.line(f"const {self.ctype(dtype)} {name} = {bare(text)};")
            with self.knowing(self.facts.binding(stmt.var, value)):
                self.statement(stmt.body)

    def _substituted(self, stmt: Let, value: Expr) -> None:
        """The body with the value in place of the variable; a vector that memory may change is kept in an array."""
        if memories_read(value).isdisjoint(memories_written(stmt.body)):
            own = (s for s in walk_stmts(stmt.body) if isinstance(s, Store) and s in self.together)
            self.together |= {substitute(s, {stmt.var: value}) for s in own}
            self.statement(substitute(stmt.body, {stmt.var: value}))
            return
        self._check_kept(value, stmt.body)
        base, lanes = dtypes.split_dtype(value.dtype)
        kept, all_lanes = Buffer(stmt.var.name, (lanes,), base, "local"), (Ramp(const(0), const(1), lanes),)
        body: Stmt = substitute(stmt.body, {stmt.var: Load(kept, all_lanes)})
        self.written |= {kept.name}
        self._allocate(Allocate(kept, Seq((Store(kept, all_lanes, value), body))))

    def _allocate(self, stmt: Allocate) -> None:
        buffer = stmt.buffer
        if buffer.scope == "shared":
            around = self.memories
            self._declare_shared(buffer)
            self.statement(stmt.body)
            self.memories = around
            return
        self.private_bytes += buffer.nbytes
        if self.private_bytes > MAX_PRIVATE_BYTES:
            raise CodegenError(
                f"buffer `{buffer.name}` makes {self.private_bytes} bytes of private memory in kernel `{self.name}`; "
                f"at most {MAX_PRIVATE_BYTES} are allowed"
            )
        self.declare(buffer, "private")
        with self.braces(""):
            text = f"{self._array(buffer)} {self.pointers[buffer.name]}[{buffer.size}]"
            self.line(f"{text} __attribute__((aligned({ARRAY_ALIGNMENT})));")
            self.statement(stmt.body)
        self.private_bytes -= buffer.nbytes

    def _declare_shared(self, buffer: Buffer) -> None:
        """Local memory stands at the top of the kernel, one for all of a group's work-items."""
        for place in (f"threadIdx.{axis}" for axis, extent in self.items.items() if extent > 1):
            if place in self.active:
                raise CodegenError(
                    f"kernel `{self.name}` allocates `{buffer.name}` in local memory inside of the loop that is bound "
                    f"to {place}, where each work-item has its own; allocate it outside of that loop, or in scope local"
                )
        self.declare(buffer, "local")
        self.local_bytes += buffer.nbytes
        text = f"__local {self._array(buffer)} {self.pointers[buffer.name]}[{buffer.size}]"
        self.first_lines.append(f"    {text} __attribute__((aligned({ARRAY_ALIGNMENT})));")
        self.memories = self.memories.with_local(buffer)
