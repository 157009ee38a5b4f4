"""New loops over a shape, and a block's iterators bound to them."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.expr import Var
from ...ir.stmt import Iter, PrimFunc, fresh, names


def fresh_axes(func: PrimFunc, base: str, shape: Sequence[int]) -> tuple[tuple[Iter, ...], list[tuple[Var, int]]]:
    """Iterators ``v0, v1, ...`` over `shape`, bound to loops ``<base>_ax0, ...``, all with names that are free."""
    taken = names(func) | {base}
    iters: list[Iter] = []
    loop_vars: list[tuple[Var, int]] = []
    for dim, extent in enumerate(shape):
        axis = fresh(f"{base}_ax{dim}", taken)
        taken.add(axis)
        loop_vars.append((Var(axis), extent))
        iterator = fresh(f"v{dim}", taken)
        taken.add(iterator)
        iters.append(Iter(Var(iterator), extent, "spatial", Var(axis)))
    return tuple(iters), loop_vars
