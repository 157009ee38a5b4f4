"""The reference of the primitives as a page's text, made from their own signatures and docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from . import primitives
from .primitive import PRIMITIVES
from .wrappers import WRAPPERS

START, END = "<!-- primitives -->\n", "<!-- end of primitives -->"

__all__ = ["primitives", "reference", "with_reference"]


def reference() -> str:
    """Every primitive and wrapper in alphabetical order: its call, then what it says of itself."""
    entries = {name: (p.signature, p.rewrite) for name, p in PRIMITIVES.items()}
    entries |= {name: (_of_schedule(fn), fn) for name, fn in WRAPPERS.items()}
    return "\n".join(_entry(name, *entries[name]) for name in sorted(entries))


def with_reference(page: str) -> str:
    """`page` with the reference between its marks.  Raises ValueError where it has none."""
    if START not in page or END not in page:
        raise ValueError(f"the page has no marks {START.strip()!r} and {END!r}")
    before, rest = page.split(START, 1)
    return f"{before}{START}{reference()}{END}{rest.split(END, 1)[1]}"


def _of_schedule(fn: Callable[..., Any]) -> inspect.Signature:
    """The signature of a wrapper as a method."""
    signature = inspect.signature(fn)
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def _entry(name: str, signature: inspect.Signature, fn: Callable[..., Any]) -> str:
    plain = signature.replace(return_annotation=inspect.Signature.empty)
    lines = [f"    {line}".rstrip() for line in inspect.cleandoc(fn.__doc__ or "").splitlines()]
    call = f"{name}{plain}".replace("'", "")
    return "\n".join(["```", call, *lines, "```", ""])
