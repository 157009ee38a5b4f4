"""New loops over a shape, and a block's iterators bound to them."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.dtypes import INDEX, int_range
from ...ir.expr import Extent, Var
from ...ir.stmt import Iter, PrimFunc, fresh, names


def fresh_axes(
    func: PrimFunc, base: str, shape: Sequence[Extent], types: Sequence[str] | None = None
) -> tuple[tuple[Iter, ...], list[tuple[Var, Extent]]]:
    """Iterators ``v0, v1, ...`` over `shape`, bound to loops ``<base>_ax0, ...``, all with names that are free.

    They are of the index type, or of `types` where these hold the extents.
    """
    taken = names(func) | {base}
    iters: list[Iter] = []
    loop_vars: list[tuple[Var, Extent]] = []
    for dim, extent in enumerate(shape):
        axis = fresh(f"{base}_ax{dim}", taken)
        taken.add(axis)
        fits = types is not None and isinstance(extent, int) and extent <= int_range(types[dim])[1]
        dtype = types[dim] if types is not None and fits else INDEX
        loop_vars.append((Var(axis, dtype), extent))
        iterator = fresh(f"v{dim}", taken)
        taken.add(iterator)
        iters.append(Iter(Var(iterator, dtype), extent, "spatial", Var(axis, dtype)))
    return tuple(iters), loop_vars
