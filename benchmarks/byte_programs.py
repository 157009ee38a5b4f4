"""Programs of bytes as quantised networks have them, made of the library's convolutions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc
from stridesmith.models.operators.integers import Epilogue
from stridesmith.space.workloads import Workload, from_func
from stridesmith.space.workloads.conv import Conv
from stridesmith.space.workloads.depthwise import DepthwiseConv2d
from stridesmith.space.workloads.library import OPERATORS
from stridesmith.space.workloads.precision import Precision
from stridesmith.space.workloads.text import Program

ZERO = 3


def requantised(work: Workload) -> Workload:
    """A convolution of uint8 by int8 whose sums become uint8 again, with a scale for each channel; others stay."""
    made = OPERATORS[work.name].resolve(work.shape)
    if not isinstance(made, Conv | DepthwiseConv2d):
        return work
    channels, at = (made.co, "vco{i}") if isinstance(made, Conv) else (made.c, "vc{i}")
    shapes = made.buffers()
    shift, factor = np.ones(channels, np.int32), np.ones(channels, np.float32)
    epilogue = Epilogue("uint8", shift=shift, factor=factor, zero=ZERO, low=0, high=255)
    program = Program(f"{work.name}_of_bytes", Precision("uint8", "int32", "uint8"))
    program.inputs([("x", shapes["x"])])
    program.inputs([("w", shapes["w"])], "int8")
    vectors = epilogue.vectors()
    for name, vector in vectors.items():
        program.inputs([(name, vector.shape)], str(vector.dtype))
    program.output("y", shapes["y"])
    made.write(program, [("finish", epilogue.text(at))])
    func = parse(program.text())
    assert isinstance(func, PrimFunc)
    return replace(from_func(func), constants=("w", *vectors))
