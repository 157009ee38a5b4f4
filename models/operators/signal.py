"""Fourier transforms as products with matrices of sines and cosines, which are constants.

``X[f] = sum_t x[t] exp(-2 pi i t f / n)`` for each f, with real and imaginary parts as the last dimension: for the
lengths that models have, such as 400 or 512, a product is faster than its n log n steps would be elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ...space.workloads.precision import plain
from ...space.workloads.text import AxisText, Program, affine, element
from .site import Builder, Built, Site, letters

MOST_FACTORS = 1 << 22
"""Elements of the matrix; longer transforms are left to an implementation that halves them."""


def _waves(parts: int, times: int, length: int, count: int, inverse: bool) -> NDArray[np.float64]:
    """What part q of element t adds to part c of frequency f, as ``[q, t, c, f]``; `parts` is 1 for real elements."""
    angles = 2 * np.pi * (np.outer(np.arange(times), np.arange(count)) % length) / length
    cosine, sine = np.cos(angles), np.sin(angles) * (1 if inverse else -1)
    factors = np.array([[cosine, sine], [-sine, cosine]])[:parts] / (length if inverse else 1)
    return np.ascontiguousarray(factors.transpose(0, 2, 1, 3))


def _transformed(
    site: Site,
    spatial: Sequence[AxisText],
    source: Sequence[str],
    target: Sequence[str],
    waves: NDArray[np.float64],
    window: int | None = None,
) -> Built:
    """``y[target] = sum over q, t of x[source] waves[q, t, c, f]``, over the iterators ``vq, vt, vc, vf``."""
    parts, times, _, _ = waves.shape
    program = Program(site.node.op.lower(), plain(site.dtype()))
    program.inputs([("x", site.shape()), ("waves", waves.shape)])
    arguments: list[int | str] = [0, site.new_constant(waves.astype(site.dtype()))]
    if window is not None:
        program.inputs([("window", site.shape(window))])
        arguments.append(window)
    program.output("y", site.result().shape)
    y = element("y", target)
    factor = f"{element('window', ['vt'])} * " if window is not None else ""
    value = f"{element('x', source)} * {factor}{element('waves', ['vq', 'vt', 'vc', 'vf'])}"
    loops = [*spatial, ("t", times, "R"), ("q", parts, "R")]
    program.add("transform", loops, f"{y} = {y} + {value}", f"{y} = {program.zero()}")
    return [site.operator(program.text(), arguments)]


def _is_plain(site: Site, parts: int, factors: int) -> bool:
    return site.dtype() in ("float32", "float64") and parts in (1, 2) and factors <= MOST_FACTORS


def _dft(site: Site) -> Built:
    """Along one dimension, of elements that are cut, or followed by zeros, where another length is given."""
    shape, result = site.shape(), site.result().shape
    if site.is_open(1) or site.is_open(2) or len(shape) < 2:
        return None
    if site.opset < 20:
        axis = site.axis(default=1)
    else:
        axis = (site.integers(2) or [-2])[0] % len(shape)
    given, parts, inverse = site.integers(1), shape[-1], bool(site.attribute("inverse", 0))
    length, count = given[0] if given else shape[axis], result[axis]
    times = min(length, shape[axis])
    if (inverse and site.attribute("onesided", 0)) or not _is_plain(site, parts, 2 * parts * times * count):
        return None
    waves = _waves(parts, times, length, count, inverse)
    names = [a if at != axis else "f" for at, a in enumerate(_names(len(shape) - 1))]
    spatial = [*((a, result[at], "S") for at, a in enumerate(names)), ("c", 2, "S")]
    source = [f"v{a}" if at != axis else "vt" for at, a in enumerate(names)]
    return _transformed(site, spatial, [*source, "vq"], [*(f"v{a}" for a in names), "vc"], waves)


def _names(rank: int) -> list[str]:
    """Names of loops over dimensions that are not those of transforms."""
    return [f"{a}_" for a in letters(rank)]


def _stft(site: Site) -> Built:
    """ONNX's STFT: transforms of pieces of a signal, `frame_step` elements apart, weighted by a window."""
    shape, result = site.shape(), site.result().shape
    step, given = site.integers(1), site.integers(3)
    if not step or site.is_open(3) or len(shape) not in (2, 3) or site.opset < 17:
        return None
    parts = shape[2] if len(shape) == 3 else 1
    length = given[0] if given else site.shape(2)[0] if site.has(2) else 0
    batch, frames, count, _ = result
    if not length or not _is_plain(site, parts, 2 * parts * length * count):
        return None
    waves, window = _waves(parts, length, length, count, False), site.constant(2)
    if site.has(2) and site.shape(2)[0] != length:
        return None
    if window is not None:
        waves = waves * window.astype(np.float64)[:, None, None]
    at = affine("vn", step[0], "vt")
    source = ["vb", at, "vq"] if len(shape) == 3 else ["vb", at]
    spatial = [("b", batch, "S"), ("n", frames, "S"), ("f", count, "S"), ("c", 2, "S")]
    return _transformed(site, spatial, source, ["vb", "vn", "vf", "vc"], waves, 2 if site.is_open(2) else None)


BUILDERS: Mapping[tuple[str, str], Builder] = {("", "DFT"): _dft, ("", "STFT"): _stft}
