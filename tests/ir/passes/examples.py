"""What pass tests share: a program from the body of a script, a pass applied, the program that must come out."""

from __future__ import annotations

import textwrap
from typing import Any

from goldens.equal import same_program

from stridesmith.ir.passes.transform import PASSES
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.verify.rules import verify

HEAD = '@T.prim_func\ndef func(A: T.Buffer({0}, "float32"), B: T.Buffer({0}, "float32")):\n'


def program(body: str, shape: object = (16,)) -> PrimFunc:
    """A function over ``A`` and ``B`` of one shape; a body that starts with ``@`` is a whole function."""
    text = textwrap.dedent(body)
    if not text.lstrip().startswith("@"):
        text = HEAD.format(shape) + textwrap.indent(text, "    ")
    func = parse(text)
    assert isinstance(func, PrimFunc)
    verify(func)
    return func


def gives(name: str, before: str, after: str, shape: object = (16,), **options: Any) -> None:
    """The pass makes `after` of `before`, up to names and spelling, and nothing more of that."""
    new = PASSES[name](program(before, shape), **options)
    same_program(new, program(after, shape))
    assert PASSES[name](new, **options) == new


def stays(name: str, before: str, shape: object = (16,), **options: Any) -> None:
    """The pass leaves the program alone."""
    func = program(before, shape)
    assert PASSES[name](func, **options) == func, PASSES[name](func, **options).script()
