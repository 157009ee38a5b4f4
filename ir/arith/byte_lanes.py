"""Some bits of unsigned bytes, as those of the words that hold four of them.

::

    bits_of(a >> s & m)          = a                   a is a load of uint8
    in_words(a >> s & m, A)      = A >> s & 0x01010101 (255 >> s) & 0x01010101 m

`A` is a word of 32 bits, each of whose bytes takes the place of `a`.  What a shift brings into a byte from its
neighbour is cut away, so that both sides are equal byte by byte.  Weights of four bits are kept so, two to a byte.
"""

from __future__ import annotations

from .. import dtypes
from ..expr import Binary, Broadcast, Call, Cast, Const, Expr, Load
from ..functions import BIT_CALLS
from ..node import walk

EACH = 0x01010101
"""One in each byte of a word."""


def bits_of(value: Expr) -> Load | None:
    """The load of which a value is some bits, or itself; None where it is computed otherwise.

    What it is shifted by, and which bits are taken, may change from place to place, but is not loaded.
    """
    if isinstance(value, Load):
        return value
    if isinstance(value, Broadcast):
        return bits_of(value.value)
    operation = _operation(value)
    if operation is None or any(isinstance(n, Load) for n in walk(operation[2])):
        return None
    return bits_of(operation[1])


def in_words(value: Expr, words: Expr) -> Expr:
    """The same bits of every byte of `words`, int32 in the place of the load of which `value` is some bits."""
    if isinstance(value, Load):
        return words
    if isinstance(value, Broadcast):
        return in_words(value.value, words)
    operation = _operation(value)
    assert operation is not None
    name, inner, number = operation
    found = in_words(inner, words)
    if name != "shift_right":
        return _call(name, found, _repeated(number))
    left = Call("shift_right", (Const(255, "uint8"), number), "uint8")
    return _call("bitwise_and", _call("shift_right", found, Cast("int32", number)), _repeated(left))


def _operation(value: Expr) -> tuple[str, Expr, Expr] | None:
    """A function of bits, what it takes of, and a scalar: by a power of two a quotient is a shift, a rest a mask."""
    if dtypes.element(value.dtype) != "uint8":
        return None
    if isinstance(value, Call) and value.name in (*BIT_CALLS, "shift_right"):
        name, inner, number = value.name, value.args[0], _scalar(value.args[1])
    elif isinstance(value, Binary) and value.op in ("//", "%") and isinstance(power := _scalar(value.b), Const):
        count = int(power.value)
        if count <= 0 or count & (count - 1):
            return None
        name, inner = ("shift_right" if value.op == "//" else "bitwise_and"), value.a
        number = Const(count.bit_length() - 1 if value.op == "//" else count - 1, "uint8")
    else:
        return None
    return (name, inner, number) if dtypes.lanes(number.dtype) == 1 else None


def _scalar(value: Expr) -> Expr:
    while isinstance(value, Broadcast):
        value = value.value
    return value


def _repeated(number: Expr) -> Expr:
    """A byte in each byte of a word."""
    if isinstance(number, Const):
        return Const(dtypes.wrap(EACH * int(number.value), "int32"), "int32")
    return Binary("*", Cast("int32", number), Const(EACH, "int32"))


def _call(name: str, words: Expr, number: Expr) -> Expr:
    lanes = dtypes.lanes(words.dtype)
    return Call(name, (words, Broadcast(number, lanes) if lanes > 1 else number), words.dtype)
