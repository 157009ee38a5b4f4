"""A program as OpenCL C: one kernel for each statement at its top."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ....ir import dtypes
from ....ir.arith.intervals import Facts
from ....ir.collection import uncollected
from ....ir.expr import Buffer, Expr, Extent, as_int
from ....ir.node import walk
from ....ir.passes.flat import product
from ....ir.stmt import Evaluate, For, Stmt, memories_written, walk_stmts
from ....ir.target import BYTE_DOTS, POCL, Target
from ...errors import CodegenError
from ...launch import Launch, Source, with_digest
from ...legal.checks import arguments, images
from ...legal.program import legal
from ...legal.work_items import (
    AXES,
    given_of,
    is_serial,
    most_threads,
    statements_at_top,
    subgroup_size,
    work_of,
)
from ...legal.written_out import FENCE
from .helpers import CALL_BYTES, DOT_BUILTIN, POCL_CALL_BYTES, Helpers
from .kernel import Kernel, Language, NeedsLong
from .scalars import SCALARS
from .statements import NUMBERED, Body, statement
from .types import Names
from .vectors import VECTORS

if TYPE_CHECKING:
    from ...lower import Lowered


@uncollected
def generate(lowered: Lowered, target: Target) -> Source:
    """OpenCL C for `lowered`.  Raises CodegenError for what it cannot express or the device cannot hold."""
    given, lowered = lowered, legal(lowered, target)
    call_bytes = POCL_CALL_BYTES if target.platform == POCL and target.execution.has_vectors else CALL_BYTES
    helpers = Helpers(call_bytes, target.has_avx512_builtins)
    language = Language(target.execution, helpers, target.computed_as_float, SCALARS, VECTORS)
    buffers = lowered.memories
    parts = statements_at_top(lowered.body)
    names = Names()
    kernels: list[str] = []
    launches: list[Launch] = []
    changed = {k for k, b in enumerate(buffers) if b.name in memories_written(lowered.body)}  # by the call before
    for part in parts:
        name = names.fresh(f"{lowered.name}_kernel" if len(parts) == 1 else f"{lowered.name}_kernel_{len(launches)}")
        launch = _launch(name, part, lowered, target)
        kernels.append(_kernel(part, buffers, launch, target, Facts({}, strict=lowered.strict), language))
        launches.append(replace(launch, stale=tuple(k for k in launch.images if k in changed)))
        written = {k for k, b in enumerate(buffers) if b.name in memories_written(part)}
        # What a call of some sizes leaves out refreshes nothing.
        changed = (changed if launch.sizes else changed - set(launch.images)) | written
    text = helpers.text() + "\n" + "\n".join(kernels)
    return with_digest(_header(given, target, text) + text, launches)


def _header(lowered: Lowered, target: Target, text: str) -> str:
    """The pragmas of a source."""
    header = "#pragma OPENCL FP_CONTRACT ON\n"
    used = {dtypes.element(n.dtype) for n in walk(lowered.body) if isinstance(n, (Expr, Buffer))}
    if "float64" in used:
        if "cl_khr_fp64" not in target.features.split():
            raise CodegenError(f"`{target.name}` has no float64 arithmetic (cl_khr_fp64 is missing)")
        header += "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
    if "float16" in used and "float16" not in target.computed_as_float:
        header += "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n"
    if DOT_BUILTIN in text:
        header += f"#pragma OPENCL EXTENSION {BYTE_DOTS} : enable\n"
    return header


def _launch(name: str, part: Stmt, lowered: Lowered, target: Target) -> Launch:
    """How a kernel is launched.  Where the threads of a pool share its work-groups, these are numbered along x."""
    buffers, work, given = lowered.memories, work_of(part, lowered.sizes), given_of(part, lowered.sizes)
    as_images = images(part, buffers)
    local = [work.items.get(a, 1) for a in AXES]
    counts: list[Extent] = [work.groups.get(a, 1) for a in AXES]
    if target.has_thread_pool and work.groups and not as_images:
        counts = [product(counts), 1, 1]
    is_fixed = not any(isinstance(count, Expr) for count in counts)
    size = tuple(as_int(c) * n for c, n in zip(counts, local, strict=True)) if is_fixed else tuple(local)
    serial = any(isinstance(node, For) and is_serial(node) for node in walk_stmts(part))
    args = arguments(part, buffers)
    return Launch(
        name, size, tuple(local), args, as_images, serial=serial, threads=most_threads(part), sizes=lowered.sizes,
        when=given.when, counts=() if is_fixed else tuple(counts),
    )  # fmt: skip


def _kernel(
    part: Stmt, buffers: Sequence[Buffer], launch: Launch, target: Target, facts: Facts, language: Language
) -> str:
    """The text of a kernel, with indices of 32 bits where those of 64 cost something and these suffice."""
    # 64-bit addresses cost a CPU nothing, and sign extensions in the inner loop would; a GPU pays for them.
    if not language.execution.addresses_in_64_bits:
        try:
            return _written(part, buffers, launch, target, Kernel(language, "int", facts, memories_written(part)))
        except NeedsLong:
            pass
    return _written(part, buffers, launch, target, Kernel(language, "long", facts, memories_written(part)))


def _written(part: Stmt, buffers: Sequence[Buffer], launch: Launch, target: Target, k: Kernel) -> str:
    work, size = work_of(part, launch.sizes), subgroup_size(launch.kernel, part, launch.local_size[0])
    k.writer.names.fresh(launch.kernel)
    for number in launch.args:
        k.declare(buffers[number], "image" if number in launch.images else "global")
    body = Body(k, work, sizes={name: k.writer.names.fresh(f"{name}_size") for name in launch.sizes}, when=launch.when)
    if target.has_thread_pool and work.groups and not launch.images:
        body.group = k.writer.names.fresh("group")
        k.writer.first_lines.append(f"    const long {body.group} = {NUMBERED};")
    statement(body, part)
    header = f"__kernel __attribute__((reqd_work_group_size({', '.join(map(str, launch.local_size))})))\n"
    if size:
        header += f"__attribute__((intel_reqd_sub_group_size({size})))\n"
    fenced = any(isinstance(s, Evaluate) and s.value == FENCE for s in walk_stmts(part))
    parameters = [_parameter(k, buffers[number], fenced) for number in launch.args]
    parameters += [f"const long {name}" for name in body.sizes.values()]
    header += f"void {launch.kernel}({', '.join(parameters)}) {{\n"
    return header + "\n".join([*k.writer.first_lines, *k.writer.lines]) + "\n}\n"


def _parameter(k: Kernel, buffer: Buffer, fenced: bool) -> str:
    memory = k.memories[buffer.name]
    if memory.space == "image":
        return f"__read_only image2d_t {memory.pointer}"
    kind = k.types.array(buffer.dtype)
    if buffer.name in k.writer.written:
        return f"__global {kind}* restrict {memory.pointer}"
    # `restrict` tells a compiler that no fence changes what is only read here, so it would keep what it has loaded.
    alone = "" if fenced else " restrict"
    return f"__global const {kind}*{alone} {memory.pointer}"
