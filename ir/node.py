"""The root of every IR class: an immutable value with structural equality.

Nodes are frozen dataclasses.  Two nodes are equal when their classes and all
fields are equal; the hash is computed once and kept, so that comparing two
large programs that differ is one integer comparison.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from operator import attrgetter, is_not
from typing import Any, ClassVar

# Fields of these types hold no nodes, so that walking a program need not look at them.
_PLAIN = frozenset({"str", "int", "bool", "int | float | bool", "tuple[int, ...]", "Annotations"})


class Node:
    """An immutable tree value; fields are read from ``__match_args__``."""

    __match_args__: tuple[str, ...] = ()
    _nodes: ClassVar[tuple[str, ...]] = ()
    _hash: int

    def __init_subclass__(cls) -> None:
        cls._nodes = tuple(n for n, kind in inspect.get_annotations(cls).items() if kind not in _PLAIN)

    def _key(self) -> tuple[Any, ...]:
        getter = _GETTERS.get(type(self))
        if getter is None:
            names = self.__match_args__
            getter = attrgetter(*names) if len(names) > 1 else _few(names)
            _GETTERS[type(self)] = getter
        key: tuple[Any, ...] = getter(self)
        return key

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            value = hash((type(self).__name__, self._key()))
            object.__setattr__(self, "_hash", value)
            return value

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other) or hash(self) != hash(other):
            return False
        return self._key() == other._key()

    def __getstate__(self) -> dict[str, Any]:
        """String hashes differ between processes, so a copy drops the cached one."""
        return {k: v for k, v in self.__dict__.items() if k != "_hash"}


_GETTERS: dict[type[Node], Callable[[Node], tuple[Any, ...]]] = {}


def _few(names: tuple[str, ...]) -> Callable[[Node], tuple[Any, ...]]:
    """The key of a node of at most one field."""
    return lambda node: tuple(getattr(node, name) for name in names)


def children(node: Node) -> Iterator[Node]:
    """Every node held directly in a field of `node`, in field order."""
    for name in node._nodes:
        value = getattr(node, name)
        if isinstance(value, Node):
            yield value
        elif isinstance(value, tuple):
            for item in value:
                if isinstance(item, Node):
                    yield item


def walk(node: Node) -> Iterator[Node]:
    """`node` and everything below it, parents before children, in program order."""
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(list(children(top))))


def rebuild(node: Node, fn: Callable[[Any], Any]) -> Any:
    """`node` with `fn` applied to each direct child; `node` itself if nothing changed."""
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


def transform(node: Any, fn: Callable[[Any], Any]) -> Any:
    """Bottom-up rewriting: children first, then ``fn`` on the rebuilt node."""
    return fn(rebuild(node, lambda child: transform(child, fn)))
