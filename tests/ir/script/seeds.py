"""Scripts that use all of the language: what the fuzzer starts from."""

from __future__ import annotations

from stridesmith.space.workloads import workload

FORMS = """
import numpy as np
from tvm.script import tirx as T
M = 16

@T.prim_func
def forms(a: T.handle, B: T.Buffer[(16,), "float32x4"], n: T.int32, x: T.float16):
    T.func_attr({"global_symbol": "forms", "note": {"a": 1, "b": (1, 2.5, None)}})
    A = T.match_buffer(a, (M, M), "float32", scope="global", axis_separators=[1])
    C = T.alloc_buffer((16,), "int32", scope="local")
    y: T.float32 = A[0, 0] * T.float32(0.5)
    for i, j in T.grid(16, 4):
        with T.block("b"):
            vi, vj = T.axis.remap("SR", [i, j])
            T.where(i * 4 + j < 60)
            T.reads(A[vi, vj], C[vi])
            T.writes(C[vi])
            T.block_attr({"tile": (4, 4)})
            with T.init():
                C[vi] = 0
            C[vi] += T.Cast("int32", A[vi, vj]) * T.int32(3)
    for k in T.thread_binding(0, 4, thread="threadIdx.x", annotations={"unit": True}):
        with T.block("opaque"):
            v = T.axis.opaque(4, k)
            T.assume(not (v < 2) or A[v, 0] == T.undef())
            if v < 3 and n > 0:
                A[v, T.Ramp(0, 1, 4)] = B[v]
            elif v == 3:
                A[v, 0:4] = T.Broadcast(T.Select(v > 0, y, T.float32("inf")), 4)
            else:
                T.evaluate(T.if_then_else(v < 2, A[v, 0], T.exp(A[v, 1])))
"""

LOWERED = """
@T.prim_func
def lowered(A: T.Buffer((64,), "float32"), H: T.Buffer((8,), "float16"), G: T.Buffer((8,), "bool")):
    T.func_attr({"layouts": {"A": ((60,), "lambda i: [i]", "0.0")}})
    with T.allocate([16], "float32", scope="local") as tile:
        view = T.decl_buffer((4,), "float32x4", data=tile.data, scope="local")
        for i in T.vectorized(4):
            view[i] = A[T.Ramp(i * 4, 1, 4)]
        with T.attr(0, "pragma", "text"):
            tile[3] = T.Let(x + x, where={x: tile[2] + T.float32(1)})
    data = T.allocate([8], "int8")
    W = T.decl_buffer((2, 4), "int8", data=data)
    with T.LetStmt(A[0] < A[1], T.bool) as c:
        G[0] = c or not G[1]
    for i in T.serial(2, 8, annotations={"peel": True}):
        H[i] = T.float16(0.5) + T.sqrt(H[i - 2])
        W[i // 4, i % 4] = T.max(W[0, 0], T.int8(-3))
"""

MODULE = """
@I.ir_module
class Mod:
    @T.prim_func(private=True)
    def one(A: T.Buffer((4, 4), "bfloat16"), E: T.Buffer((4,), "float64")):
        for i in T.parallel(4):
            for j in T.unroll(4):
                A[i, j] = T.bfloat16(1) if i < j else A[j, i]
            E[i] = T.pow(E[i], T.float64(2.0)) - T.fma(E[0], E[1], E[2])

    @T.prim_func
    def two(U: T.Buffer((8,), "uint8"), L: T.Buffer((8,), "int64")):
        with T.block("root"):
            S = T.alloc_buffer((8,), "int16")
            for i in range(T.int32(8)):
                S[i] = T.Cast("int16", U[i])
                L[i] = T.Cast("int64", S[i]) % 7 - i // 3
"""

TVM = """
# from tvm.script import tirx as T
@T.prim_func(s_tir=True)
def views(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16,), "float32")):
    T.func_attr({"axis_separators": {"A": [1]}})
    x = T.int64()
    L = T.alloc_buffer((4, 4), "float32", scope="local")
    V = L.view(16)
    for i in range(T.int64(16)):
        with T.sblock("copy"):
            vi = T.axis.spatial(T.int64(16), i)
            T.reads(A[vi, 0:16])
            T.writes(B[vi])
            B[vi] = A[vi, T.Let(x % T.int64(16), where={x: vi + T.int64(1)})]
    y: T.let[T.int64] = T.int64(3)
    with T.attr({"key": 3}):
        tx = T.launch_thread("threadIdx.x", 4)
        V[tx + y] = T.Cast("float32", T.undef())
"""

NAMES = ("conv2d", "depthwise_conv2d", "matmul", "max_pool2d", "row_sum")
LIBRARY = [workload(name).func.script(dialect) for name in NAMES for dialect in (None, "tvm")]
SEEDS = [FORMS, LOWERED, MODULE, TVM, *LIBRARY]
