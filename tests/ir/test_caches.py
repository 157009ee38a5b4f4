"""Results that are kept between calls, and the one call that forgets them."""

from __future__ import annotations

import ast
import gc
import importlib
import weakref
from pathlib import Path

import numpy as np
import pytest

import stridesmith
from stridesmith.ir.caches import Recent, cached, clear_caches
from stridesmith.ir.dataflow.instances import instances
from stridesmith.ir.target import Target
from stridesmith.space.design.space import generate
from stridesmith.space.primitive import _applied
from stridesmith.space.workloads import workload

ROOT = Path(stridesmith.__file__).resolve().parent
PACKAGES = ("ir", "space", "cost_model")
OWN_WAYS = {"lru_cache", "cache", "OrderedDict"}
CPU = Target(kind="cpu", vector_bits=256, registers=16, threads=2)


def modules() -> list[Path]:
    return [p for package in PACKAGES for p in sorted((ROOT / package).rglob("*.py")) if p != ROOT / "ir" / "caches.py"]


@pytest.mark.parametrize("path", modules(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_no_module_keeps_results_of_its_own(path: Path) -> None:
    """What is kept between calls is kept by `ir.caches`, so that one call forgets all of it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module in ("functools", "collections"):
            own = OWN_WAYS & {alias.name for alias in node.names}
            assert not own, f"{path} imports {own}; use `cached` or `Recent` of ir.caches"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "functools":
            assert node.attr not in OWN_WAYS, f"{path} uses functools.{node.attr}; use `cached` of ir.caches"


def kept() -> dict[str, int]:
    """How many results each cache of the package's modules holds, those that hold none left out."""
    found = {}
    for path in modules():
        name = "stridesmith." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for attribute, value in vars(importlib.import_module(name.removesuffix(".__init__"))).items():
            size = len(value) if isinstance(value, Recent) else None
            if hasattr(value, "cache_info"):
                size = value.cache_info().currsize
            if size:
                found[f"{name}.{attribute}"] = size
    return found


def test_one_call_empties_every_cache() -> None:
    """After scheduling and proving there is much to forget, and after the call nothing is left."""
    work = workload("matmul", m=33, n=17, k=9)
    sketch = generate(work.func, CPU, {}).sketches[0]
    choice = sketch.draw(np.random.default_rng(0), 64)[0]
    first = sketch.schedule(choice).func
    assert len(kept()) > 20
    assert _applied.cache_info().currsize > 0
    clear_caches()
    assert kept() == {}
    assert sketch.schedule(choice).func == first


def test_what_was_kept_of_a_program_is_free_again() -> None:
    """A program that only caches hold goes with them."""
    func = workload("matmul", m=7, n=5, k=3).func
    program = weakref.ref(instances(func))
    gc.collect()
    assert program() is not None
    clear_caches()
    gc.collect()
    assert program() is None


def test_a_cleared_function_computes_anew() -> None:
    """Results are kept until the call, not longer."""
    calls = []

    @cached(8)
    def double(n: int) -> int:
        calls.append(n)
        return 2 * n

    assert [double(2), double(2)] == [4, 4]
    assert calls == [2]
    clear_caches()
    assert double(2) == 4
    assert calls == [2, 2]


def test_recent_keeps_what_was_used_last() -> None:
    """The entry that was not used for longest makes room."""
    table: Recent[str, int] = Recent(2)
    table.keep("a", 1)
    table.keep("b", 2)
    assert table.get("a") == 1
    table.keep("c", 3)
    assert (table.get("a"), table.get("b"), table.get("c")) == (1, None, 3)
    clear_caches()
    assert len(table) == 0
