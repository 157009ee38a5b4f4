"""Products of matrices, of vectors, and of tensors of matrices with broadcasting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ...ir.dtypes import is_float, is_int
from ...space.workloads.precision import Precision, plain, precision
from ...space.workloads.text import Program, Step, element, literal
from ..network import Operator
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
    """Products of tensors whose indices are letters, summed over those that the result has not.

    Of more than two tensors the first two are multiplied, that with the third, and so on.
    """
    parsed = _indices(site)
    if parsed is None or not all(site.dtype(at) == site.dtype() for at in range(site.count)):
        return None
    terms, right = parsed
    if len({*right}) != len(right) or not (is_float(site.dtype()) or is_int(site.dtype())):
        return None
    extents: dict[str, int] = {}
    for at, term in enumerate(terms):
        for letter, extent in zip(term, site.shape(at), strict=True):
            extents[letter] = max(extent, extents.get(letter, 1))
    if single := _one_sum(site, terms, right, extents):
        return single
    made: list[Operator] = []
    tensor, own = site.node.inputs[0], terms[0]
    for number in range(1, max(2, len(terms))):
        others = terms[number : number + 1]
        later = {*right, *(letter for term in terms[number + 1 :] for letter in term)}
        is_last = number + 1 >= len(terms)
        kept = right if is_last else [x for x in dict.fromkeys([*own, *others[0]]) if x in later]
        shape = tuple(extents[x] for x in kept)
        into = site.node.outputs[0] if is_last else site.new_tensor(shape, site.dtype())
        inputs = [tensor, *site.node.inputs[number : number + 1]]
        made.append(site.operator(_summed(site, [own, *others], inputs, kept, extents), inputs, 0 if is_last else into))
        tensor, own = into, kept
    return [*made]


def _indices(site: Site) -> tuple[list[list[str]], list[str]] | None:
    """The letters of each tensor and of the result; the dimensions of ``...`` are ``.0``, ``.1``, ... from the last."""
    equation = str(site.attribute("equation", "")).replace(" ", "")
    left, arrow, right = equation.partition("->")
    texts = left.split(",")
    if len(texts) != site.count:
        return None
    terms, longest = [], 0
    for at, text in enumerate(texts):
        more = len(site.shape(at)) - len(text.replace("...", ""))
        if more < 0 or (more and "..." not in text):
            return None
        longest = max(longest, more)
        terms.append(_letters(text, more))
    counts = Counter(x for term in terms for x in term)
    alone = sorted(x for x, count in counts.items() if count == 1 and not x.startswith("."))
    result = _letters(right, longest) if arrow else [*_letters("...", longest), *alone]
    return (terms, result) if {*result} <= {*counts} else None


def _letters(text: str, more: int) -> list[str]:
    front, dots, end = text.partition("...")
    return [*front, *(f".{at}" for at in reversed(range(more if dots else 0))), *end]


def _one_sum(site: Site, terms: Sequence[list[str]], right: list[str], extents: Mapping[str, int]) -> Built:
    """The product of two tensors with one letter that is summed over, if that is all."""
    summed = [letter for letter in extents if letter not in right]
    is_plain = all(len({*term}) == len(term) and "." not in "".join(term) for term in (*terms, right))
    fits = all(extents[x] == e for at, term in enumerate(terms) for x, e in zip(term, site.shape(at), strict=True))
    if len(terms) != 2 or len(summed) != 1 or not is_plain or not fits or not is_float(site.dtype()):
        return None
    called = {letter: f"v{letter.lower()}_{letter}" for letter in extents} | {summed[0]: "vk"}
    spatial = [(called[letter][1:], extents[letter]) for letter in right]
    a, b = ([called[letter] for letter in term] for term in terms)
    return product_of(site, spatial, extents[summed[0]], a, b, [])


def _summed(
    site: Site, terms: Sequence[list[str]], inputs: Sequence[str], kept: list[str], extents: Mapping[str, int]
) -> str:
    """The program of a product of tensors with the indices `terms`, summed over all letters that are not `kept`."""
    program = Program("einsum", _types(site.dtype()))
    shapes = [site.graph.types[tensor].shape for tensor in inputs]
    program.inputs([(f"x{at}", shape) for at, shape in enumerate(shapes)])
    shape = tuple(extents[x] for x in kept)
    program.output("y", shape, program.precision.storage)
    every = dict.fromkeys([*kept, *(x for term in terms for x in term)])
    called = {x: f"e_{x[1:]}" if x.startswith(".") else f"{x.lower()}_{x}" for x in every}
    loads = []
    for at, (term, own) in enumerate(zip(terms, shapes, strict=True)):
        index = ["0" if e == 1 else f"v{called[x]}" for x, e in zip(term, own, strict=True)]
        loads.append(program.load(f"x{at}", index))
    over = [x for x in every if x not in kept]
    types, axes = program.precision, [(called[x], extents[x]) for x in kept]
    has_stage = types.is_mixed and bool(over)
    total = program.alloc("total", shape) if has_stage else "y"
    target, value = element(total, [f"v{a}" for a, _ in axes]), " * ".join(loads)
    loops = [*((a, e, "S") for a, e in axes), *((called[x], extents[x], "R") for x in over)]
    if over:
        program.add("einsum", loops, f"{target} = {target} + {value}", f"{target} = {program.zero()}")
    else:
        program.add("einsum", loops, f"{target} = {types.narrow(value)}")
    if has_stage:
        program.stages("y", total, axes, [a for a, _ in axes], [("store", "{v}")])
    return program.text()


BUILDERS: Mapping[tuple[str, str], Builder] = {("", "MatMul"): _matmul, ("", "Gemm"): _gemm, ("", "Einsum"): _einsum}
