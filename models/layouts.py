"""How a tensor may lie in memory between the operators that share it.

A layout says for a tensor of any rank: the order of its dimensions, one of them cut into blocks whose inner part comes
last, a halo in front of and behind each dimension, and what all of that padding holds.  Of an image ``[n, c, h, w]``
with 20 channels ``block=(1, 16)`` with a halo of one pixel is

    [n, c // 16, h + 1, w + 1, c % 16]    of extents [n, 2, H + 2, W + 2, 16]

`alternatives.py` says which layouts of a tensor are worth a thought, `laid_out.py` gives them to a program.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import prod
from typing import Any

from ..errors import BadRecord

MOST_PADDING = 64
"""Elements of a halo or a block that a layout read from outside may have."""


@dataclass(frozen=True)
class TensorLayout:
    """A layout of a tensor with `shape`; the fields' defaults leave it as ONNX has it.

    `order` has the dimensions, outermost first.  Of the dimension ``block[0]`` the part inside of blocks of
    ``block[1]`` points comes last.  `before` and `after` are halos by dimension.
    `pad_value` is what the padding holds: a number as text, ``"undef"``, or empty where it may not be touched.
    """

    shape: tuple[int, ...]
    order: tuple[int, ...] = ()
    block: tuple[int, int] = (-1, 1)
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    pad_value: str = ""

    def __post_init__(self) -> None:
        rank = len(self.shape)
        object.__setattr__(self, "order", self.order or tuple(range(rank)))
        object.__setattr__(self, "before", self.before or (0,) * rank)
        object.__setattr__(self, "after", self.after or (0,) * rank)

    @property
    def is_plain(self) -> bool:
        """Whether the tensor lies as ONNX has it."""
        return self == TensorLayout(self.shape)

    @property
    def has_halo(self) -> bool:
        """Whether there is room in front of or behind some dimension."""
        return any(self.before) or any(self.after)

    @property
    def form(self) -> tuple[tuple[int, ...], tuple[int, int]]:
        """Order and blocks alone, which decide what lies together."""
        return self.order, self.block

    @property
    def without_halo(self) -> TensorLayout:
        """The same order and blocks, and no other padding than that of the last block."""
        bare = replace(self, before=(), after=(), pad_value="")
        return replace(bare, pad_value=self.pad_value) if bare.pads else bare

    @property
    def index_map(self) -> str:
        """The map from logical to physical indices, as text."""
        names = [f"d{k}" for k in range(len(self.shape))]
        places = [f"({n} + {b})" if b else n for n, b in zip(names, self.before, strict=True)]
        cut, size = self.block
        body = [f"{places[dim]} // {size}" if dim == cut else places[dim] for dim in self.order]
        if cut >= 0:
            body.append(f"{places[cut]} % {size}")
        return f"lambda {', '.join(names)}: [{', '.join(body)}]"

    @property
    def physical_shape(self) -> tuple[int, ...]:
        """The extents in memory."""
        cut, size = self.block
        reached = [e + b + a for e, b, a in zip(self.shape, self.before, self.after, strict=True)]
        extents = [-(-reached[dim] // size) if dim == cut else reached[dim] for dim in self.order]
        if cut >= 0:
            extents.append(size)
        return tuple(extents)

    @property
    def pads(self) -> bool:
        """Whether some element in memory is none of the tensor."""
        return prod(self.physical_shape) > prod(self.shape)

    @property
    def label(self) -> str:
        """A short name for reports, such as ``0231`` or ``block1x16+halo2,3=0``."""
        cut, size = self.block
        name = f"block{cut}x{size}" if cut >= 0 else "".join(map(str, self.order))
        halo = [str(d) for d in range(len(self.shape)) if self.before[d] or self.after[d]]
        name += f"+halo{','.join(halo)}" if halo else ""
        return f"{name}={self.pad_value}" if self.pads and self.pad_value else name

    def to_json(self) -> dict[str, Any]:
        """The layout as JSON."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @staticmethod
    def from_json(data: object) -> TensorLayout:
        """The layout that `to_json` wrote; anything else is a BadRecord."""
        from pydantic import TypeAdapter, ValidationError

        try:
            found = TypeAdapter(TensorLayout).validate_python(data)
        except ValidationError:
            raise BadRecord(f"not a layout of a tensor: {data!r:.200}") from None
        rank, (cut, size) = len(found.shape), found.block
        sizes = (*found.before, *found.after)
        sane = sorted(found.order) == list(range(rank)) and len(found.before) == len(found.after) == rank
        sane = sane and -1 <= cut < rank and 1 <= size <= MOST_PADDING and all(0 <= n <= MOST_PADDING for n in sizes)
        if not sane or not (found.pad_value in ("", "undef") or _is_number(found.pad_value)):
            raise BadRecord(f"not a layout of a tensor: {data!r:.200}")
        return found


def _is_number(text: str) -> bool:
    try:
        return float(text) == float(text)
    except ValueError:
        return False
