"""The words of the script: every ``T.name`` that the parser knows, and the nearest one to a miss."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from ..dtypes import SCALAR_TYPES
from .intrinsics import TABLE

SCOPE_KEY = "stridesmith.scope"
"""The attribute around a binding whose body ends before its suite does, in the dialect for TVM; it leaves no trace."""

REGIONS_KEY = "stridesmith.regions"
"""The attribute around a call of what is not known, in the dialect for TVM, that says what it reads and writes."""

BLOCK = ("block", "sblock")
BLOCK_ALLOC = ("alloc_buffer", "sblock_alloc_buffer")
ALLOCATE = ("allocate", "alloc_local", "alloc_shared")
ALLOCATE_CONST = "allocate_const"
ENV_THREAD = "env_thread"
DECLARE = ("decl_buffer", "buffer_decl", "Buffer")
BLOCK_ATTR = ("block_attr", "sblock_attr")
OPAQUE = (
    "call_", "tvm_", "ptx_", "ptx.", "cuda.", "mma_", "amx.", "simdgroup", "make_filled_simdgroup", "vectorlow",
    "vectorhigh", "vectorcombine", "vectorshape", "dma_", "TVMBackend", "start_profile", "end_profile",
    "create_barriers", "anylist_", "nd_mem_alloc", "texture2d_", "get_active_lane_mask", "ignore_loop_partition",
    "print_buffer", "nvshmem", "metal.", "webgpu.", "ret", "lookup_param", "opaque",
)  # fmt: skip
"""How the names of calls begin that no target here has, and that are scheduled around."""
LET = ("let", "Let", "LetStmt", "bind")
HEADER = ("where", "reads", "writes", *BLOCK_ATTR)
LOOPS: Mapping[str, str] = {
    "range": "serial", "serial": "serial", "parallel": "parallel", "vectorized": "vectorized",
    "unroll": "unrolled", "unrolled": "unrolled", "thread_binding": "thread_binding",
}  # fmt: skip
AXES: Mapping[str, str] = {
    "spatial": "spatial", "S": "spatial", "reduce": "reduce", "R": "reduce",
    "opaque": "opaque", "O": "opaque", "scan": "opaque",
}  # fmt: skip

STATEMENTS = frozenset({
    *BLOCK, *BLOCK_ALLOC, *ALLOCATE, *DECLARE, *LET, *HEADER, *(LOOPS.keys() - {"range"}),
    *(f"axis.{kind}" for kind in (*AXES, "remap")),
    "grid", "init", "match_buffer", "assume", "evaluate", "attr", "func_attr", "launch_thread", "meta_var", "var",
    ALLOCATE_CONST, ENV_THREAD,
})  # fmt: skip
DEFINITIONS = frozenset({"prim_func", "ir_module", "Buffer", "handle"})
EXPRESSIONS = frozenset({*(n for n in TABLE if n.isidentifier()), *SCALAR_TYPES, "Let"})


def near(name: str, known: Iterable[str], before: str = "") -> str:
    """``; did you mean `T.serial`?`` for the nearest of the `known` words, or nothing; `before` stands before it."""
    found = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean `{before}{found[0]}`?" if found else ""


def unknown(name: str) -> str:
    """What is wrong with ``T.name`` where a value is expected."""
    if name in STATEMENTS | DEFINITIONS:
        return f"`T.{name}` is not a value and cannot stand here"
    return f"unknown function `T.{name}`{near(name, EXPRESSIONS | STATEMENTS, 'T.')}"
