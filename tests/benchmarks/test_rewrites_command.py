"""Random programs under the rewrites: counts go on where they stopped, and what is wrong is told."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import rewrites

from stridesmith.ir.stmt import PrimFunc, Seq, Store, transform_statements


def test_a_range_goes_on_and_a_pass_that_loses_a_store_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrites, "EVERY", 4)
    work = rewrites.Work(tmp_path / "r.json", 0)
    work.play(2, math.inf)
    assert work.done >= 2
    assert not work.wrong
    assert not work.longer

    def losing(func: PrimFunc) -> PrimFunc:
        return replace(func, body=transform_statements(func.body, lambda s: Seq(()) if isinstance(s, Store) else s))

    monkeypatch.setitem(rewrites.PASSES, "simplify", losing)
    again = rewrites.Work(tmp_path / "r.json", 0)
    again.read()
    assert again.seed == work.seed > 0
    again.play(work.done + 4, math.inf)
    assert again.wrong
    assert again.wrong[0][0] == "simplify"
