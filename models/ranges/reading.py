"""From a model to a network of free sizes: it is read at some sizes, and what these have in common is generalised.

::

    sizes drawn from the ranges
      -> the network of each                 read as any: shapes inferred, what is constant folded
      -> operators in groups                 those that can be one at all sizes
      -> programs of all shapes              `lifting`; what they read tells what they write, operator by operator
      -> proofs of each for all sizes        or a sentence that names the operator

What two expressions could be is looked at where they differ, so that sizes are added until every expression is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ...errors import ModelProblem, ProgramError
from ...ir.expr import Expr, Extent, Var
from ...ir.size_ranges import Range
from ...ir.stmt import PrimFunc
from ...ir.target import Target
from ...ir.verify.bounds import check_in_bounds
from ...ir.verify.rules import verify
from ..network import Array, Network, Operator
from .fitting import forms
from .grouping import Groups, is_view
from .joining import joined
from .lifting import Differs, Grid, Lifted, Unlooked, lifted, lifted_shapes, of_parameters
from .network import RangedNetwork, RangedOperator, RangedTensor, Shape
from .orders import Orders, orders_of

MOST_ROWS = 1 << 16
"""So many combinations of sizes are looked at, of more a part that is drawn."""
DRAWN_LOOKS = 4
"""Sizes at which a model is read and that chance alone chooses."""
MOST_LOOKS = 24
"""Sizes at which a model is read at most."""

Read = Callable[[Mapping[str, int]], Network]
"""The network at some sizes."""


def grid_of(ranges: Mapping[str, Range]) -> Grid:
    """The values of all sizes together, where there are not too many."""
    axes = [np.arange(r.low, r.high + 1, r.step, dtype=np.int64) for r in ranges.values()]
    if np.prod([float(len(axis)) for axis in axes]) <= MOST_ROWS:
        columns = [mesh.reshape(-1) for mesh in np.meshgrid(*axes, indexing="ij")]
    else:
        rng = np.random.default_rng(0)
        ends = np.meshgrid(*(axis[[0, -1]] for axis in axes), indexing="ij")
        longest = max(map(len, axes))
        along = [np.resize(axis, longest) for axis in axes]
        columns = [
            np.concatenate([mesh.reshape(-1), line, rng.choice(axis, MOST_ROWS)])
            for mesh, line, axis in zip(ends, along, axes, strict=True)
        ]
    return Grid(dict(zip(ranges, columns, strict=True)))


class Looks:
    """A network at some sizes, rows of a grid, all with the same operators."""

    def __init__(self, read: Read, grid: Grid) -> None:
        self.read, self.grid = read, grid
        self.networks: dict[int, Network] = {}

    @property
    def rows(self) -> list[int]:
        return list(self.networks)

    def point(self, row: int) -> dict[str, int]:
        """The sizes of a row."""
        return {name: int(column[row]) for name, column in self.grid.columns.items()}

    def grouped(self, groups: Groups) -> list[Network]:
        """The networks with their operators in the same groups."""
        networks = list(self.networks.values())
        found = groups.of(networks)
        return [network.with_nodes(tuple(ops[k] for ops in found)) for k, network in enumerate(networks)]

    def middle(self, ranges: Mapping[str, Range]) -> int:
        """The number of the network whose sizes are closest to the middle of their ranges."""

        def distance(row: int) -> float:
            shares = [
                (value - r.low) / max(r.high - r.low, 1)
                for value, r in zip(self.point(row).values(), ranges.values(), strict=True)
            ]
            return sum(abs(share - 0.5) for share in shares)

        return min(range(len(self.rows)), key=lambda number: distance(self.rows[number]))

    def look(self, row: int) -> Network:
        """The network at the sizes of a row.  Raises ModelProblem where it is another one than at other sizes."""
        if row in self.networks:
            return self.networks[row]
        try:
            found = self.read(self.point(row))
        except ModelProblem as error:
            raise ModelProblem(f"with {_text(self.point(row))}: {error}") from None
        for node in found.nodes:
            if not isinstance(node, Operator):
                raise ModelProblem(
                    f"`{node.name}` ({node.op}) has no program here, which a network of free sizes needs"
                )
        for name, array in found.constants.items():
            if not array.size and any(name in other.tensors for other in self.networks.values()):
                raise _nothing(name, array.shape, self.point(row))
        for other in self.networks.values():
            _compare(found, other, _text(self.point(row)))
            break
        self.networks[row] = found
        return found


def _compare(found: Network, other: Network, point: str) -> None:
    """Raise ModelProblem where a network has other operators than at other sizes."""
    for one, two in zip(found.nodes, other.nodes, strict=False):
        if (one.name, one.inputs, one.outputs) != (two.name, two.inputs, two.outputs):
            raise ModelProblem(f"with {point} the model is another network than at other sizes, from `{one.name}` on")
    if len(found.nodes) != len(other.nodes):
        raise ModelProblem(
            f"with {point} the model is another network than at other sizes, of {len(found.nodes)} operators"
        )


def _text(point: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in point.items())


def first_rows(grid: Grid, ranges: Mapping[str, Range]) -> list[int]:
    """The rows that are looked at first: the largest sizes, some between, in pairs of neighbours, small ones, any.

    The last ones are drawn: what was not thought of when the others were chosen shows there.
    """
    wanted: list[list[int]] = []
    for number, numbers in enumerate(ranges.values()):
        low = numbers.low if numbers.low > numbers.step else min(numbers.low + numbers.step, numbers.high)
        block = 48 * numbers.step
        middle = (low + numbers.high) // 2 // block * block or low
        shares = (0.1, 0.37, 0.73)
        between = [low + int(share * (numbers.high - low) / numbers.step) * numbers.step for share in shares]
        own = [low, low + numbers.step, middle, middle - numbers.step, *between]
        kept = list(dict.fromkeys(v for v in own if low <= v < numbers.high))
        turn = number * 3 % max(len(kept), 1)
        wanted.append([numbers.high, *kept[turn:], *kept[:turn]])
    count = max(map(len, wanted))
    rows: list[int] = []
    for at in range(count):
        values = [own[at % len(own)] for own in wanted]
        apart = sum(np.abs(column - value) for column, value in zip(grid.columns.values(), values, strict=True))
        rows.append(int(np.argmin(apart)))
    longest = len(next(iter(grid.columns.values())))
    rows += np.random.default_rng(0).integers(0, longest, DRAWN_LOOKS).tolist()
    return list(dict.fromkeys(rows))


class Programs:
    """Programs of all shapes that have been lifted and proven, to look at again when networks of more rows are known.

    Operators that are the same ones at all rows have one.
    """

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self._named: dict[str, tuple[tuple[Shape | None, ...], int, Lifted]] = {}
        self._alike: dict[tuple[tuple[PrimFunc, ...], tuple[Shape | None, ...]], Lifted] = {}
        self._proven: set[PrimFunc] = set()

    def of(self, name: str, funcs: Sequence[PrimFunc], given: Sequence[Shape | None], rows: Sequence[int]) -> Lifted:
        """The program of an operator.  Raises as `lifted` does, and ProgramError for one that is none."""
        shapes = tuple(given)
        before, count, found = self._named.get(name, (None, 0, None))
        added = zip(funcs[count:], rows[count:], strict=True)
        if found is None or before != shapes or not all(found.is_at(func, self.grid, row) for func, row in added):
            found = self._alike.get((tuple(funcs), shapes)) or lifted(funcs, given, self.grid, rows)
        if found.func not in self._proven:
            verify(found.func)
            check_in_bounds(found.func)
            self._proven.add(found.func)
        self._named[name], self._alike[tuple(funcs), shapes] = (shapes, len(rows), found), found
        return found

    def joined(
        self, name: str, funcs: Sequence[PrimFunc], given: Sequence[Shape | None], rows: Sequence[int]
    ) -> tuple[PrimFunc, tuple[Shape, ...], tuple[Shape, ...]] | None:
        """The program of an operator with axes as one, the extents of its parameters, and those of its tensors.

        None where it has no such axes, or no such program.
        """
        one = joined(funcs)
        fixed_ones = [n for n, shape in enumerate(given) if shape and not any(isinstance(e, Expr) for e in shape)]
        if one is None or any(func.buffers[n].extents != given[n] for n in fixed_ones for func in funcs):
            return None  # a part of a constant that is longer is none of its axes as one
        made = lifted_shapes(funcs, given, self.grid, rows)
        shapes = one.shapes(made)
        told = [None if shape is None else own for shape, own in zip(given, shapes, strict=True)]
        try:
            found = self.of(f"{name} joined", one.funcs, told, rows)
        except (Differs, ProgramError):
            return None
        for number, own in enumerate(shapes):
            for extent, wanted in zip(found.shape(number), own, strict=True):
                if not np.array_equal(self.grid.values(extent), self.grid.values(wanted)):
                    return None
        return found.func, shapes, made


def ranged(
    read: Read, shapes: Mapping[str, Sequence[Extent | str]], ranges: Mapping[str, Range], target: Target
) -> RangedNetwork:
    """The network of free sizes that `read` gives at each of them; `shapes` are those of its inputs.

    A name in a shape is the size of this name.

    Raises ModelProblem, in one sentence that names the operator, for what is not one network for all sizes.
    """
    grid = grid_of(ranges)
    looks, groups, programs = Looks(read, grid), Groups(target), Programs(grid)
    orders, known = None, list[str]()  # the orders of tensors, and the operators for which they were chosen
    for row in first_rows(grid, ranges):
        looks.look(row)
    while True:
        try:
            grouped = looks.grouped(groups)
            names = [node.name for node in grouped[0].nodes]
            if orders is None or names != known:
                orders, known = orders_of(grouped, looks.middle(ranges), target), names
            found = _generalised(looks, [orders.applied(network) for network in grouped], shapes, ranges, programs)
            _check_least(looks, found, orders)
            return found
        except Unlooked as error:
            if len(looks.networks) >= MOST_LOOKS or error.row in looks.networks:
                raise ModelProblem(
                    "the shapes of the model are no expressions of its sizes that are known here"
                ) from None
            looks.look(error.row)


def _check_least(looks: Looks, network: RangedNetwork, orders: Orders) -> None:
    """Raise ModelProblem unless the shapes are right at the least sizes.

    An extent of 1 makes the network simpler that is read there, so that it is none that others are compared with.
    """
    point = {name: numbers.low for name, numbers in network.ranges.items()}
    try:
        least = looks.read(point)
    except ModelProblem as error:
        raise ModelProblem(f"with {_text(point)}: {error}") from None
    for name, tensor in least.tensors.items():
        if name in network.tensors and name not in network.constants and name not in least.constants:
            shape = network.shape(name, point)
            if shape != (wanted := orders.shape(name, tensor.shape)):
                raise ModelProblem(f"`{name}` has the shape {wanted} with {_text(point)}, and not {shape}")


def _generalised(
    looks: Looks,
    networks: Sequence[Network],
    shapes: Mapping[str, Sequence[Extent | str]],
    ranges: Mapping[str, Range],
    programs: Programs,
) -> RangedNetwork:
    """The network that those of the sizes that were looked at, with equal operators in groups, have in common."""
    rows, first = looks.rows, networks[0]
    tensors: dict[str, RangedTensor] = {}
    constants = _constants(networks)
    for name in first.inputs:
        told = shapes.get(name, first.tensors[name].shape)
        given_extents: Shape = tuple(Var(e) if isinstance(e, str) else e for e in told)
        tensors[name] = RangedTensor(name, given_extents, first.tensors[name].dtype)
    for name, array in constants.items():
        tensors[name] = RangedTensor(name, array.shape, first.tensors[name].dtype)
    nodes: list[RangedOperator] = []
    for found_alike in zip(*(network.nodes for network in networks), strict=True):
        instances = [op for op in found_alike if isinstance(op, Operator)]
        op = instances[0]
        given: list[Shape | None] = [tensors[name].extents for name in op.inputs]
        given += [None] * len(op.outputs)
        funcs = [one.func for one in instances]
        func: PrimFunc | None = None
        own: tuple[Shape, ...] = ()
        try:
            if is_view(op, funcs, first):
                made = _shapes_of_view(funcs, given, looks.grid, rows)
            elif (one := programs.joined(op.name, funcs, given, rows)) is not None:
                func, own, made = one
            else:
                found = programs.of(op.name, funcs, given, rows)
                func, made = found.func, tuple(found.shape(number) for number in range(len(op.func.buffers)))
        except (Differs, ProgramError) as error:
            raise ModelProblem(
                f"the operator `{op.name}` ({op.func.name}) has no program for all sizes: {error}"
            ) from None
        for name, extents in zip(op.outputs, made[len(op.inputs) :], strict=True):
            extents = tuple(simplest(extent, looks.grid, rows) for extent in extents)
            _refuse_nothing(name, extents, looks)
            tensors[name] = RangedTensor(name, extents, first.tensors[name].dtype)
        nodes.append(RangedOperator(op.name, func, op.inputs, op.outputs, own))
    for name, tensor in tensors.items():
        for row, network in zip(rows, networks, strict=True):
            if name not in constants and name in network.tensors:
                at = looks.point(row)
                wanted = tuple(int(looks.grid.values(e)[row]) for e in tensor.extents)
                if wanted != network.tensors[name].shape:
                    raise ModelProblem(
                        f"`{name}` has the shape {network.tensors[name].shape} with {_text(at)}, not {wanted}"
                    )
    computed = {name for node in nodes for name in node.outputs}
    for number, name in enumerate(first.outputs):
        if name not in computed or name in first.outputs[:number]:
            raise ModelProblem(
                f"the output `{name}` is an input, a constant or another output, which no operator computes"
            )
    return RangedNetwork(first.name, ranges, first.inputs, first.outputs, tensors, constants, tuple(nodes))


def _nothing(name: str, shape: tuple[int, ...], point: Mapping[str, int]) -> ModelProblem:
    """A tensor without elements at some sizes, as of a window that is longer than its image.

    Programs take for granted that there are some.
    """
    return ModelProblem(
        f"with {_text(point)}, `{name}` has the shape {shape}, without elements: the ranges must not have such sizes"
    )


def _refuse_nothing(name: str, extents: Shape, looks: Looks) -> None:
    """Raise ModelProblem where a tensor has no elements at some sizes."""
    for extent in extents:
        row = int(np.argmin(looks.grid.values(extent)))
        shape = tuple(int(looks.grid.values(e)[row]) for e in extents)
        if min(shape) < 1:
            raise _nothing(name, shape, looks.point(row))


def _shapes_of_view(
    funcs: Sequence[PrimFunc], given: Sequence[Shape | None], grid: Grid, rows: Sequence[int]
) -> tuple[Shape, ...]:
    """The extents of what an operator reads and of what it sees there, over the parameters of the network.

    Two axes as one are two again, which the one does not tell: ``(b * t, 48)`` -> ``(b, t, 48)``.  Raises as `lifted`
    does.
    """
    try:
        return lifted_shapes(funcs, given, grid, rows)
    except Differs:
        seen = zip(*(func.buffers[-1].extents for func in funcs), strict=True)
        return (*(shape or () for shape in given[:-1]), tuple(of_parameters(numbers, grid, rows) for numbers in seen))


def simplest(extent: Extent, grid: Grid, rows: Sequence[int]) -> Extent:
    """An extent as an expression over one parameter without divisions of divisions, where there is one."""
    if not isinstance(extent, Expr):
        return extent
    values = grid.values(extent)
    for name, column in grid.columns.items():
        for form in forms(values[rows], column[rows]):
            if np.array_equal(form.at(column), values):
                return form.of(Var(name))
    return extent


def _constants(networks: Sequence[Network]) -> dict[str, Array]:
    """The constants of all sizes: those that are as long as sizes say are the beginning of the longest one."""
    found: dict[str, Array] = {}
    for name in networks[0].constants:
        own = [network.constants[name] for network in networks if name in network.constants]
        if len(own) < len(networks):
            raise ModelProblem(f"`{name}` is a constant at some sizes alone")
        longest = max(own, key=lambda a: a.size)
        for other in own:
            if other is longest:
                continue
            part = longest[tuple(map(slice, other.shape))] if other.ndim == longest.ndim else None
            if (
                part is None
                or part.shape != other.shape
                or not np.array_equal(part, other, equal_nan=part.dtype.kind == "f")
            ):
                raise ModelProblem(f"the constant `{name}` has other numbers for each size, and not only more of them")
        found[name] = longest
    return found
