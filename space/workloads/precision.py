"""Element types: what a program stores, what it computes in, and what it gives out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Precision:
    """`storage` of the inputs, `accumulator` of sums and of everything in between, `result` of the output."""

    storage: str
    accumulator: str
    result: str

    @property
    def is_mixed(self) -> bool:
        """Whether the accumulator's type is not the result's, so that the result needs a stage of its own."""
        return self.accumulator != self.result

    def widen(self, value: str) -> str:
        """A stored value as script text in the accumulator's type."""
        return value if self.storage == self.accumulator else f"T.Cast({self.accumulator!r}, {value})"

    def narrow(self, value: str) -> str:
        """A computed value as script text in the result's type."""
        return f"T.Cast({self.result!r}, {value})" if self.is_mixed else value


_MIXED = {
    "float16": Precision("float16", "float32", "float16"),
    "bfloat16": Precision("bfloat16", "float32", "bfloat16"),
    "int8": Precision("int8", "int32", "int32"),
    "uint8": Precision("uint8", "int32", "int32"),
    "float8_e4m3fn": Precision("float8_e4m3fn", "float32", "float32"),
    "float8_e5m2": Precision("float8_e5m2", "float32", "float32"),
}


def precision(dtype: str) -> Precision:
    """Half floats are stored and summed in float32, smaller ones given out so; bytes sum to int32; others stay."""
    return _MIXED.get(dtype, plain(dtype))


def plain(dtype: str) -> Precision:
    """The precision of what does not round, as a maximum: one type for everything."""
    return Precision(dtype, dtype, dtype)
