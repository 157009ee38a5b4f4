"""The exact solver of layouts, against all choices, and that it is quick."""

from __future__ import annotations

import itertools
import time
from math import inf

import numpy as np
import pytest

from stridesmith.models.agreement import Agreement, Costs, OperatorCosts, agree
from stridesmith.models.elimination import Factor, lower_bound, solve


def random_factors(seed: int, variables: int = 7, count: int = 10) -> list[Factor]:
    """Tables over one to three of some variables, some entries of which are impossible."""
    rng = np.random.default_rng(seed)
    sizes = {f"v{k}": int(rng.integers(1, 4)) for k in range(variables)}
    found = []
    for _ in range(count):
        scope = tuple(rng.permutation(list(sizes))[: rng.integers(1, 4)].tolist())
        table = rng.integers(0, 50, [sizes[v] for v in scope]).astype(float)
        table[rng.random(table.shape) < 0.1] = inf
        found.append(Factor(scope, table))
    return found


def every(factors: list[Factor]) -> dict[tuple[int, ...], float]:
    """The sum at each choice of values."""
    sizes = {v: n for f in factors for v, n in zip(f.scope, f.table.shape, strict=True)}
    names = sorted(sizes)
    return {
        values: sum(float(f.table[tuple(values[names.index(v)] for v in f.scope)]) for f in factors)
        for values in itertools.product(*(range(sizes[v]) for v in names))
    }


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("limit", [1 << 20, 9])
def test_the_least_sum_is_found(seed: int, limit: int) -> None:
    """By elimination alone, and by branch and bound where tables may not grow."""
    factors = random_factors(seed)
    sums = every(factors)
    cost, found = solve(factors, limit)
    assert cost == min(sums.values())
    assert not found or sums[tuple(found[v] for v in sorted(found))] == cost
    assert lower_bound(factors, 9) <= cost


def random_costs(seed: int, length: int, layouts: int = 3) -> Costs:
    """A network in which each operator reads one or two of the tensors before it."""
    rng = np.random.default_rng(seed)
    tensors, operators = ["t0"], []
    for number in range(length):
        reads = tuple(dict.fromkeys(rng.choice(tensors[-3:], rng.integers(1, 3)).tolist()))
        result = f"t{number + 1}"
        table = rng.integers(5, 60, [layouts] * (len(reads) + 1)).astype(float)
        operators.append(OperatorCosts(f"op{number}", reads, (result,), table))
        tensors.append(result)
    copies = {t: rng.integers(1, 20, (layouts, layouts)) * (1.0 - np.eye(layouts)) for t in tensors}
    return Costs(tuple(operators), copies, frozenset({"t0", tensors[-1]}))


def total(costs: Costs, agreement: Agreement) -> float:
    """What an agreement costs, added up."""
    operators = sum(float(o.table[agreement.combination(o)]) for o in costs.operators)
    return operators + sum(float(costs.copies[c.tensor][c.source, c.target]) for c in agreement.copies)


def by_hand(costs: Costs) -> float:
    """The least cost over all layouts of all tensors, written and read."""
    best = inf
    tensors, reads = list(costs.copies), [(o.name, t) for o in costs.operators for t in o.reads]
    layouts = range(len(costs.copies["t0"]))
    for written in itertools.product(layouts, repeat=len(tensors) - 1):
        at = {"t0": 0, **dict(zip(tensors[1:], written, strict=True))}
        for read in itertools.product(layouts, repeat=len(reads)):
            seen = dict(zip(reads, read, strict=True))
            wanted = {(t, k) for (_, t), k in seen.items()} | {(t, 0) for t in costs.outside}
            cost = sum(float(costs.copies[t][at[t], k]) for t, k in wanted)
            for o in costs.operators:
                cost += float(o.table[(*(seen[o.name, t] for t in o.reads), *(at[t] for t in o.writes))])
            best = min(best, cost)
    return best


@pytest.mark.parametrize("seed", range(6))
def test_copies_are_shared_by_their_readers(seed: int) -> None:
    """The agreement costs what it says, and nothing costs less."""
    costs = random_costs(seed, 3, layouts=2)
    found = agree(costs)
    assert found.cost == total(costs, found) == by_hand(costs)


def test_what_leaves_the_network_does_so_as_onnx_has_it() -> None:
    """A result that is dear to write plainly is copied, once."""
    table = np.array([[50.0, 9.0], [60.0, 9.0]])
    copies = {"x": np.array([[0.0, 7.0], [7.0, 0.0]]), "y": np.array([[0.0, 3.0], [4.0, 0.0]])}
    operator = OperatorCosts("op", ("x",), ("y",), table)
    found = agree(Costs((operator,), copies, frozenset("xy")))
    assert found.cost == 13 and [(c.tensor, c.source, c.target) for c in found.copies] == [("y", 1, 0)]


def test_a_rule_for_all_costs_at_least_as_much() -> None:
    """Uniform layouts are agreements like others."""
    costs = random_costs(1, 12)
    for layout in range(3):
        found = agree(costs, {f"t{k}": [layout] for k in range(1, 13)})
        assert found.cost == pytest.approx(total(costs, found)) and found.cost >= agree(costs).cost
        assert all(found.written[f"t{k}"] == layout for k in range(1, 13))


def test_two_hundred_operators_take_milliseconds() -> None:
    """Residual networks with six layouts of each tensor are solved as quickly as they are read."""
    costs = random_costs(0, 200, layouts=6)
    agree(costs)
    begin = time.perf_counter()
    agree(costs)
    assert time.perf_counter() - begin < 2
