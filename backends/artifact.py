"""What a compiled kernel is, as plain data: its code, and how each of its arguments lies in memory.

Nothing is imported here, so that processes which only hand kernels on need not load what makes and runs them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias, TypedDict

Shape: TypeAlias = tuple[int, ...]
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
    element.  `index_map` is empty where both agree.  `pad_value` is the text of a `PadValue`: a number, ``"undef"``,
    a lambda of the physical indices, or empty where the padding may not be touched.
    """

    name: str
    logical_shape: Shape
    physical_shape: Shape
    dtype: str
    index_map: str = ""
    pad_value: str = ""
    is_output: bool = False
    is_scalar: bool = False

    @property
    def pads(self) -> bool:
        """Whether the physical memory has elements that no logical index reaches."""
        return prod(self.physical_shape) > prod(self.logical_shape)


@dataclass(frozen=True)
class InNetwork:
    """How a network calls a kernel, by the names of its parameters.

    Each of the `written` ones was written just before, by all threads, a part by each; the `streamed` ones come from
    memory, since a call of the network reads `nbytes` of such constants before it comes back to the same.
    """

    written: tuple[str, ...]
    streamed: tuple[str, ...]
    nbytes: int
