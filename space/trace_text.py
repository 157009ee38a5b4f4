"""Instructions as Python text: ``v0, v1 = sch.sample_perfect_tile(loop='i', n=2, decision=[4, 8])``."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .arguments import is_ref
from .errors import ScheduleError
from .primitive import Primitive

MAX_SCRIPT = 2**20
LONGEST_LINE, INDENT = 100, 4

Call = tuple[int, tuple[str, ...], str, list[Any], dict[str, Any]]
"""Line, names of results, primitive, positional and named arguments as JSON values."""


def call_text(schedule: str, primitive: Primitive, arguments: Mapping[str, Any], results: Sequence[str]) -> str:
    """The text of an instruction; arguments that hold functions as text are written as functions."""
    parts: list[str] = []
    for name, parameter in primitive.signature.parameters.items():
        if name not in arguments:
            continue
        value = arguments[name]
        if parameter.kind is parameter.VAR_POSITIONAL:
            parts.extend(_value_text(v) for v in value)
        else:
            parts.append(f"{name}={_value_text(value)}")
    call = f"{schedule}.{primitive.name}({', '.join(parts)})"
    return f"{', '.join(results)} = {call}" if results else call


def _value_text(value: Any, indent: int = 0) -> str:
    """A value; of a list of lists that is too long for a line each has one of its own, below `indent` spaces."""
    if is_ref(value):
        return str(value["ref"])
    if isinstance(value, list):
        text = f"[{', '.join(map(_value_text, value))}]"
        is_step = bool(value) and isinstance(value[0], str)
        if indent + len(text) <= LONGEST_LINE or is_step or not any(isinstance(v, list) for v in value):
            return text
        inner = " " * (indent + INDENT)
        return "".join(["[\n", *(f"{inner}{_value_text(v, indent + INDENT)},\n" for v in value), " " * indent, "]"])
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k!r}: {_value_text(v)}' for k, v in value.items())}}}"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    return value if isinstance(value, str) and _is_function(value) else repr(value)


def _is_function(text: str) -> bool:
    """Whether a text is a single ``lambda`` on a single line, which is read back as the same text."""
    if not text.startswith("lambda") or text != text.strip() or "\n" in text:
        return False
    try:
        return isinstance(ast.parse(text, mode="eval").body, ast.Lambda)
    except (SyntaxError, RecursionError, MemoryError, ValueError):
        return False


def calls_of(text: str, drawn: set[str]) -> Iterator[Call]:
    """Every call of a script; `drawn` are the names that arguments may use, as they grow.

    Raises ScheduleError with the line.
    """
    if len(text) > MAX_SCRIPT:
        raise ScheduleError("a script of a trace has at most {most} characters", most=MAX_SCRIPT)
    try:
        module = ast.parse(text)
    except (SyntaxError, RecursionError, MemoryError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        reason = str(getattr(error, "msg", error))[:200]
        raise ScheduleError("this is not Python: {reason}", reason=reason).within(f"line {line}") from None
    for statement in module.body:
        try:
            yield _call(statement, text, drawn)
        except RecursionError:
            raise ScheduleError("nested too deeply").within(f"line {statement.lineno}") from None
        except ScheduleError as error:
            raise error.within(f"line {statement.lineno}") from None


def _call(statement: ast.stmt, text: str, drawn: set[str]) -> Call:
    results: tuple[str, ...] = ()
    value: ast.expr | None = None
    if isinstance(statement, ast.Expr):
        value = statement.value
    elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target, value = statement.targets[0], statement.value
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        results = tuple(n.id for n in names if isinstance(n, ast.Name))
        if len(results) != len(names):
            value = None
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        raise ScheduleError("a trace has only calls such as `sch.split(loop='i', factors=[None, 4])`")
    if not isinstance(value.func.value, ast.Name) or any(k.arg is None for k in value.keywords):
        raise ScheduleError("a call is `sch.name(...)` without `**`")
    positional = [_json(a, text, drawn) for a in value.args]
    named = {str(k.arg): _json(k.value, text, drawn) for k in value.keywords}
    return statement.lineno, results, value.func.attr, positional, named


def _json(node: ast.expr, text: str, drawn: set[str]) -> Any:
    """A literal, a function as its text, or the name of what was drawn."""
    if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, (bool, int, float, str))):
        return node.value
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_json(e, text, drawn) for e in node.elts]
    if isinstance(node, ast.Dict) and all(isinstance(k, ast.Constant) for k in node.keys):
        keys = [k.value for k in node.keys if isinstance(k, ast.Constant)]
        return {str(k): _json(v, text, drawn) for k, v in zip(keys, node.values, strict=True)}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _json(node.operand, text, drawn)
        if isinstance(value, (int, float)):
            return -value
    if isinstance(node, ast.Lambda):
        return ast.get_source_segment(text, node)
    if isinstance(node, ast.Name) and node.id in drawn:
        return {"ref": node.id}
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "float":
        argument = node.args[0] if len(node.args) == 1 else None
        if isinstance(argument, ast.Constant) and argument.value in ("inf", "-inf", "nan"):
            return float(argument.value)
    raise ScheduleError("`{text}` is no literal and nothing that was drawn before",
                        text=(ast.get_source_segment(text, node) or "")[:80])  # fmt: skip
