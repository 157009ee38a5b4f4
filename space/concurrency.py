"""Which loops a schedule may run concurrently: iterator kinds decide, and the proof of `ir.dataflow.concurrency`."""

from __future__ import annotations

from ..ir.dataflow.concurrency import CONCURRENT, conflict
from ..ir.dataflow.instances import instances
from ..ir.expr import free_variables
from ..ir.stmt import For, PrimFunc, walk_stmts
from .errors import ScheduleError
from .tree import blocks_below


def check_concurrent(func: PrimFunc, loop: For, *, private: bool = True, reduces: bool = False) -> None:
    """Raise ScheduleError unless the iterations of `loop` are independent.

    With `private`, each iteration may have a copy of its own of a buffer that is used
    only inside; lanes of vectors have none.  Harmless writes count like any other:
    adding zero to an element that another iteration owns loses updates.  With `reduces`,
    iterations may update elements together (see `ir.dataflow.concurrency`).
    """
    found = conflict(instances(func), loop, private=private, reduces=reduces)
    if found is not None:
        raise ScheduleError(
            "(1) {conflict}",
            hint="parallelise a loop over spatial iterators, or decompose the reduction first",
            conflict=found,
        )
    _check_iterators(loop, ("spatial", "reduce") if reduces else ("spatial",))


def check_marked(func: PrimFunc, loop: For) -> None:
    """Raise ScheduleError unless `loop`, which is marked as concurrent, may run so in `func`."""
    check_concurrent(func, loop, private=loop.kind != "vectorized", reduces=loop.reduces)


def check_all_marked(func: PrimFunc) -> None:
    """Raise ScheduleError unless every loop of `func` that is marked as concurrent may run so."""
    for loop in walk_stmts(func.body):
        if isinstance(loop, For) and loop.kind in CONCURRENT:
            check_marked(func, loop)


def _check_iterators(loop: For, kinds: tuple[str, ...]) -> None:
    for block in blocks_below(loop):
        for item in block.iters:
            if item.kind not in kinds and loop.var in free_variables(item.binding):
                raise ScheduleError(
                    "(1) loop `{loop}` is part of the {kind} iterator `{iter}` of block `{block}`",
                    hint="use rfactor to run a reduction concurrently",
                    loop=loop.var.name,
                    kind=item.kind,
                    iter=item.var.name,
                    block=block.name,
                )
