"""Targets with masks, and the annotation that asks for them, for tests of masked loops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stridesmith.backends.host import host_cpu
from stridesmith.backends.kernel import compile_lowered, load_artifact
from stridesmith.backends.lower import lower
from stridesmith.ir.node import rebuild
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import For, PrimFunc, Stmt
from stridesmith.ir.target import Target

AVX512 = Target(isa="avx512", cpu="skylake-avx512", vector_bits=512, registers=32)
AVX2 = Target(isa="avx2", cpu="haswell", features="+avx2,+fma", vector_bits=256, registers=16)
WITHOUT = Target(isa="sse2", cpu="x86-64", vector_bits=128, registers=16)


def _runs(target: Target) -> bool:
    return target.isa in {"avx512": ("avx512", "avx2"), "avx2": ("avx2",)}.get(host_cpu().isa, ())


def _param(target: Target) -> Any:
    reason = f"the host has no {target.isa}"
    return pytest.param(target, id=target.isa, marks=pytest.mark.skipif(not _runs(target), reason=reason))


RUNNING = [_param(AVX512), _param(AVX2)]


def read(text: str) -> PrimFunc:
    func = parse(f"@T.prim_func\ndef f{text}")
    assert isinstance(func, PrimFunc)
    return func


def annotated(func: PrimFunc, key: str = "mask") -> PrimFunc:
    """`func` with the annotation on each of its vectorized loops."""

    def visit(stmt: Any) -> Any:
        if isinstance(stmt, For) and stmt.kind == "vectorized":
            stmt = replace(stmt, annotations=(*(a for a in stmt.annotations if a[0] != key), (key, True)))
        return rebuild(stmt, lambda child: visit(child) if isinstance(child, Stmt) else child)

    return func.with_body(visit(func.body))


def run(func: PrimFunc, target: Target, *arrays: np.ndarray) -> list[np.ndarray]:
    """What a kernel leaves in each buffer, its guards untouched."""
    bound = load_artifact(compile_lowered(lower(func, target), target)).bind(guard_bytes=256)
    bound.poison_guards(b"\xa5\x5a\xff")
    for number, array in enumerate(arrays):
        bound.write(number, array)
    bound.run()
    assert bound.guards_intact()
    return [bound.read(number).reshape(array.shape) for number, array in enumerate(arrays)]
