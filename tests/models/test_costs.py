"""From a network to the layouts that its operators agree on, and to the network in these layouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
from network_maker import Maker, computed, drawn

import stridesmith as ss
from stridesmith import configs
from stridesmith.backends.data import arguments_of, pack, unpack
from stridesmith.backends.devices import discover
from stridesmith.ir.layout.layout import Layout
from stridesmith.models.agreement import agree
from stridesmith.models.alternatives import MOST_COMBINATIONS, alternatives
from stridesmith.models.chosen import Chosen, in_layouts
from stridesmith.models.costs import Alternatives, CostTables
from stridesmith.models.fusion import fused
from stridesmith.models.kinds import Combination, Kind, copy_kind
from stridesmith.models.network import Network, Operator, Tensor, problems
from stridesmith.models.prediction import predicted_us
from stridesmith.models.run.kernels import kernels_of
from stridesmith.models.run.model import Model
from stridesmith.models.tasks import tasks_of

CPU = configs.target("cpu-avx2")


@pytest.fixture(scope="module")
def network() -> Network:
    """A residual block with ragged channels, and a pool behind it."""
    make = Maker()
    first = _conv(make, make.input(1, 3, 6, 6), 10)
    second = _conv(make, first, 10)
    both = make.map("T.max({0} + {1}, T.float32(0))", second, first)
    pooled = make.work("max_pool2d", both, c=10, h=6, w=6, k=3, stride=1, pad=1)
    return fused(make.network(_conv(make, pooled, 4, k=1)), CPU)


def _conv(make: Maker, x: str, co: int, k: int = 3) -> str:
    _, ci, h, w = make.shape(x)
    made = make.work("conv2d", x, make.constant(co, ci, k, k), ci=ci, co=co, h=h, w=w, k=k, pad=k // 2)
    return make.map("T.max({0} + b[v1], T.float32(0))", made, make.constant(co))


@pytest.fixture(scope="module")
def layouts(network: Network) -> Alternatives:
    return alternatives(network, CPU)


def labels(layouts: Alternatives, tensor: str) -> list[str]:
    return [layout.label for layout in layouts[tensor]]


def test_alternatives_follow_from_what_the_users_do(network: Network, layouts: Alternatives) -> None:
    """Channels last or in blocks of a vector, with the halo and the value that the reader tests for."""
    first, second, pool, _ = network.nodes
    halos = ["0123+halo2,3=0.0", "0231+halo2,3=0.0", "block1x8+halo2,3=0.0"]
    assert labels(layouts, first.outputs[0]) == ["0123", "0231", "block1x8=0.0", *halos]
    assert labels(layouts, second.outputs[0])[3] == "0123+halo2,3=-inf"
    assert not any("halo" in label for label in labels(layouts, pool.outputs[0]))
    assert all(len(found) <= 6 for found in layouts.values())


def test_constants_and_results_lie_as_onnx_has_them(network: Network, layouts: Alternatives) -> None:
    """What the caller sees has one layout."""
    for name in (*network.outputs, *network.constants):
        assert layouts[name] == (Layout.plain(network.tensors[name].shape),)


def physical(network: Network, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs of a network of programs in layouts, by the interpreter; nothing is packed between operators."""
    memory: dict[str, Any] = {}
    for node in network.nodes:
        assert isinstance(node, Operator)
        arguments = arguments_of(node.func)
        for name, argument in zip((*node.inputs, *node.outputs), arguments, strict=True):
            if name in network.constants or name in network.inputs:
                given = network.constants.get(name, arrays.get(name))
                memory[name] = pack(argument, given)
            elif name in node.outputs:
                memory[name] = np.full(argument.physical_shape, np.nan, argument.dtype)
        ss.interpret(node.func, *(memory[name] for name in (*node.inputs, *node.outputs)))
        memory |= {
            f"logical {n}": unpack(a, memory[n])
            for n, a in zip(node.outputs, arguments[len(node.inputs) :], strict=True)
        }
    return {name: memory[f"logical {name}"] for name in network.outputs}


