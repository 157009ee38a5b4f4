"""Small random programs of bare loops and conditions, as script text, for what reasons about statement instances."""

from __future__ import annotations

import re

from hypothesis import strategies as st

INDICES = ("i", "j", "i + j", "(i + j) % 4", "3 - i", "i // 2", "j * 2 % 4", "0", "2")
CONDITIONS = ("i < 2", "i + j < 3", "j >= 1", "i == j", "i + j >= 2 and i < 3", "i % 2 == 0")
VALUES = ("T.float32(0)", "T.float32(7)", "x[0]", "a[{r}]", "a[{r}] + x[0]", "b[{r}]",
          "T.if_then_else({c}, T.float32(0), x[1])", "T.if_then_else({c}, a[{r}], T.float32(7))")  # fmt: skip


@st.composite
def statements(draw: st.DrawFn, depth: int = 0) -> list[str]:
    """Lines of stores to `a` and `b` under loops over ``i`` and ``j`` and conditions."""
    index, read, cond = (draw(st.sampled_from(x)) for x in (INDICES, INDICES, CONDITIONS))
    value = draw(st.sampled_from(VALUES)).format(r=f"({read}) % 6", c=cond)
    line = f"{draw(st.sampled_from('ab'))}[{index}] = {value}"
    return ["    " + line] if draw(st.booleans()) else [f"    if {cond}:", "        " + line]


@st.composite
def programs(draw: st.DrawFn) -> str:
    """A function of two or three nests over at most two loops, named apart."""
    lines = []
    for number in range(draw(st.integers(2, 3))):
        i, j = f"i{number}", f"j{number}"
        body = [line for _ in range(draw(st.integers(1, 2))) for line in draw(statements())]
        nest = [f"for {i} in range({draw(st.integers(1, 4))}):"]
        if draw(st.booleans()):
            nest += [f"    for {j} in range({draw(st.integers(1, 3))}):"] + ["    " + line for line in body]
        else:
            nest += [line.replace("j", "1") for line in body]
        lines += [_renamed(line, i, j) for line in nest]
    text = "\n".join("    " + line for line in lines)
    return (
        "@T.prim_func\ndef main(x: T.Buffer((2,), 'float32'), b: T.Buffer((6,), 'float32')):\n"
        f"    a = T.alloc_buffer((6,), 'float32')\n{text}\n"
    )


def _renamed(line: str, i: str, j: str) -> str:
    return re.sub(r"\bj\b", j, re.sub(r"\bi\b", i, line))
