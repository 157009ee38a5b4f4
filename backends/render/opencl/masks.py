"""Conditions on lanes, and the accesses under them.

A mask is a vector of integers, as wide as the lanes that it chooses, with all bits set where the condition holds: what
comparisons of vectors give in OpenCL C.  Instructions that access lanes under a mask take a bit for each.
"""

from __future__ import annotations

from ....ir import dtypes
from ....ir.expr import COMPARISONS, LOGIC, Binary, Broadcast, Call, Const, Expr, Load, Not, Ramp
from ....ir.functions import LOAD_WITHIN
from ....ir.passes.flat import product
from ....ir.stmt import Store
from ...errors import CodegenError
from .helpers import ONE_MEMORY
from .kernel import Kernel
from .memory import offset, read_vector
from .types import bare, memory_type

INTEGERS = {1: "char", 2: "short", 4: "int", 8: "long"}
"""The type of a lane of a mask, by the bytes of what it chooses."""


def mask(k: Kernel, cond: Expr, nbytes: int) -> str:
    """The mask of lanes of `nbytes` for a condition."""
    count = dtypes.lanes(cond.dtype)
    if isinstance(cond, Broadcast):
        return f"(({INTEGERS[nbytes]}{count})(-{_test(k, cond.value)}))"
    if isinstance(cond, Not):
        return f"(~{mask(k, cond.a, nbytes)})"
    if isinstance(cond, Binary) and cond.op in LOGIC:
        a, b = (mask(k, side, nbytes) for side in (cond.a, cond.b))
        return f"({a} {'&' if cond.op == 'and' else '|'} {b})"
    if not isinstance(cond, Binary) or cond.op not in COMPARISONS:
        raise CodegenError(f"a condition on lanes that is no comparison of vectors: {cond!r}")
    a, b = (k.vector(side) for side in (cond.a, cond.b))
    text = f"({a} {cond.op} {b})"
    given, wanted = INTEGERS[lane_bytes(k, cond.a.dtype)], INTEGERS[nbytes]
    if given == wanted:
        return text
    return f"{k.helpers.built_in(f'convert_{wanted}{{n}}', given, wanted, count)}({text})"


def lane_bytes(k: Kernel, dtype: str) -> int:
    """Bytes of a lane as it is computed."""
    base = dtypes.element(dtype)
    return dtypes.nbytes("float32" if base in k.types.emulated else base)


def _bits(k: Kernel, cond: Expr, nbytes: int) -> str:
    """The mask with a bit for each lane; a condition that all of them share has all bits or none."""
    if isinstance(cond, Broadcast) or dtypes.lanes(cond.dtype) == 1:
        return f"(-{_test(k, cond.value if isinstance(cond, Broadcast) else cond)})"
    if isinstance(cond, Binary) and cond.op in LOGIC:
        a, b = (_bits(k, side, nbytes) for side in (cond.a, cond.b))
        return f"({a} {'&' if cond.op == 'and' else '|'} {b})"
    text = mask(k, cond, nbytes)
    return f"{k.helpers.bits(dtypes.lanes(cond.dtype), nbytes)}({bare(text)})"


def _test(k: Kernel, cond: Expr) -> str:
    """A scalar condition, held where it may be evaluated in any case."""
    text = k.scalar(cond)
    return text if k.writer.is_lazy or k.writer.changes(cond) else k.writer.held(text, "int")


def load_masked(k: Kernel, e: Call) -> str:
    """A load under a condition: by an instruction for lanes, or of one of two addresses."""
    cond, load, other = e.args
    assert isinstance(load, Load)
    count, kind = dtypes.lanes(e.dtype), memory_type(e.dtype)
    if count == 1 or not k.helpers.is_masked(kind, count):
        return _one_of_two(k, cond, load, other)
    bits = _bits(k, cond, lane_bytes(k, e.dtype))
    where = f"{k.pointer(load.buffer)}, {offset(k, first(load))}"
    return f"{k.helpers.load_masked(kind, count)}({where}, {bare(bits)}, {k.vector(other)})"


def store_masked(k: Kernel, cond: Expr, store: Store) -> None:
    """The store of the lanes of a vector for which a condition holds."""
    count, kind = dtypes.lanes(store.value.dtype), memory_type(store.buffer.dtype)
    text = k.vector(store.value)
    bits = _bits(k, cond, lane_bytes(k, store.buffer.dtype))
    where = f"{k.pointer(store.buffer)}, {offset(k, first(store))}"
    k.writer.line(f"{k.helpers.store_masked(kind, count)}({bare(text)}, {where}, {bare(bits)});")


def load_within(k: Kernel, e: Call) -> str:
    """Neighbours, and 0 for those that are not in the buffer."""
    (load,) = e.args
    assert isinstance(load, Load)
    count, size = dtypes.lanes(load.dtype), bare(k.extent(product(load.buffer.extents)))
    function = k.helpers.load_within(memory_type(load.dtype), count)
    return f"{function}({k.pointer(load.buffer)}, {offset(k, first(load))}, {size})"


def read_in_place(k: Kernel, e: Expr) -> str | None:
    """A load of neighbours as part of another expression; None of any other expression."""
    if isinstance(e, Load) and dtypes.lanes(e.dtype) > 1 and k.space(e.buffer) != "image":
        return read_vector(k, e.buffer, first(e), dtypes.lanes(e.dtype))
    return load_within(k, e) if isinstance(e, Call) and e.name == LOAD_WITHIN else None


def first(access: Load | Store) -> Expr:
    """The position of the first of neighbours."""
    (index,) = access.indices
    if not isinstance(index, Ramp) or index.stride != Const(1):
        raise CodegenError(f"an access to `{access.buffer.name}` of lanes that are no neighbours: {index!r}")
    return index.base


def _one_of_two(k: Kernel, cond: Expr, load: Load, other: Expr) -> str:
    """Elements of a buffer or a constant, without a branch."""
    count, constant = dtypes.lanes(load.dtype), other.value if isinstance(other, Broadcast) else other
    assert isinstance(constant, Const)
    at = first(load) if count > 1 else load.indices[0]
    where = f"{k.pointer(load.buffer)}, {offset(k, at)}"
    otherwise, place = _constant(k, constant.value, load.buffer.dtype, count)
    read = k.helpers.load_or(memory_type(load.buffer.dtype), count)
    return f"{read}({bare(_test(k, cond))}, {where}, {otherwise}, {place})"


def _constant(k: Kernel, value: float, dtype: str, count: int) -> tuple[str, str]:
    """The names of a private array of so many times a constant, and of its address.

    The compiler is not told what lies at the address: it would make a branch.
    """
    text = k.types.literal(value, dtype)
    names = k.constants.get((text, dtype, count))
    if names is None:
        array, hidden, place = (k.writer.names.fresh(name) for name in ("otherwise", "hidden", "place"))
        k.writer.first_lines += [
            f"    {memory_type(dtype)} {array}[{count}] = {{{', '.join([text] * count)}}};",
            f"#ifdef {ONE_MEMORY}",
            f"    volatile size_t {hidden} = (size_t){array};",
            f"    const size_t {place} = {hidden};",
            "#endif",
        ]
        names = k.constants[text, dtype, count] = array, place
    return names
