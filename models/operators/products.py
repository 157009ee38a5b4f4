"""Products of matrices, of vectors, and of tensors of matrices with broadcasting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...ir.dtypes import is_float, is_int
from ...space.workloads.precision import Precision, plain, precision
from ...space.workloads.text import Program, Step, element, literal
from .pointwise import broadcast
from .site import Builder, Built, Site

Axes = list[tuple[str, int]]


def product_of(
    site: Site,
    spatial: Axes,
    k: int,
    a: Sequence[str],
    b: Sequence[str],
    steps: Sequence[Step],
    extra: Sequence[int] = (),
) -> Built:
    """``y[spatial] = sum over k of a[...] b[...]``, then `steps`, which may read the inputs `extra` as ``bias``."""
    program = Program("matmul", _types(site.dtype()))
    program.inputs([("a", site.shape(0)), ("b", site.shape(1)), *(("bias", site.shape(at)) for at in extra)])
    program.output("c", site.result().shape)
    if program.precision.is_mixed and not steps:
        steps = [("store", "{v}")]
    total = program.alloc("acc", site.result().shape) if steps else "c"
    names = [name for name, _ in spatial]
    target = element(total, [f"v{name}" for name in names])
    update = f"{target} = {target} + {program.load('a', a)} * {program.load('b', b)}"
    loops = [(name, e, "S") for name, e in spatial] + [("k", k, "R")]
    program.add("matmul", loops, update, f"{target} = {program.zero()}")
    if steps:
        program.stages("c", total, spatial, names, steps)
    return [site.operator(program.text(), [0, 1, *extra])]


def _types(dtype: str) -> Precision:
    return precision(dtype) if is_float(dtype) else plain(dtype)


def _matmul(site: Site) -> Built:
    """Matrices in the last two dimensions; a vector is a row on the left, a column on the right."""
    a, b = site.shape(0), site.shape(1)
    if not (is_float(site.dtype()) or is_int(site.dtype())) or not a or not b:
        return None
    has_rows, has_columns = len(a) > 1, len(b) > 1
    rank = len(site.result().shape) - has_rows - has_columns
    lead = [("s" if rank == 1 else f"s{at}", site.result().shape[at]) for at in range(rank)]
    spatial = [*lead, *([("i", a[-2])] if has_rows else []), *([("j", b[-1])] if has_columns else [])]
    point = [f"v{name}" for name, _ in lead]
    at_a = [*(broadcast(a[:-2], point) if has_rows else []), *["vi"] * has_rows, "vk"]
    at_b = [*(broadcast(b[:-2], point) if has_columns else []), "vk", *["vj"] * has_columns]
    return product_of(site, spatial, a[-1], at_a, at_b, [])


def _gemm(site: Site) -> Built:
    """``alpha A B + beta C``, with either matrix transposed."""
    if not (is_float(site.dtype()) or is_int(site.dtype())):
        return None
    turned_a, turned_b = site.attribute("transA", 0), site.attribute("transB", 0)
    accumulator = _types(site.dtype()).accumulator
    alpha, beta = site.attribute("alpha", 1.0), site.attribute("beta", 1.0)
    if is_int(accumulator) and (alpha, beta) != (1.0, 1.0):
        return None
    m, n = site.result().shape
    k = site.shape(0)[0 if turned_a else 1]
    scale = f" * {literal(alpha, accumulator)}" if alpha != 1 else ""
    steps: list[Step] = [("scale", "{v}" + scale)] if scale else []
    extra = [2] if site.has(2) and beta != 0 else []
    if extra:
        bias = element("bias", broadcast(site.shape(2), ["vi{i}", "vj{i}"]))
        bias = _types(site.dtype()).widen(bias)
        factor = f" * {literal(beta, accumulator)}" if beta != 1 else ""
        steps = [("bias", "{v}" + scale + " + " + bias + factor)]
    at_a, at_b = (["vk", "vi"] if turned_a else ["vi", "vk"]), (["vj", "vk"] if turned_b else ["vk", "vj"])
    return product_of(site, [("i", m), ("j", n)], k, at_a, at_b, steps, extra)


def _einsum(site: Site) -> Built:
    """Products of two tensors whose indices are letters, each at most once in a tensor, all of them known."""
    left, _, right = site.attribute("equation", "").replace(" ", "").partition("->")
    terms = left.split(",")
    plain_letters = all(len(set(term)) == len(term) and (not term or term.isalpha()) for term in (*terms, right))
    if len(terms) != 2 or "->" not in site.attribute("equation", "") or not plain_letters or site.count != 2:
        return None
    extents = {letter: e for at, term in enumerate(terms) for letter, e in zip(term, site.shape(at), strict=True)}
    summed = [letter for letter in extents if letter not in right]
    shapes_fit = all(
        extents[a] == e for at, term in enumerate(terms) for a, e in zip(term, site.shape(at), strict=True)
    )
    if len(summed) != 1 or not shapes_fit or not is_float(site.dtype()):
        return None
    called = {letter: f"v{letter.lower()}_{letter}" for letter in extents} | {summed[0]: "vk"}
    spatial = [(called[letter][1:], extents[letter]) for letter in right]
    a, b = ([called[letter] for letter in term] for term in terms)
    return product_of(site, spatial, extents[summed[0]], a, b, [])


BUILDERS: Mapping[tuple[str, str], Builder] = {("", "MatMul"): _matmul, ("", "Gemm"): _gemm, ("", "Einsum"): _einsum}
