"""Copies of statements bind names of their own, and equality up to such names."""

from __future__ import annotations

from ir.passes.examples import program

from stridesmith.ir.node import walk
from stridesmith.ir.passes.renaming import copied, distinct, same_statement
from stridesmith.ir.stmt import Block, For, Seq, names

FUNC = program("""
    S = T.alloc_buffer((16,), "float32")
    for i in range(16):
        with T.block("S"):
            v = T.axis.spatial(16, i)
            R = T.alloc_buffer((1,), "float32")
            R[0] = B[v]
            S[v] = R[0]
    for j in range(16):
        A[j] = S[j]
""")


def test_a_copy_binds_fresh_names_and_leaves_what_is_bound_outside() -> None:
    """A block may be called like a buffer that it uses: only the block is renamed."""
    loop = FUNC.body.body.stmts[0]
    other = copied(loop, names(FUNC))
    assert same_statement(loop, other) and other != loop
    block = next(n for n in walk(other) if isinstance(n, Block))
    assert block.name == "S_1" and block.allocs[0].name == "R_1" and "S_1[" not in program_text(other)


def program_text(stmt: For) -> str:
    from stridesmith.ir.stmt import script

    return script(stmt)


def test_statements_that_differ_are_not_the_same() -> None:
    """In what they bind, or in what they do."""
    first, second = FUNC.body.body.stmts
    assert not same_statement(first, second) and same_statement(second, second)


def test_distinct_statements_are_objects_of_their_own() -> None:
    """Equal programs, with no statement at two places."""
    store = FUNC.body.body.stmts[1].body
    func = FUNC.with_body(Block("root", (), Seq((store, store)), allocs=FUNC.body.allocs))
    new = distinct(func)
    assert new == func and new.body.body.stmts[0] is not new.body.body.stmts[1]
    assert distinct(new) is new
