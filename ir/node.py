"""The root of every IR class: an immutable value with structural equality.

Nodes are frozen dataclasses.  Two nodes are equal when their classes and all
fields are equal; the hash is computed once and kept, so that comparing two
large programs that differ is one integer comparison.  What is `remembered` of a
node is kept on it, too: a rewrite shares what it leaves alone, and what was
found out about that stays known.

While a user's Python function of expressions runs (`tracing`), ``==`` and ``!=`` between
expressions build comparisons, as the other operators do.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import wraps
from operator import attrgetter, is_not
from threading import get_ident
from typing import Any, ClassVar, Generic, NoReturn, Protocol, TypeVar

N = TypeVar("N", bound="Node")
R = TypeVar("R")
T = TypeVar("T")

# Fields of these types hold no nodes, so that walking a program need not look at them; extents belong to a declaration,
# which no rewrite of expressions changes.
_PLAIN = frozenset({
    "str", "int", "bool", "int | float | bool", "tuple[int, ...]", "Annotations", "Layouts", "Extent",
    "tuple[Extent, ...]",
})  # fmt: skip


class Tracer(Protocol):
    """What the operators of expressions do while a user's function of them runs (`tracing`)."""

    def build(self, op: str, a: Any, b: Any) -> Any:
        """What ``a op b`` builds."""

    def refuse_hash(self, expr: Any) -> NoReturn:
        """Raises TypeError: Python looks an expression up in a set or a dictionary."""

    def refuse_truth(self, expr: Any) -> NoReturn:
        """Raises TypeError: Python asks whether an expression is true."""


TRACING: dict[int, Tracer] = {}
"""By thread, for those that run a user's function of expressions: empty nearly always, so that asking costs nothing."""


class Node:
    """An immutable tree value; fields are read from ``__match_args__``."""

    __match_args__: tuple[str, ...] = ()
    _nodes: ClassVar[tuple[str, ...]] = ()
    _fields: ClassVar[Any]
    _hash: int | None = None
    _children: tuple[Node, ...] | None = None  # every program is walked through many times
    _equal_mark: object | None = None  # one object for nodes that were found equal, so that they are compared once
    is_operand: ClassVar[bool] = False  # whether operators of a traced function build expressions of the node

    def __init_subclass__(cls) -> None:
        fields = inspect.get_annotations(cls)
        cls._nodes = tuple(n for n, kind in fields.items() if kind not in _PLAIN)
        cls._fields = attrgetter(*fields) if len(fields) > 1 else staticmethod(_few(tuple(fields)))

    def _key(self) -> tuple[Any, ...]:
        key: tuple[Any, ...] = self._fields(self)
        return key

    def __hash__(self) -> int:
        if TRACING and (tracer := TRACING.get(get_ident())) is not None and self.is_operand:
            tracer.refuse_hash(self)
        value = self._hash
        if value is None:
            value = hash((type(self).__name__, self._key()))
            object.__setattr__(self, "_hash", value)
        return value

    def __eq__(self, other: object) -> bool:
        if TRACING and (tracer := TRACING.get(get_ident())) is not None and self.is_operand:
            built: bool = tracer.build("==", self, other)  # an expression, which only a traced function sees
            return built
        if self is other:
            return True
        if type(self) is not type(other):
            return False
        own = self._hash
        if (hash(self) if own is None else own) != hash(other):
            return False
        assert isinstance(other, Node)
        mark = self._equal_mark
        if mark is not None and mark is other._equal_mark:
            return True
        if self._key() != other._key():
            return False
        mark = mark or other._equal_mark or object()
        object.__setattr__(self, "_equal_mark", mark)
        object.__setattr__(other, "_equal_mark", mark)
        return True

    def __getstate__(self) -> dict[str, Any]:
        """String hashes differ between processes, so a copy drops what is remembered, and what fields tell."""
        return {name: self.__dict__[name] for name in self.__match_args__}


def _few(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """The key of a node of at most one field."""
    return lambda node: tuple([getattr(node, name) for name in names])


def remembered(fn: Callable[[Any], R]) -> Callable[[Any], R]:
    """`fn` of one node, whose result is kept on the node."""
    name = f"_{fn.__module__}.{fn.__qualname__}"

    @wraps(fn)
    def kept(node: Any) -> R:
        known = node.__dict__
        if name in known:
            found: R = known[name]
            return found
        found = known[name] = fn(node)
        return found

    return kept


class Derived(Generic[T]):
    """An attribute that a node's fields tell: computed when it is first asked for, from then on as quick as a field.

    Decorates the method that computes it.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute, self.name, self.__doc__ = compute, compute.__name__, compute.__doc__

    def __get__(self, node: Any, owner: type) -> T:
        if node is None:
            raise AttributeError(f"`{owner.__name__}.{self.name}` is an attribute of nodes")
        found = node.__dict__[self.name] = self.compute(node)  # which comes before this descriptor from now on
        return found


def children(node: Node) -> tuple[Node, ...]:
    """Every node held directly in a field of `node`, in field order."""
    found = node._children
    if found is None:
        held: list[Node] = []
        for name in node._nodes:
            value = getattr(node, name)
            if isinstance(value, Node):
                held.append(value)
            elif isinstance(value, tuple):
                held += [item for item in value if isinstance(item, Node)]
        found = tuple(held)
        object.__setattr__(node, "_children", found)
    return found


def walk(node: Node) -> Iterator[Node]:
    """`node` and everything below it, parents before children, in program order."""
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        if top._nodes:
            stack += reversed(top._children or children(top))


def gathered(own: Callable[[Any], frozenset[T]]) -> Callable[[Any], frozenset[T]]:
    """The union of `own` over a node and everything below it, kept on each node; equal unions are mostly one object."""
    name = f"_{own.__module__}.{own.__qualname__}"

    @wraps(own)
    def kept(node: Any) -> frozenset[T]:
        known = node.__dict__
        found: frozenset[T] | None = known.get(name)
        if found is None:
            found = own(node)
            for child in children(node):
                part = kept(child)
                if part and part is not found:
                    both = found | part if found else part
                    found = found if len(both) == len(found) else part if len(both) == len(part) else both
            known[name] = found
        return found

    return kept


def rebuild(node: Node, fn: Callable[[Any], Any]) -> Any:
    """`node` with `fn` applied to each direct child; `node` itself if nothing changed."""
    if not node._nodes:
        return node
    changed: dict[str, Any] = {}
    for name in node._nodes:
        value = getattr(node, name)
        if isinstance(value, Node):
            new = fn(value)
            if new is not value:
                changed[name] = new
        elif isinstance(value, tuple) and value:
            items = tuple([fn(v) if isinstance(v, Node) else v for v in value])
            if any(map(is_not, items, value)):
                changed[name] = items
    if not changed:
        return node
    return type(node)(*[changed[n] if n in changed else getattr(node, n) for n in node.__match_args__])


def changed(node: N, **fields: Any) -> N:
    """`node` with other values of some fields."""
    return type(node)(*[fields[name] if name in fields else getattr(node, name) for name in node.__match_args__])


def transform(node: Any, fn: Callable[[Any], Any]) -> Any:
    """Bottom-up rewriting: children first, then ``fn`` on the rebuilt node."""
    return fn(rebuild(node, lambda child: transform(child, fn)))