@pytest.mark.parametrize("seed", range(3))
def test_a_network_in_any_layouts_computes_the_same(network: Network, layouts: Alternatives, seed: int) -> None:
    """Whatever is agreed on: programs and copies hand each other what the next one expects, padding included."""
    rng = np.random.default_rng(seed)
    agreement = agree(CostTables(network, layouts, CPU).costs(lambda kind, combination: float(rng.integers(1, 50))))
    made = in_layouts(network, Chosen.of(layouts, agreement))
    assert list(problems(made)) == []
    assert len(made.nodes) == len(network.nodes) + len(agreement.copies)
    before, after = computed(network, drawn(network)), physical(made, drawn(network))
    for name, array in before.items():
        np.testing.assert_array_equal(after[name], array)


ATTENTION = """
@T.prim_func
def scores(q: T.Buffer((1, 5, 16, 64), "float32"), k: T.Buffer((1, 5, 16, 64), "float32"),
           s: T.Buffer((1, 16, 5, 5), "float32")):
    for i0, i1, i2, i3, j in T.grid(1, 16, 5, 5, 64):
        with T.block("scores"):
            v0, v1, v2, v3, vj = T.axis.remap("SSSSR", [i0, i1, i2, i3, j])
            with T.init():
                s[v0, v1, v2, v3] = T.float32(0)
            s[v0, v1, v2, v3] = s[v0, v1, v2, v3] + q[v0, v2, v1, vj] * k[v0, v3, v1, vj]


@T.prim_func
def context(p: T.Buffer((1, 16, 5, 5), "float32"), v: T.Buffer((1, 5, 16, 64), "float32"),
            y: T.Buffer((1, 5, 16, 64), "float32")):
    for i0, i1, i2, i3, j in T.grid(1, 5, 16, 64, 5):
        with T.block("context"):
            v0, v1, v2, v3, vj = T.axis.remap("SSSSR", [i0, i1, i2, i3, j])
            with T.init():
                y[v0, v1, v2, v3] = T.float32(0)
            y[v0, v1, v2, v3] = y[v0, v1, v2, v3] + p[v0, v2, v1, vj] * v[v0, vj, v2, v3]
"""


def attention(heads: int = 16) -> Network:
    """Scores of queries and keys, and what they take of the values, by heads; each tensor has an operator before it."""
    make = Maker()
    scores, context = (ss.parse(ATTENTION.replace("16", str(heads)), name) for name in ("scores", "context"))
    assert isinstance(scores, ss.PrimFunc) and isinstance(context, ss.PrimFunc)
    q, k, v = (make.map("{0} * T.float32(2)", make.input(1, 5, heads, 64)) for _ in range(3))
    y = make.operator(context, make.operator(scores, q, k), v)
    return make.network(make.map("{0} + T.float32(1)", y))


def test_heads_may_lie_first() -> None:
    """What a head reads and writes lies together, where its rows in the model are a way of the cache apart."""
    assert not any(layout.label == "2013" for some in alternatives(attention(12), CPU).values() for layout in some)
    network = attention()
    found = alternatives(network, CPU)
    heads = {name for name, some in found.items() if "2013" in [layout.label for layout in some]}
    assert heads == {name for node in network.nodes[:3] for name in node.outputs} | set(network.nodes[4].outputs)
    chosen = Chosen({name: next(k for k in found[name] if k.label == "2013") for name in heads})
    made = in_layouts(network, chosen)
    assert len(made.nodes) == len(network.nodes) and Chosen.from_json(chosen.to_json()) == chosen
    for name, array in computed(network, drawn(network)).items():
        np.testing.assert_array_equal(physical(made, drawn(network))[name], array)
    target = discover("cpu", 2)
    model = Model(made, kernels_of(tasks_of(made, target), None), target)
    for name, array in computed(network, drawn(network)).items():
        np.testing.assert_array_equal(model(drawn(network))[name], array)


