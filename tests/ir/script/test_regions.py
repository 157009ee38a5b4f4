"""``T.reads`` and ``T.writes`` are compared with what a block does."""

from __future__ import annotations

import pytest

from stridesmith.ir.script.parser import ScriptError, parse

TEXT = """
@T.prim_func
def f(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16,), "float32"), N: T.Buffer((16,), "int32")):
    for i, j in T.grid(4, 4):
        with T.block("b"):
            vi = T.axis.spatial(4, i)
            vj = T.axis.{kind}(4, j)
            T.reads({reads})
            T.writes({writes})
            {body}
"""
UPDATE = "B[vi] = B[vi] + A[vi * 4, vj]"
INIT = "with T.init():\n                B[vi] = 0\n            " + UPDATE


def read(reads: str, writes: str, body: str, kind: str = "spatial") -> None:
    parse(TEXT.format(reads=reads, writes=writes, body=body, kind=kind))


@pytest.mark.parametrize(
    ("reads", "writes", "body"),
    [
        ("B[vi], A[vi * 4, vj]", "B[vi]", UPDATE),
        ("[B[vi], A[vi * 4, vj]]", "[B[vi]]", UPDATE),
        ("B[0:16], A[vi * 4 : vi * 4 + 1, 0:4]", "B", UPDATE),
        ("A[0:13, vj], B", "B[vi : vi + 2]", UPDATE),
        ("A[vi, vj], A[vi + 1, 0:16]", "B[vi]", "B[vi] = A[vi, vj] + A[vi + 1, vj + 3]"),
        ("A[vi, 0:8]", "B[vi]", "for k in range(2):\n                B[vi] = A[vi, vj * 2 + k]"),
        ("A[vi, 0:3]", "B[vi]", "if vj < 3:\n                B[vi] = A[vi, vj]"),
        ("A[vi, 0:3]", "B[vi]", "B[vi] = T.if_then_else(vj < 3, A[vi, vj], T.float32(0))"),
        ("A[vi, 0:4]", "B[vi]", "B[vi] = T.Let(A[vi, x], where={x: 3 - vj})"),
        ("A[vi, 0:4]", "B[vi]", "x: T.int64 = 3 - vj\n            B[vi] = A[vi, x]"),
        ("A[vi, 4:8]", "A[vi, 0:4]", "A[vi, T.Ramp(0, 1, 4)] = A[vi, 4:8]"),
        ("A[vi, 0:10]", "B[vi]", "B[vi] = A[vi, vj * vj]"),
        ("A[vi, 0:16], N[vj]", "B[vi]", "B[vi] = A[vi, N[vj]]"),
        ("A", "B[vi]", "V = T.decl_buffer((256,), 'float32', data=A.data)\n            B[vi] = V[vi * 16 + vj]"),
        ("A[vi, vj]", "B[vi]", "X = T.alloc_buffer((4,))\n            X[vj] = A[vi, vj]\n            B[vi] = X[vj]"),
        ("A[vi, 0:10]", "B[0:8]", "B[T.Broadcast(vj, 2) + T.Ramp(0, 4, 2)] = A[vi, vj * T.Ramp(0, 1, 2) + vj]"),
        ("A[vi, vj]", "B[vi]", "T.assume(A[vi, vj] > 0 or N[vi] == 0)\n            B[vi] = 0"),
        ("A[0:N[vi] + 1, 0], N[vi]", "B[vi]", "B[vi] = A[N[vi], 0]"),
        ("", "", "pass"),
    ],
)  # fmt: skip
def test_declarations_that_hold(reads: str, writes: str, body: str) -> None:
    """A region that covers every access is accepted, however it is written."""
    read(reads, writes, body)


def test_init_hides_the_reads_of_what_is_reduced() -> None:
    """As TVM prints it, a reduction reads its operands alone."""
    read("A[vi * 4, vj]", "B[vi]", INIT, "reduce")
    with pytest.raises(ScriptError, match=r"reads `B\[vi\]`, which is not declared"):
        read("A[vi * 4, vj]", "B[vi]", UPDATE)


@pytest.mark.parametrize(
    ("reads", "writes", "body", "sentence"),
    [
        ("A[vi, vj]", "B[vi]", "B[vi] = A[vj, vi]",
         "its body reads `A[vj, vi]` outside of the declared region at vi=0, vj=1; declared is `T.reads(A[vi, vj])`, "
         "derived is `T.reads(A[vj, vi])`"),
        ("A[vi, 0:3]", "B[vi]", "B[vi] = A[vi, vj]", "outside of the declared region at vi=0, vj=3"),
        ("A[vi, vj], N[vi]", "B[vi]", "B[vi] = A[vi, vj]",
         "its body does not read `N`; declared is `T.reads(A[vi, vj], N[vi])`, derived is `T.reads(A[vi, vj])`"),
        ("A[vi, vj]", "B[vi], A[vi, vj]", "B[vi] = A[vi, vj]", "its body does not write `A`"),
        ("", "B[vi]", "B[vi] = A[vi, vj]", "its body reads `A[vi, vj]`, which is not declared"),
        ("A[vi, 0:9]", "B[vi]", "B[vi] = A[vi, vj * vj]", "outside of the declared region at vi=0, vj=3"),
        ("A[vi, 0:4], N[vj]", "B[vi]", "B[vi] = A[vi, N[vj]]", "outside of the declared region at N[vj]=4"),
        ("A[vi, 0:4], N[vj]", "B[vi]", "B[vi] = A[vi, N[vj] * N[vj]]", "it cannot be decided"),
        ("A[vi, 5:8]", "A[vi, 0:4]", "A[vi, 0:4] = A[vi, 4:8]", "outside of the declared region"),
        ("A[vi]", "B[vi]", "B[vi] = A[vi, vj]", "`A` has shape (16, 16), but the region is `A[vi]`"),
    ],
)  # fmt: skip
def test_declarations_that_fail(reads: str, writes: str, body: str, sentence: str) -> None:
    """The error shows what is declared, what is derived, and a point where they differ."""
    with pytest.raises(ScriptError) as caught:
        read(reads, writes, body)
    assert sentence in caught.value.message
    assert caught.value.source.strip().startswith(("T.reads", "T.writes"))


def test_empty_declarations_of_an_opaque_block_say_nothing() -> None:
    """TVM prints blocks without iterators so; with iterators an empty declaration is one."""
    parse(TEXT.replace("vi = T.axis.spatial(4, i)", "").replace("vj = T.axis.{kind}(4, j)", "").format(
        reads="", writes="", body="B[i] = A[i, j]"))  # fmt: skip
    with pytest.raises(ScriptError, match="which is not declared"):
        read("", "", "B[vi] = A[vi, vj]")
