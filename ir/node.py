"""The root of every IR class: an immutable value with structural equality.

Nodes are frozen dataclasses.  Two nodes are equal when their classes and all
fields are equal; the hash is computed once and kept, so that comparing two
large programs that differ is one integer comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


class Node:
    """An immutable tree value; fields are read from ``__match_args__``."""

    __match_args__: tuple[str, ...] = ()
    _hash: int

    def _key(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__match_args__)

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
        assert isinstance(other, Node)
        return self._key() == other._key()

    def __getstate__(self) -> dict[str, Any]:
        """String hashes differ between processes, so a copy drops the cached one."""
        return {k: v for k, v in self.__dict__.items() if k != "_hash"}


def children(node: Node) -> Iterator[Node]:
    """Every node held directly in a field of `node`, in field order."""
    for name in node.__match_args__:
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
    changed = False
    values = []
    for name in node.__match_args__:
        value = getattr(node, name)
        new = value
        if isinstance(value, Node):
            new = fn(value)
        elif isinstance(value, tuple) and value and any(isinstance(v, Node) for v in value):
            items = tuple(fn(v) if isinstance(v, Node) else v for v in value)
            if any(a is not b for a, b in zip(items, value, strict=True)):
                new = items
        changed = changed or new is not value
        values.append(new)
    return type(node)(*values) if changed else node


def transform(node: Any, fn: Callable[[Any], Any]) -> Any:
    """Bottom-up rewriting: children first, then ``fn`` on the rebuilt node."""
    return fn(rebuild(node, lambda child: transform(child, fn)))
