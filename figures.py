"""How numbers, latencies and shares are told to people, in a terminal, on a page and in Python.

As `errors` and `numerals`, a module at the root that every package may use.
"""

from __future__ import annotations

import math


def number(value: float | None, digits: int = 3) -> str:
    """`value` with `digits` significant digits and no exponent for everyday sizes; a dash for None."""
    if value is None:
        return "-"
    if not math.isfinite(value):
        return str(value)
    if value == 0 or 1e-4 <= abs(value) < 10 ** max(digits, 6):
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0
        return f"{value:,.{decimals}f}"
    return f"{value:.{digits}g}"


def by_clock(clock: str) -> str:
    """What stands behind a latency: nothing where the host's clock has timed whole calls."""
    return " by the device's clock, launches left out" if clock == "device" else ""


def latency(microseconds: float | None) -> str:
    """A latency with the unit that suits it."""
    if microseconds is None:
        return "-"
    if microseconds >= 1e6:
        return f"{number(microseconds / 1e6, 4)} s"
    if microseconds >= 1e3:
        return f"{number(microseconds / 1e3, 4)} ms"
    return f"{number(microseconds, 4)} us"


def scaled(value: float, unit: str) -> str:
    """``231 MFLOP``, ``1.75 MB``: three digits and a decimal prefix."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{number(value / factor)} {prefix}{unit}"
    return f"{number(value)} {unit}"


def percent(fraction: float | None) -> str:
    return "-" if fraction is None else f"{100 * fraction:.1f} %"
