"""What became of a program: its lowered form, its code, and what the code does.

Compiling happens here, so this is for a process that may be lost (see ``search.workers.process``).
"""

from __future__ import annotations

from typing import Any

from ..ir.analysis import count_flops
from ..ir.depth import deep
from ..ir.expr import Const
from ..ir.node import children
from ..ir.stmt import Allocate, For, Stmt, script, walk_stmts
from ..ir.target import Target
from .legal.program import as_function, legal
from .lower import Lowered

SCOPES = ("global", "shared", "local")
"""Memory of an allocation: a cache on the stack of a thread, of a work-group, and registers (private)."""


def explain(lowered: Lowered, target: Target, compiled: bool = True) -> dict[str, Any]:
    """Texts and facts of `lowered`, all of it JSON.

    ``lowered`` and ``source`` are the legal program in script form and its LLVM IR or OpenCL C,
    ``computed_flops`` the operations of one call, those on padding included, and ``memory``
    the bytes of parameters as they lie, of workspaces, and what is allocated by scope, and
    ``parallel`` the loops that are shared by threads, each a name and its iterations.  Where
    `compiled`, a CPU adds ``assembly`` and ``inner_loop`` (`InnerLoop.to_json`, or None),
    OpenCL ``kernels`` (see `opencl.facts`).  Raises what the code generator raises.
    """
    facts = {
        "lowered": lowered_script(legal(lowered, target)),
        "computed_flops": _flops(lowered),
        "memory": memory(lowered),
        "parallel": parallel_loops(lowered),
    }
    if target.kind == "cpu":
        return facts | _cpu(lowered, target, compiled)
    return facts | _opencl(lowered, target, compiled)


@deep()
def lowered_script(lowered: Lowered) -> str:
    """The lowered program in script form, its workspaces allocated around the body."""
    return script(as_function(lowered))


def memory(lowered: Lowered) -> dict[str, int]:
    """Bytes of the parameters, of the workspaces, and of each scope's allocations in the code.

    Parameters whose extents are those of a call are left out.
    """
    facts = {
        "parameters": sum(buffer.nbytes for buffer in lowered.params if buffer.is_fixed),
        "workspaces": sum(buffer.nbytes for buffer in lowered.workspaces),
    }
    return facts | {scope: _alive(lowered.body, scope) for scope in SCOPES}


def parallel_loops(lowered: Lowered) -> list[tuple[str, int | None, int | None]]:
    """Loops that are shared by threads, in order: name, iterations, None where these vary, and the most threads.

    The last is None where all threads of the device share the loop.
    """
    loops = (n for n in walk_stmts(lowered.body) if isinstance(n, For) and n.kind == "parallel")
    found = []
    for n in loops:
        most = dict(n.annotations).get("threads")
        count = int(n.extent.value) if isinstance(n.extent, Const) else None
        found.append((n.var.name, count, most if isinstance(most, int) else None))
    return found


def _alive(stmt: Stmt, scope: str) -> int:
    """The most bytes of `scope` that are allocated at once in `stmt`."""
    below = max((_alive(child, scope) for child in children(stmt) if isinstance(child, Stmt)), default=0)
    return below + (stmt.buffer.nbytes if isinstance(stmt, Allocate) and stmt.buffer.scope == scope else 0)


def _flops(lowered: Lowered) -> int | None:
    """Floating-point operations of a lowered program; None where a condition has too many points to count."""
    try:
        return count_flops(lowered.body)
    except ValueError:
        return None


def _cpu(lowered: Lowered, target: Target, compiled: bool) -> dict[str, Any]:
    from .assembly.inner_loop import inner_loop, isa_of
    from .llvm.compile import binding, compile_assembly
    from .render.llvm_module import generate

    source = generate(lowered, target)
    if not compiled:
        return {"source": source}
    assembly = compile_assembly(source, target)
    found = inner_loop(assembly, target, isa_of(binding().get_default_triple()))
    return {"source": source, "assembly": assembly, "inner_loop": None if found is None else found.to_json()}


def _opencl(lowered: Lowered, target: Target, compiled: bool) -> dict[str, Any]:
    from .render.opencl.program import generate

    text = {"source": generate(lowered, target).text}
    if not compiled:
        return text
    from .opencl.facts import built_kernels

    return text | {"kernels": built_kernels(lowered, target)}
