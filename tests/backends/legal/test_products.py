"""Random programs over the types of quantised networks: legal programs mean what lowered ones mean; mistakes show."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from legal_programs import DEVICES, MACHINES, Comparison, lowered_for
from product_programs import RandomProducts
from random_runs import arguments
from scale import scaled

from stridesmith.backends.errors import CodegenError
from stridesmith.backends.legal import dots, interleaves, taps
from stridesmith.backends.legal.program import legal
from stridesmith.backends.lower import LoweringError
from stridesmith.ir.expr import Call, Expr, Var, as_int, const, substitute
from stridesmith.ir.functions import DOT_CALLS, PACK_4X8, PAIR_CALLS
from stridesmith.ir.interpreter.memory import InterpreterError
from stridesmith.ir.node import walk

TARGETS = {**MACHINES, **DEVICES}


def agreeing(seed: int) -> Counter[str]:
    """On how many targets a program changes, and which functions of dot products stand in it; asserts equality."""
    func = RandomProducts(seed).program()
    comparison, found = Comparison(arguments(func)), Counter[str]()
    for target in TARGETS.values():
        try:
            lowered = lowered_for(func, target)
            made = legal(lowered, target)
        except (LoweringError, CodegenError):
            continue
        found["changed"] += comparison.agree(lowered, made)
        found.update({n.name for n in walk(made.body) if isinstance(n, Call)})
    return found


def test_programs_of_quantised_networks_stay_what_they_are() -> None:
    """Bit by bit, on every row of the tables; with dot products of all signs, pairs, and words put together."""
    found: Counter[str] = Counter()
    for seed in range(scaled(40)):
        found += agreeing(seed)
    assert found["changed"] > 100
    assert {*DOT_CALLS, *PAIR_CALLS, PACK_4X8} <= set(found)


class _Swapped(Call):
    """Makes calls, of dot products of bytes those of the other signs."""

    def __new__(cls, name: str, args: tuple[Expr, ...], dtype: str) -> Any:
        signs = {"us": "su", "su": "us", "uu": "ss", "ss": "uu"}
        return Call(name[:-2] + signs[name[-2:]] if name in DOT_CALLS else name, args, dtype)


def _beside(expr: Expr, values: dict[Var, Expr]) -> Expr:
    """An expression at the place beside."""
    return substitute(expr, {var: const(as_int(value) ^ 1) for var, value in values.items()})


@pytest.mark.parametrize("mistake", ["signs of words", "signs of taps", "order of rows"])
def test_a_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of forty seeds tell a pass with a mistake from one without."""
    module, name, wrong = {
        "signs of words": (dots, "Call", _Swapped), "signs of taps": (taps, "Call", _Swapped),
        "order of rows": (interleaves, "substitute", _beside),
    }[mistake]  # fmt: skip
    monkeypatch.setattr(module, name, wrong)
    with np.errstate(all="ignore"), pytest.raises((AssertionError, InterpreterError)):
        for seed in range(40):
            agreeing(seed)
