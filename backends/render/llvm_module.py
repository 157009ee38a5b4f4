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
from typing import TYPE_CHECKING, Any

from ...ir import dtypes
from ...ir.collection import uncollected
from ...ir.depth import deep
from ...ir.expr import Var, variables
from ...ir.node import walk
from ...ir.stmt import Allocate, For, read_buffers, written_buffers
from ...ir.target import Target
from ..errors import CodegenError
from ..legal.program import legal
from ..llvm.builder import Builder, Value, plain
from ..llvm.index import Linear
from ..llvm.types import ModuleText, value_type
from .llvm import LONGEST, Context, Printer, annotation

if TYPE_CHECKING:
    from ..lower import Lowered

PARALLEL = "stridesmith_parallel"


def entry_name(name: str) -> str:
    """The symbol of the function `name`: letters, digits and underscores."""
    return f"kernel_{plain(name)}"


@uncollected
@deep()
def generate(lowered: Lowered, target: Target) -> str:
    """The module text of `lowered` for the CPU `target`, over buffers of one axis.  Raises CodegenError."""
    lowered, entry = legal(lowered, target), entry_name(lowered.name)
    buffers = (*lowered.params, *lowered.workspaces)
    for buffer in buffers:
        if len(buffer.shape) != 1:
            raise CodegenError(
                f"buffer `{buffer.name}` has {len(buffer.shape)} physical axes; CPU code takes linear memory of one, "
                f"flatten it without axis separators"
            )
    register_bytes = max(target.vector_bits // 8, 16)
    module = ModuleText(lowered.strict, target.cpu_features, 8 * register_bytes, target.has_mask_registers)
    module.functions.append(_entry(entry, len(buffers)))
    context = Context(module, entry, _attributes(target), _parallel)
    function = Printer(context, f"{entry}.body", ["i64 %threads", *_noalias(b.name for b in buffers)])
    function.out.pointers.update({b.name: _pointer(b.name) for b in buffers})
    function.out.alignments.update({b.name: dtypes.nbytes(dtypes.element(b.dtype)) for b in lowered.params})
    function.out.alignments.update({b.name: 64 for b in lowered.workspaces})
    function.statement(lowered.body)
    module.functions.append(function.out.text("internal", context.attributes))
    return module.text()


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


# --- parallel loops -------------------------------------------------------------------------------


def _parallel(p: Printer, stmt: For, extent: Linear) -> None:
    """The loop as a task over a range of iterations, handed to the thread pool.

    Its annotations: `chunk`, the iterations of a range, and `threads`, at most so many; one makes a serial loop.
    """
    out, module = p.out, p.context.module
    name = f"{p.context.name}.task{len(module.functions)}"
    module.functions.append("")  # reserves the number
    buffers, scalars = _captured(p, stmt)
    pointers = [out.pointers[b] for b in buffers]
    values = [out.materialise(p.env[v.name], v.dtype) for v in scalars]
    kinds = ["ptr"] * len(buffers) + [value_type(v.dtype) for v in scalars]
    record = _record(out, [*pointers, *values], kinds, _places(len(buffers), scalars))
    _outline(p, stmt, name, extent, (buffers, scalars))
    function = module.declare(PARALLEL, "void", "ptr", "ptr", "i64", "i64", "i64")
    total, chunk, threads = out.scalar(extent), annotation(stmt, "chunk"), "%threads"
    most = annotation(stmt, "threads")
    if most:
        least = module.declare("llvm.smin.i64", "i64", "i64", "i64")
        threads = out.emit(f"call i64 {least}(i64 %threads, i64 {most})")
    out.do(f"call void {function}(ptr @{name}, ptr {record}, i64 {total}, i64 {chunk}, i64 {threads})")
    out.forget(p.context.written(stmt))


def _captured(p: Printer, stmt: For) -> tuple[list[str], list[Var]]:
    """The memory and the variables from outside that the loop uses, by name."""
    inside = {n.buffer.name for n in walk(stmt.body) if isinstance(n, Allocate)}
    touched = (*read_buffers(stmt.body), *written_buffers(stmt.body))
    used = [b for b in touched if inside.isdisjoint((b.name, b.data))]
    outside = {v for v in variables(stmt.body) if v.name in p.env}
    return sorted({p.out.root(b) for b in used}), sorted(outside, key=lambda v: v.name)


def _record(out: Builder, operands: list[str], kinds: list[str], places: list[int]) -> str:
    """Stack memory with the operands at `places`, in units of eight bytes; the last one is the end."""
    record = out.emit(f"alloca [{max(places[-1], 1)} x i64], align 64", out.entry)
    for place, operand, kind in zip(places, operands, kinds, strict=False):
        slot = out.emit(f"getelementptr i64, ptr {record}, i64 {place}")
        out.do(f"store {kind} {operand}, ptr {slot}, align 8")
    return record


def _outline(p: Printer, stmt: For, name: str, extent: Linear, captured: tuple[list[str], list[Var]]) -> None:
    """The function over a range of iterations, and the task that unpacks its arguments."""
    context, (buffers, scalars) = p.context, captured
    kinds = [value_type(v.dtype) for v in scalars]
    values = [f"{kind} %s.{number}" for number, kind in enumerate(kinds)]
    inner = Printer(context, f"{name}.body", ["i64 %begin", "i64 %end", *_noalias(buffers), *values])
    inner.stack_bytes = p.stack_bytes  # the thread that calls runs both
    inner.parallel_depth = p.parallel_depth + 1
    inner.out.pointers.update({b: _pointer(b) for b in buffers})
    inner.out.alignments.update({b: p.out.alignments[b] for b in buffers if b in p.out.alignments})
    for number, var in enumerate(scalars):
        inner.bind(var, _argument(inner.out, f"%s.{number}", p.env[var.name], var))
    largest = min(max(extent.bounds()[1] - 1, 0), LONGEST)
    with inner.out.loop("%begin", "%end", (0, largest), True, set(), stmt.var.name) as iteration:
        inner.bind(stmt.var, iteration)
        inner.statement(stmt.body)
    functions = context.module.functions
    functions.append(inner.out.text("internal", context.attributes))
    functions.append(_task(name, ["ptr"] * len(buffers) + kinds, _places(len(buffers), scalars)))


def _argument(out: Builder, name: str, outside: Value, var: Var) -> Value:
    """A variable from outside of the function: the argument `name`, with the interval that it had."""
    if var.dtype != dtypes.INDEX:
        return name
    bounds = outside.bounds() if isinstance(outside, Linear) else (-(2**63), 2**63 - 1)
    return out.parameter(name, *bounds)


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
