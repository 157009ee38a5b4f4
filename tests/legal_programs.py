"""Lowered and legal programs side by side: processors for every row of `ir.isa`, and whether both mean the same."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from masking import annotated
from random_kernels import runnable
from random_programs import ProgramMaker
from random_runs import Outcome, assert_refines

from stridesmith.backends.legal.program import as_function, legal
from stridesmith.backends.lower import Lowered, lower
from stridesmith.ir.expr import Call
from stridesmith.ir.functions import MULTIPLY_ACCUMULATE
from stridesmith.ir.interpreter.interpret import execute
from stridesmith.ir.interpreter.memory import DEFINED
from stridesmith.ir.isa import VECTORS
from stridesmith.ir.node import transform
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.target import AVX512_BUILTINS, BYTE_DOTS, Target
from stridesmith.ir.verify.rules import verify


def machine(isa: str, *features: str) -> Target:
    """A processor with an instruction set and some features more."""
    row = next(v for v in VECTORS if v.name == isa)
    text = ",".join(f"+{f}" for f in (*row.needs, *features))
    return Target(name=isa, isa=isa, features=text, vector_bits=row.bits, registers=row.registers, threads=2)


MACHINES = {
    "sse2": machine("sse2"),
    "avx": machine("avx"),
    "avx2": machine("avx2"),
    "avxvnni": machine("avx2", "avxvnni"),
    "avxvnniint8": machine("avx2", "avxvnni", "avxvnniint8"),
    "avx512": machine("avx512", "avx2", "fma"),
    "vnni": machine("avx512", "avx2", "fma", "avx512vnni"),
    "bf16": machine("avx512", "avx2", "fma", "avx512bf16"),
    "neon": machine("neon", "neon"),
    "dotprod": machine("neon", "neon", "dotprod"),
    "i8mm": machine("neon", "neon", "dotprod", "i8mm"),
}
"""A processor for every row of the tables of instruction sets and of dot products, also such as this machine lacks."""


def opencl(name: str, features: str, **facts: Any) -> Target:
    """An OpenCL device with some extensions, and with images."""
    return Target(
        kind="opencl", name=name, features=f"cl_khr_fp64 {BYTE_DOTS} {features}", max_work_group=1024,
        local_bytes=1 << 16, images=True, image_width=1 << 14, image_height=1 << 14, image_args=64,
        image_types="float32 float16 int8 int16 int32 uint8", **facts,
    )  # fmt: skip


DEVICES = {
    "opencl cpu": opencl("cpu", "", vector_bits=256, registers=16),
    "opencl masks": opencl("masks", f"cl_khr_fp16 {AVX512_BUILTINS}", vector_bits=512, registers=32),
    "opencl gpu": opencl("gpu", "cl_khr_fp16", vector_bits=128, registers=64, is_cpu_device=False, warp=32),
    "opencl floats": opencl("floats", "", vector_bits=128, registers=64, is_cpu_device=False, warp=32),
}
"""OpenCL devices that differ in what legal programs are: by their masks, their vectors, their half floats."""


class RandomPrograms(ProgramMaker):
    """Programs that a seed determines, in kinds of loops that a CPU has; vectorized ones may ask for masks."""

    def __init__(self, seed: int) -> None:
        super().__init__(None, exact=True)
        self.random = random.Random(seed)

    def number(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def program(self) -> PrimFunc:
        func = runnable(self.function(), cpu=True)
        return annotated(func) if self.chance(2) else func


def meaning(program: Lowered, arrays: list[Any]) -> Outcome:
    """What the interpreter leaves in the parameters of a lowered or legal program.

    Multiply-adds round twice, as sums and products do that machines may fuse.
    """
    func = as_function(program)
    body = transform(func.body, _rounded_twice)
    flat = [np.array(array).reshape(p.shape) for array, p in zip(arrays, program.params, strict=True)]
    with np.errstate(all="ignore"):
        memory = execute(func.with_body(body), *flat, strict_state=False)
    found = {p.name: memory[p.name] for p in program.params}
    return {n: (np.ravel(m.read(slice(None))), np.ravel(m.states(slice(None))) == DEFINED) for n, m in found.items()}


def _rounded_twice(node: Any) -> Any:
    if isinstance(node, Call) and node.name == MULTIPLY_ACCUMULATE:
        return node.args[0] * node.args[1] + node.args[2]
    return node


class Comparison:
    """Lowered programs and what is made of them, each on the same arrays; a pair is compared once for all targets."""

    def __init__(self, arrays: list[Any]) -> None:
        self.arrays = arrays
        self.meanings: dict[PrimFunc, Outcome] = {}
        self.pairs: set[tuple[PrimFunc, PrimFunc]] = set()

    def meaning(self, program: Lowered, func: PrimFunc) -> Outcome:
        """`meaning` of the program, which is `func` as a function."""
        found = self.meanings.get(func)
        if found is None:
            found = self.meanings[func] = meaning(program, self.arrays)
        return found

    def agree(self, lowered: Lowered, found: Lowered) -> bool:
        """Whether the legal program differs from the lowered one; asserts that it is valid and means the same."""
        if found.body is lowered.body:
            return False
        before, after = as_function(lowered), as_function(found)
        if (before, after) not in self.pairs:
            self.pairs.add((before, after))
            verify(after)
            assert parse(after.script()) == after
            assert_refines(self.meaning(found, after), self.meaning(lowered, before))
        return True


def agree(lowered: Lowered, target: Target, arrays: list[Any]) -> bool:
    """Whether the legal program is another one than the lowered one; asserts that it is valid and means the same."""
    return Comparison(arrays).agree(lowered, legal(lowered, target))


def lowered_for(func: PrimFunc, target: Target) -> Lowered:
    """A program as it is lowered for a target; loops that an OpenCL device does not have are serial."""
    return lower(func if target.kind == "cpu" else runnable(func, cpu=False), target, strict=True)
