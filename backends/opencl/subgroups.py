"""Reductions in subgroups as OpenCL C: one function of all work-items of a subgroup, without barriers.

::

    for l in N {subgroup}: C[s] = C[s] + e(l)
        ->  t = sub_group_reduce_add(e(l));  C[s] = C[s] + t

Registers get the sum in each item, memory that items share by the first of them.  The items of a subgroup are
neighbours along x, of which the work-group has as many, so that each of its rows is a subgroup: drivers number the
items of a group along x first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...ir import dtypes
from ...ir.dataflow.order import update_op
from ...ir.expr import Binary, Load, Var, as_int
from ...ir.stmt import For, Stmt, Store, walk_stmts
from ..llvm.types import CodegenError
from ..passes.subgroups import reductions
from .registers import Registers
from .types import bare
from .writer import NeedsLong


def subgroup_loops(body: Stmt) -> list[For]:
    """The loops that are bound to ``subgroup``."""
    return [loop for loop in walk_stmts(body) if isinstance(loop, For) and loop.reduces]


def subgroup_size(name: str, body: Stmt, items: int) -> int:
    """Work-items of the subgroups of kernel `name`, 0 where it has none; `items` are those of a group along x."""
    sizes = {as_int(loop.extent) for loop in subgroup_loops(body)}
    if sizes - {items}:
        raise CodegenError(
            f"kernel `{name}` has a loop bound to `subgroup` of {min(sizes)} work-items, but its groups have {items} "
            f"along x; let no loop that is bound to threadIdx.x or `subgroup` have more iterations"
        )
    return items if sizes else 0


class Subgroups(Registers):
    """Writes what the items of a subgroup do together; `together` are the stores of the loop that is being written."""

    together: frozenset[Store] = frozenset()
    first_item = ""

    @contextmanager
    def in_subgroup(self, loop: For, name: str) -> Iterator[None]:
        """Within, statements are those of a subgroup's loop, whose variable has a name."""
        around = self.together, self.first_item
        self.together, self.first_item = reductions(loop), f"if ({name} == 0)"
        yield
        self.together, self.first_item = around

    def reduced(self, store: Store) -> Store:
        """An update with what all items have for it, as a value that each of them holds, in place of its own part."""
        value, own = store.value, Load(store.buffer, store.indices)
        assert isinstance(value, Binary)
        op, part = update_op(store), value.b if value.a == own else value.a
        assert op is not None
        if part.dtype == dtypes.INDEX and self.index_type != "long":
            raise NeedsLong  # the sum may, where no part does
        held = Var(self.names.fresh("all"), part.dtype)
        self.variables[held] = held.name
        function = self.helpers.subgroup(op, self.ctype(part.dtype), dtypes.is_float(part.dtype))
        self.line(f"const {self.ctype(part.dtype)} {held.name} = {function}({bare(self.scalar(self.fixed(part)))});")
        return Store(store.buffer, store.indices, Binary(op, own, held))
