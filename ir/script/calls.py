"""Calls of the script that nothing here knows: what they take, and what they read and write.

A statement, or the value that is stored or bound, is such a call if its name begins like those of `words.OPAQUE`, or if
it takes a pointer: ``A.data``, ``A.access_ptr("r")``, ``T.address_of(A[i])``, or a buffer without indices.  What it
reads and writes through a pointer is what ``T.reads`` and ``T.writes`` of its block declare, or what
``T.opaque(call, reads=[...], writes=[...])`` says, else all of the buffer.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from ..arith.simplify import simplify
from ..calls import Arg, Keyword, Nested, Pointer, Text, touched
from ..calls import Region as Touched
from ..expr import Buffer, Const, Expr, Load, as_index, binary, const
from ..functions import FUNCTIONS
from ..stmt import NAMING, Block, Opaque, Stmt, fresh, map_children, stmt_children
from ..syntax.base import Scope, ScriptError, Window, called, is_namespaced, show
from ..syntax.expressions import ExprParser
from ..syntax.intrinsics import finish, is_dtype
from ..syntax.words import EXPRESSIONS, LET, OPAQUE, STATEMENTS
from .regions import Declared, Region


class Parser(Protocol):
    """What reads regions and expressions."""

    scope: Scope
    exprs: ExprParser
    siblings: frozenset[str]
    told: set[Stmt]

    def error(self, where: ast.AST, message: str) -> ScriptError: ...
    def region(self, node: ast.expr) -> Region: ...


def opaque_call(parser: Parser, node: ast.AST, target: Load | None = None) -> Opaque | None:
    """The call `node`, whose value goes to `target`; None for what is no such call."""
    name = _opaque_name(parser, node)
    if not name or not isinstance(node, ast.Call):
        return None
    place = None if target is None else Pointer(target.buffer, target.indices)
    stored = () if place is None else (Touched(place.buffer, place.indices, (Const(1),) * place.buffer.rank),)
    if name == "opaque":
        return _told(parser, node, place, stored)
    args = _args(parser, name, node)
    reads, writes = touched(args)
    return Opaque(name, args, place, reads, (*writes, *stored))


def _opaque_name(parser: Parser, node: ast.AST) -> str:
    """The name by which something calls what is not known here, or nothing."""
    if not isinstance(node, ast.Call):
        return ""
    func, owner = node.func, getattr(node.func, "value", None)
    name = called(node) if is_namespaced(func) else ""
    if isinstance(func, ast.Attribute) and isinstance(owner, ast.Name) and not name:
        of_module = func.attr in parser.siblings or owner.id == "Module"
        name = f"Module.{func.attr}" if of_module and parser.scope.find(owner.id) is None else ""
    return "" if not name or _is_known(parser, node, name) else name


def with_calls_before(parser: Parser, node: ast.stmt) -> list[ast.stmt]:
    """A statement with the calls inside of its expression bound to names before it; nothing where there are none.

    ``B[0] = A[0] + T.call_extern("float32", "f", C.data)`` is ``value = T.call_extern(...)`` and ``B[0] = A[0] +
    value``.  Raises ScriptError for calls that only one side of a condition makes, and for those that may write what
    the statement reads, of which nothing says what is first.
    """
    field = "test" if isinstance(node, (ast.If, ast.Assert)) else "value"
    given = getattr(node, field, None)
    if not isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.If, ast.Assert)) or given is None:
        return []
    if not any(_opaque_name(parser, part) for part in ast.walk(given)):
        return []
    lifting = _Lifting(parser)
    inside = given
    while not _opaque_name(parser, inside) and isinstance(inside, ast.Call) and called(inside) in ("evaluate", *LET):
        inside = inside.args[0] if inside.args else ast.Constant(0)
    is_whole = bool(_opaque_name(parser, inside)) and isinstance(node, (ast.Assign, ast.AnnAssign, ast.Expr))
    rest = given if is_whole else lifting.visit(copy.deepcopy(given))
    if not lifting.bound:
        return []
    lifted = copy.copy(node)
    setattr(lifted, field, rest)
    own = [lifted.test] if isinstance(lifted, (ast.If, ast.Assert)) else [lifted]
    targets = [t.value for t in getattr(node, "targets", ()) if isinstance(t, ast.Subscript)]
    read = {parser.exprs.buffer(n).memory for part in own for n in ast.walk(part)
            if isinstance(n, ast.Name) and isinstance(parser.scope.find(n.id), Buffer)
            and not any(n is t for t in targets)}  # fmt: skip
    for binding in lifting.bound:
        call = opaque_call(parser, binding.value)
        if call is not None and not read.isdisjoint(region.buffer.memory for region in call.writes):
            raise parser.error(binding.value, f"`{call.callee}` may write what this statement reads; bind its value to "
                               "a name before it")  # fmt: skip
    return [*lifting.bound, lifted]


class _Lifting(ast.NodeTransformer):
    """Puts names in the place of calls."""

    def __init__(self, parser: Parser) -> None:
        self.parser, self.bound, self.names = parser, list[ast.Assign](), list[str]()

    def visit(self, node: ast.AST) -> ast.AST:
        if _opaque_name(self.parser, node) and isinstance(node, ast.Call):
            name = fresh("value", {*self.parser.scope.taken, *self.names})
            self.names.append(name)
            target = ast.copy_location(ast.Name(name, ast.Store()), node)
            self.bound.append(ast.copy_location(ast.Assign([target], node), node))
            return ast.copy_location(ast.Name(name, ast.Load()), node)
        parts: list[ast.expr] = []  # the operands that are evaluated under a condition, or where a name is bound
        word = called(node) if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.IfExp):
            parts = [node.body, node.orelse]
        elif isinstance(node, ast.BoolOp):
            parts = node.values[1:]
        elif word in ("if_then_else", "Let", "And", "Or") and isinstance(node, ast.Call):
            parts = [*node.args[word != "Let" :], *(k.value for k in node.keywords)]
        for part in parts:
            for inner in ast.walk(part):
                if _opaque_name(self.parser, inner):
                    raise self.parser.error(inner, f"`{show(inner)}` is called on one side of a condition only, or in "
                                            "the scope of a name; bind its value in a branch of `if`")  # fmt: skip
        found: ast.AST = self.generic_visit(node)
        return found


def _told(parser: Parser, node: ast.Call, place: Pointer | None, stored: tuple[Touched, ...]) -> Opaque:
    """``T.opaque(call, reads=[...], writes=[...])``."""
    call = node.args[0] if len(node.args) == 1 else None
    inner = opaque_call(parser, call) if call is not None else None
    told = {k.arg: k.value for k in node.keywords}
    if inner is None or set(told) != {"reads", "writes"} or not all(isinstance(v, ast.List) for v in told.values()):
        raise parser.error(node, "expected `T.opaque(call, reads=[regions], writes=[regions])` of a call of what is "
                           "not known here")  # fmt: skip
    reads, writes = (
        tuple(_touched(parser.region(r)) for r in v.elts) for v in (told["reads"], told["writes"])
        if isinstance(v, ast.List)
    )  # fmt: skip
    found = replace(inner, target=place, reads=reads, writes=(*writes, *stored))
    parser.told.add(found)
    return found


def with_regions(parser: Parser, where: ast.AST, text: str, stmt: Stmt) -> Stmt:
    """A call with the regions in ``reads=[...], writes=[...]``, the text of an attribute around it."""
    node: ast.AST
    try:
        node = ast.parse(f"T.opaque({text})", mode="eval").body
    except (SyntaxError, ValueError):
        node = where
    told = {k.arg: k.value for k in node.keywords} if isinstance(node, ast.Call) else {}
    lists = [v for v in (told.get("reads"), told.get("writes")) if isinstance(v, ast.List)]
    if len(lists) < 2 or not isinstance(stmt, Opaque):
        raise parser.error(where, "this attribute says `reads=[regions], writes=[regions]` of one call")
    stored = stmt.writes[len(stmt.writes) - 1 :] if stmt.target is not None else ()
    reads, writes = (tuple(_touched(parser.region(r)) for r in v.elts) for v in lists)
    found = replace(stmt, reads=reads, writes=(*writes, *stored))
    parser.told.add(found)
    return found


def _touched(region: Region) -> Touched:
    extents = (simplify(as_index(binary("-", end, begin))) for begin, end in region.ranges)
    return Touched(region.buffer, tuple(b for b, _ in region.ranges), tuple(extents))


def _is_known(parser: Parser, node: ast.Call, name: str) -> bool:
    """Whether a call is of what is known here, or of nothing at all."""
    if name.startswith("Module."):
        return False
    if name in NAMING:
        texts = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        return name == "call_extern" and len(texts) > 1 and texts[1] in FUNCTIONS
    if name in EXPRESSIONS or name in STATEMENTS or is_dtype(name):
        return True
    return not name.startswith(OPAQUE) and not any(_is_pointer(parser, a) for a in node.args)


def _is_pointer(parser: Parser, node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute) and node.attr == "data":
        node = node.value
    if isinstance(node, ast.Call):
        return called(node) == "address_of" or _access_of(parser, node) is not None
    return isinstance(node, ast.Name) and isinstance(parser.scope.find(node.id), (Buffer, Window))


def _access_of(parser: Parser, node: ast.Call) -> Buffer | None:
    """The buffer of ``A.access_ptr(...)``."""
    func = node.func
    if not isinstance(func, ast.Attribute) or func.attr != "access_ptr" or not isinstance(func.value, ast.Name):
        return None
    found = parser.scope.find(func.value.id)
    return found if isinstance(found, Buffer) else None


def _args(parser: Parser, name: str, node: ast.Call) -> tuple[Arg, ...]:
    """The arguments; the type of what ``call_extern`` gives comes first, wherever it stands."""
    keywords = {k.arg: _arg(parser, k.value) for k in node.keywords if k.arg}
    if len(keywords) != len(node.keywords) or any(isinstance(a, ast.Starred) for a in node.args):
        raise parser.error(node, f"the arguments of `{show(node.func)}` are written out, without `*` and `**`")
    first = (keywords.pop("dtype"),) if name == "call_extern" and "dtype" in keywords else ()
    return (*first, *(_arg(parser, a) for a in node.args), *(Keyword(k, v) for k, v in keywords.items()))


def _arg(parser: Parser, node: ast.AST) -> Arg:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return Text(node.value)
    number = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else node
    if isinstance(number, ast.Constant) and type(number.value) is int:
        told = number.value if number is node else -number.value
        return finish(told, "int32") if -(1 << 31) <= told < 1 << 31 else const(told)
    if isinstance(node, ast.Attribute) and node.attr == "data" and isinstance(node.value, ast.Name):
        found = parser.scope.find(node.value.id)
        return Pointer(found.buffer if isinstance(found, Window) else parser.exprs.buffer(node.value))
    if isinstance(node, ast.Name):
        found = parser.scope.find(node.id)
        outer = parser.scope.captured.get(node.id)
        if isinstance(found, Buffer):
            return Pointer(found)
        if found is None and isinstance(outer, str):
            return Text(outer)
    if isinstance(node, ast.Call):
        buffer, name = _access_of(parser, node), called(node)
        if buffer is not None:
            keywords = (Keyword(k.arg or "", _arg(parser, k.value)) for k in node.keywords)
            return Nested("access_ptr", (Pointer(buffer), *(_arg(parser, a) for a in node.args), *keywords))
        if name == "address_of" and len(node.args) == 1 and isinstance(node.args[0], ast.Subscript):
            element = parser.exprs.element(node.args[0])
            return Pointer(element.buffer, element.indices)
        if is_namespaced(node.func) and name not in EXPRESSIONS and not is_dtype(name) and name != "Let":
            return Nested(name, _args(parser, name, node))
    other: Expr = parser.exprs.expr(node)
    return other


# ---------------------------------------------------------------- regions that a block declares


def with_declared(block: Block, declared: Iterable[Declared], said: Collection[Stmt]) -> Block:
    """The block, of which the calls that stand in no block inside touch what the block declares of their buffers."""
    told = {d.kind: tuple(map(_touched, d.regions)) for d in declared}
    if not told or not any(isinstance(s, Opaque) for s in _own(block.body)):
        return block

    def within(call: Opaque) -> Opaque:
        if call in said:
            return call
        stored = call.writes[len(call.writes) - 1 :] if call.target is not None else ()
        reads = _told_of(call.reads, told.get("reads"))
        writes = _told_of(call.writes[: len(call.writes) - len(stored)], told.get("writes"))
        return replace(call, reads=reads, writes=(*writes, *stored))

    return replace(block, body=_rewritten(block.body, within))


def _told_of(own: Sequence[Touched], told: tuple[Touched, ...] | None) -> tuple[Touched, ...]:
    if told is None:
        return tuple(own)
    return tuple(dict.fromkeys(r for o in own for r in told if r.buffer.memory == o.buffer.memory))


def _own(stmt: Stmt) -> list[Stmt]:
    """The statement and those below that stand in no block inside of it; such blocks are among them."""
    inside = () if isinstance(stmt, Block) else stmt_children(stmt)
    return [stmt, *(s for child in inside for s in _own(child))]


def _rewritten(stmt: Stmt, fn: Callable[[Opaque], Stmt]) -> Stmt:
    """The statement with `fn` applied to the calls that stand in no block inside of it."""
    if isinstance(stmt, Opaque):
        return fn(stmt)
    return stmt if isinstance(stmt, Block) else map_children(stmt, lambda child: _rewritten(child, fn))