@pytest.mark.parametrize("count", [30, 70])
def test_an_operator_of_many_tensors_has_tables_of_bounded_size(count: int) -> None:
    """Its largest tensors have a choice, the others lie as ONNX has them; an array has 64 axes at most."""
    make = Maker()
    x = make.input(1, 8, 4, 4)
    parts = [_conv(make, x, 8 + number // 20, k=1) for number in range(count)]
    network = fused(make.network(_conv(make, make.concat(1, *parts), 4, k=1)), CPU)
    found = alternatives(network, CPU)
    (whole,) = (node for node in network.nodes if len(node.inputs) >= count)
    sizes = [len(found[name]) for name in (*whole.inputs, *whole.outputs)]
    assert 1 in sizes and max(sizes) > 1 and prod(sizes) <= MOST_COMBINATIONS
    assert len(found[whole.outputs[0]]) == 3, "the result is the largest, and keeps its choice"
    rng = np.random.default_rng(0)
    agreement = agree(CostTables(network, found, CPU).costs(lambda kind, combination: float(rng.integers(1, 50))))
    made = in_layouts(network, Chosen.of(found, agreement))
    assert list(problems(made)) == []
    for name, array in computed(network, drawn(network)).items():
        np.testing.assert_array_equal(physical(made, drawn(network))[name], array)


@pytest.mark.parametrize("dtype", ["object", "uint32"])
def test_what_no_program_touches_lies_as_it_is_given(dtype: str) -> None:
    """An input of a type that programs have not, and that nothing reads."""
    make = Maker()
    network = make.network(make.map("{0} + {0}", make.input(3, 4)))
    texts = Tensor("texts", (3, 4), dtype)
    network = replace(network, inputs=(*network.inputs, "texts"), tensors={**network.tensors, "texts": texts})
    found = alternatives(network, CPU)
    assert found["texts"] == (Layout.plain((3, 4)),)
    assert agree(CostTables(network, found, CPU).costs(lambda *_: 1.0)).written["texts"] == 0


def test_equal_operators_share_what_they_cost(network: Network, layouts: Alternatives) -> None:
    """A combination of a kind is asked for once, and an agreement says which ones it runs."""
    asked: list[tuple[Kind, Combination]] = []

    def price(kind: Kind, combination: Combination) -> float:
        asked.append((kind, combination))
        return 1.0

    twice = replace(network, nodes=(*network.nodes, replace(network.nodes[-1], name="again", outputs=("z",))))
    twice = replace(twice, tensors={**network.tensors, "z": replace(network.tensors[network.outputs[0]], name="z")})
    tables = CostTables(twice, {**layouts, "z": layouts[network.outputs[0]]}, CPU)
    chosen = list(tables.chosen(agree(tables.costs(price))))
    operators = [at for at in asked if at[0] in tables.grids]
    assert len(operators) == len(set(operators)) and set(chosen[:5]) <= set(operators)
    assert len(tables.grids) == 4 and chosen[3] == chosen[4]
    assert [combination for _, combination in tables.chosen(tables.as_given)] == [
        tuple(Layout.plain(layout.logical_shape) for layout in combination) for _, combination in chosen[:5]
    ]


def test_a_residual_lies_as_the_result_does(network: Network, layouts: Alternatives) -> None:
    """Operands that are added where the result is written are copied rather than read across."""
    costs = CostTables(network, layouts, CPU).costs(lambda kind, combination: 1.0)
    second = costs.operators[1]
    shared, result = second.reads[0], second.writes[0]
    for place in np.ndindex(second.table.shape):
        a, b = layouts[shared][place[0]], layouts[result][place[-1]]
        assert np.isfinite(second.table[place]) == (a.dims == b.dims)


def test_copies_convert_between_layouts() -> None:
    """Order, blocks and halo change; the halo holds what the reader needs."""
    shape = (1, 5, 4, 4)
    blocked = Layout.ordered(shape, block=(1, 4), before=(0, 0, 1, 1), after=(0, 0, 1, 1), pad_value=0.0)
    last = Layout.ordered(shape, order=(0, 2, 3, 1))
    network = Maker()
    network.input(*shape)
    func = copy_kind(network.tensors["t0"]).program((last, blocked))
    source, target = arguments_of(func)
    x = np.arange(80, dtype="float32").reshape(shape)
    y = np.full(target.physical_shape, np.nan, "float32")
    ss.interpret(func, pack(source, x), y)
    np.testing.assert_array_equal(y, pack(target, x))


def test_a_program_is_predicted_to_cost_something() -> None:
    """More work is predicted to take longer, and what the space knows nothing of is priced by its bytes."""
    small, large = (ss.workload("matmul", m=m, n=32, k=32).func for m in (32, 256))
    interface = (("a", "fixed"), ("b", "constant"), ("c", "fixed"))
    assert 0 < predicted_us(small, interface, CPU) < predicted_us(large, interface, CPU)
