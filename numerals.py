"""Numbers that users give, in texts and as values of Python: exactly those that a reader takes for such a number.

Python's `int` and `float` take more: digits of all scripts, underscores between them, and texts and truth values where
a function is called with these.  As `errors` and `files`, a module at the root that every package may use.
"""

from __future__ import annotations

import math
import re
from numbers import Integral, Real

from .errors import UsageError

WHOLE = re.compile(r"[+-]?[0-9]{1,100}")
"""How a whole number is written; `int` refuses thousands of digits."""
REAL = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf|infinity|nan)", re.IGNORECASE)


def whole(text: str) -> int | None:
    """The whole number that a text is, with spaces around it or without; None for any other text."""
    stripped = text.strip()
    return int(stripped) if WHOLE.fullmatch(stripped) else None


def count(text: str) -> int | None:
    """The whole number that digits alone are, without a sign; None for any other text."""
    return None if text.strip()[:1] in ("+", "-") else whole(text)


def real(text: str) -> float | None:
    """The number that a text is, whole or not; None for any other text."""
    stripped = text.strip()
    return float(stripped) if REAL.fullmatch(stripped) else None


def as_whole(value: object) -> int | None:
    """A value of Python's or NumPy's types of whole numbers; None for any other one, and for a truth value."""
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None


def as_real(value: object) -> float | None:
    """A value of a type of numbers, whole or not; None for any other one, and for a truth value."""
    return float(value) if isinstance(value, Real) and not isinstance(value, bool) else None


def time_limit(seconds: object) -> float:
    """Seconds that a search may take, 0 for None.  Raises UsageError for what is no finite number from 0 on."""
    number = 0.0 if seconds is None else as_real(seconds)
    if number is None or not 0 <= number < math.inf:
        raise UsageError(f"`seconds` is how long to search, a number from 0 on, but got {seconds!r}")
    return number


def seed_of(seed: object) -> int:
    """The seed of a search.  Raises UsageError for what is no whole number from 0 to 2**63 - 1."""
    number = as_whole(seed)
    if number is None or not 0 <= number < 2**63:
        raise UsageError(f"`seed` is a whole number from 0 to 2**63 - 1, but got {seed!r}")
    return number


def at_least_one(name: str, value: object) -> int:
    """How many there are to be of something.  Raises UsageError for what is no whole number from 1 on."""
    number = as_whole(value)
    if number is None or number < 1:
        raise UsageError(f"`{name}` is a whole number of at least 1, but got {value!r}")
    return number


def truth(name: str, value: object) -> bool:
    """An option that is on or off.  Raises UsageError for texts such as "no", which Python takes for true."""
    if not isinstance(value, bool):
        raise UsageError(f"`{name}` is True or False, but got {value!r}")
    return value
