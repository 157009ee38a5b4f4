"""What every part of the parser shares: positions in the text, names in scope."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any

from ...errors import ProgramError
from ..dtypes import INDEX
from ..expr import Buffer, Expr, as_index, const
from ..statements import fresh

LONGEST_LINE, LONGEST_MESSAGE = 200, 600  # characters that an error repeats of what it is about
NAMESPACES = frozenset({"T", "tir", "tirx", "I", "ir", "ss", "stridesmith", "tvm", "script"})


class ScriptError(ProgramError, ValueError):
    """Text that is not a program.  `line` and `column` count from 1; `source` is that line."""

    def __init__(self, message: str, line: int, column: int, source: str) -> None:
        self.message, self.line, self.column, self.source = message, line, column, source
        text, at = _shown(source, column - 1)
        if len(message) > LONGEST_MESSAGE:
            message = f"{message[: LONGEST_MESSAGE // 2]}...{message[-LONGEST_MESSAGE // 2 :]}"
        place = f"\n    {text}\n    {' ' * at}^" if text.strip() else ""
        super().__init__(f"line {line}, column {column}: {message}{place}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.line, self.column, self.source)


def _shown(source: str, at: int) -> tuple[str, int]:
    """The line without its indentation, of a long one what is around the place, and the place in that."""
    text = source.lstrip()
    at = max(0, at - (len(source) - len(text)))
    start = max(0, at - LONGEST_LINE // 2) if len(text) > LONGEST_LINE else 0
    end = start + LONGEST_LINE
    before, after = "..." * (start > 0), "..." * (end < len(text))
    return before + text[start:end] + after, at - start + len(before)


@dataclass(frozen=True)
class Source:
    """The text that is parsed, and where it stands in its file."""

    lines: Sequence[str]
    first_line: int = 1
    indent: int = 0

    def error(self, where: ast.AST, message: str) -> ScriptError:
        row, column = getattr(where, "lineno", 1), getattr(where, "col_offset", 0)
        text = self.lines[row - 1] if row <= len(self.lines) else ""
        characters = len(text.encode()[:column].decode(errors="ignore"))
        line = " " * self.indent + text
        return ScriptError(message, row + self.first_line - 1, characters + self.indent + 1, line)


@dataclass(frozen=True)
class Window:
    """A region of a buffer under a name of its own: its element ``[i, j]`` is ``buffer[begin + i, begin + j]``.

    It has `rank` dimensions, the last ones of the buffer; in those before it is one element wide.
    """

    buffer: Buffer
    begin: tuple[Expr, ...]
    rank: int

    @property
    def offset(self) -> Expr:
        """The place of its first element among those of the buffer, whose shape is fixed."""
        wide = (as_index(b) * stride for b, stride in zip(self.begin, self.buffer.strides, strict=True))
        return reduce(add, wide, const(0))


@dataclass
class Scope:
    """Names of one function: what each means here, and which are used up.

    A name that is bound again after its scope ended is renamed (``i``, ``i_1``),
    because a name stands for one thing in the whole function.  `declared` are
    variables with a type that a let is yet to bind (``x = T.int32()``), and `threads` those of thread axes that a
    launch is yet to bind (``tx = T.env_thread("threadIdx.x")``).  A plain integer that takes no type from what stands
    beside it is one of `integers`.
    """

    source: Source
    captured: Mapping[str, Any] = field(default_factory=dict)
    frames: list[dict[str, Expr | Buffer | Window]] = field(default_factory=lambda: [{}])
    taken: set[str] = field(default_factory=set)
    ended: dict[str, int] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    lets: dict[str, Expr] = field(default_factory=dict)
    declared: dict[str, str] = field(default_factory=dict)
    threads: dict[str, str] = field(default_factory=dict)
    integers: str = INDEX

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Names bound inside end with the ``with`` statement."""
        self.frames.append({})
        yield
        for name in self.frames.pop():
            self.ended[name] = self.lines[name]

    def unique(self, name: str, where: ast.AST) -> str:
        """The name that the program will use for a new binding of `name`, which must not be visible here."""
        self._bindable(name, where)
        result = fresh(name, self.taken)
        self.taken.add(result)
        return result

    def shared(self, name: str, value: Expr, where: ast.AST) -> str:
        """The name for a let expression's variable: one that is bound to an equal value may stand again."""
        self._bindable(name, where)
        result, number = name, 0
        while result in self.taken and self.lets.get(result) != value:
            number += 1
            result = f"{name}_{number}"
        self.taken.add(result)
        self.lets[result] = value
        return result

    def _bindable(self, name: str, where: ast.AST) -> None:
        if self.find(name) is not None:
            message = f"`{name}` is already defined, in line {self.lines[name]}; choose another name"
            raise self.source.error(where, f"{message}, or store to an element of a buffer")
        if name in NAMESPACES:
            raise self.source.error(where, f"`{name}` is the script's namespace and cannot be bound; use another name")

    def bind(self, name: str, value: Expr | Buffer | Window, where: ast.AST) -> None:
        self.frames[-1][name] = value
        self.lines[name] = getattr(where, "lineno", 1) + self.source.first_line - 1

    def find(self, name: str) -> Expr | Buffer | Window | None:
        for frame in reversed(self.frames):
            if name in frame:
                return frame[name]
        return None

    def undefined(self, where: ast.AST, name: str) -> ScriptError:
        """The error for a name without meaning, with the ended scope or the nearest name."""
        message = f"`{name}` is not defined"
        if name in self.ended:
            message = f"`{name}` is out of scope here; it was defined in line {self.ended[name]}, in a suite that ended"
        elif name in self.declared:
            message = f"`{name}` has a type, but no value here; bind it by `T.Let(..., where={{{name}: value}})`"
        else:
            known = [n for frame in self.frames for n in frame]
            near = difflib.get_close_matches(name, known, 1)
            message += f"; did you mean `{near[0]}`, of line {self.lines[near[0]]}?" if near else ""
        return self.source.error(where, message)


def dotted(node: ast.AST) -> str:
    """``T.axis.remap`` -> ``"axis.remap"``, ``prim_func`` -> itself; empty for what is no such name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    parts.append(node.id)
    parts.reverse()
    while len(parts) > 1 and parts[0] in NAMESPACES:
        parts.pop(0)
    return ".".join(parts)


def is_namespaced(node: ast.AST) -> bool:
    """Whether `node` is an attribute chain from ``T`` or one of its aliases."""
    while isinstance(node, ast.Attribute):
        node = node.value
        if isinstance(node, ast.Name):
            return node.id in NAMESPACES
    return False


def called(node: ast.AST) -> str:
    """The name of the function that `node` calls, without its namespace; empty for no call."""
    return dotted(node.func) if isinstance(node, ast.Call) else ""


def show(node: ast.AST) -> str:
    """`node` as text of at most 60 characters."""
    text = ast.unparse(node)
    return text if len(text) <= 60 else text[:57] + "..."
