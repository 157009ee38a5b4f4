"""The references in the pages, made from signatures and docstrings: ``python docs/references.py`` writes them.

A page has two marks, between which the text stands.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import stridesmith
from stridesmith.space import primitives
from stridesmith.space.primitive import PRIMITIVES
from stridesmith.space.wrappers import WRAPPERS

DOCS = Path(__file__).resolve().parent
START, END = "<!-- reference -->\n", "<!-- end of reference -->"
HIDDEN = frozenset(dir(object)) | {"__init__"}

__all__ = ["primitives"]  # which fill PRIMITIVES


def pages() -> dict[str, str]:
    """The reference of each page that has one, by the page's name."""
    return {"schedules.md": of_primitives(), "python.md": of_public_names()}


def with_reference(page: str, reference: str) -> str:
    """`page` with the reference between its marks.  Raises ValueError where it has none."""
    if START not in page or END not in page:
        raise ValueError(f"the page has no marks {START.strip()!r} and {END!r}")
    before, rest = page.split(START, 1)
    return f"{before}{START}{reference}{END}{rest.split(END, 1)[1]}"


def of_primitives() -> str:
    """Every primitive and wrapper in alphabetical order: a heading, its call, and what it says of itself."""
    entries = {name: (p.signature, p.rewrite) for name, p in PRIMITIVES.items()}
    entries |= {name: (_as_method(fn), fn) for name, fn in WRAPPERS.items()}
    return "\n".join(f"#### {name}\n\n```\n{_called(name, *entries[name])}\n```\n" for name in sorted(entries))


def of_public_names() -> str:
    """Every function and class that `import stridesmith` offers, in alphabetical order."""
    parts = []
    for name in sorted(stridesmith.__all__, key=str.lower):
        value = getattr(stridesmith, name)
        if inspect.isclass(value):
            parts.append(_class(name, value))
        elif callable(value):
            parts.append(_called(name, inspect.signature(value), value))
    return "\n".join(f"```\n{part}\n```\n" for part in parts)


def _class(name: str, value: type[Any]) -> str:
    """A class with its public methods and properties, each with the first paragraph of what it says of itself."""
    lines = [f"class {name}", *_indented(value.__doc__)]
    for method, found in _own(value):
        lines.append("")
        if isinstance(found, (property, cached_property)):
            lines += [f"    {name}.{method}", *_indented(_first_paragraph(found.__doc__), 8)]
        else:
            function = found.__func__ if isinstance(found, (staticmethod, classmethod)) else found
            signature = inspect.signature(function)
            shown = signature if isinstance(found, staticmethod) else _as_method(function)
            lines += [f"    {name}.{method}{_plain(shown)}", *_indented(_first_paragraph(function.__doc__), 8)]
    return "\n".join(lines)


def _own(value: type[Any]) -> Iterable[tuple[str, Any]]:
    """The public methods and properties of a class that have a docstring, its own and those of bases in the package."""
    found: dict[str, Any] = {}
    for base in reversed([b for b in value.__mro__ if b.__module__.startswith("stridesmith")]):
        found |= vars(base)
    for name, item in found.items():
        documented = getattr(item, "__doc__", None) and (
            inspect.isfunction(item) or isinstance(item, (property, cached_property, staticmethod, classmethod))
        )
        if documented and (not name.startswith("_") or name == "__call__") and name not in HIDDEN:
            yield name, item


def _called(name: str, signature: inspect.Signature, fn: Callable[..., Any]) -> str:
    return "\n".join([f"{name}{_plain(signature)}", *_indented(fn.__doc__)])


def _as_method(fn: Callable[..., Any]) -> inspect.Signature:
    """The signature without the first parameter."""
    signature = inspect.signature(fn)
    return signature.replace(parameters=list(signature.parameters.values())[1:])


class _Bare(str):
    """A type as it stands in the code, without quotes."""

    def __repr__(self) -> str:
        return str(self)


def _plain(signature: inspect.Signature) -> str:
    bare = [p if p.annotation is p.empty else p.replace(annotation=_Bare(p.annotation))
            for p in signature.parameters.values()]  # fmt: skip
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def _first_paragraph(text: str | None) -> str:
    return inspect.cleandoc(text or "").split("\n\n")[0]


def _indented(text: str | None, by: int = 4) -> list[str]:
    return [f"{' ' * by}{line}".rstrip() for line in inspect.cleandoc(text or "").splitlines()]


if __name__ == "__main__":
    for name, reference in pages().items():
        page = DOCS / name
        page.write_text(with_reference(page.read_text(encoding="utf-8"), reference), encoding="utf-8")
