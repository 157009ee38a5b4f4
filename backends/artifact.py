"""What a compiled kernel is, as plain data: its code, and how each of its arguments lies in memory.

Nothing is imported here, so that processes which only hand kernels on need not load what makes and runs them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from ..ir.layout.layout import Layout

OPEN = -1
"""The extent that each call of a kernel decides."""


class Artifact(TypedDict):
    """A compiled program; everything in it is JSON.

    `code` is a base64 object file for a CPU and source text for OpenCL; what else it is, only the backend that
    made it knows.  `params` and `workspaces` are ``[name, shape, dtype, scope]``; `launches` tells OpenCL which
    kernels to enqueue, in order.
    """

    kind: str
    entry: str
    code: str
    target: dict[str, Any]
    params: list[list[Any]]
    workspaces: list[list[Any]]
    launches: list[dict[str, Any]]


@dataclass(frozen=True)
class Argument:
    """A parameter as the caller sees it (logical) and as the kernel does (physical).

    A buffer of vectors has an axis more, for their lanes.  A scalar has the shape () and lies in memory of one
    element.
    """

    name: str
    layout: Layout
    dtype: str
    is_output: bool = False
    is_scalar: bool = False

    def __repr__(self) -> str:
        """The name, type and shape, and how it lies in memory where that is not row by row."""
        laid_out = f", lies as {list(self.physical_shape)}: {self.index_map}" if self.index_map else ""
        shape = ", ".join(map(str, self.logical_shape))
        return f"<{'output' if self.is_output else 'input'} {self.name}: {self.dtype}[{shape}]{laid_out}>"

    @property
    def logical_shape(self) -> tuple[int, ...]:
        """The shape of the caller's array."""
        return self.layout.logical_shape

    @property
    def physical_shape(self) -> tuple[int, ...]:
        """The shape in which it lies in memory."""
        return self.layout.physical_shape

    @property
    def pads(self) -> bool:
        """Whether the physical memory has elements that no logical index reaches."""
        return self.layout.pads

    @property
    def index_map(self) -> str:
        """From logical to physical indices, as text for people and files; empty where both agree."""
        return "" if self.layout.is_plain else self.layout.index_map.text

    @property
    def pad_value(self) -> str:
        """What padding holds, as text: a number, ``undef``, a lambda of the physical indices, or empty for nothing."""
        return self.layout.pad_text


@dataclass(frozen=True)
class InNetwork:
    """How a network calls a kernel, by the names of its parameters.

    Each of the `written` ones was written just before, by all threads, a part by each; the `streamed` ones come from
    memory, since a call of the network reads `nbytes` of such constants before it comes back to the same.
    """

    written: tuple[str, ...]
    streamed: tuple[str, ...]
    nbytes: int
