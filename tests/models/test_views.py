"""Tensors inside of others: parts are computed and read where they lie, only where that is proven, and results stay."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from network_maker import Maker, computed, drawn
from opencl_programs import device

from stridesmith.backends.devices import discover
from stridesmith.ir.layout.layout import Layout
from stridesmith.ir.script.parser import parse
from stridesmith.ir.target import Target
from stridesmith.models.laid_out import laid_out
from stridesmith.models.network import Foreign, Network, Node, Operator
from stridesmith.models.run import in_place
from stridesmith.models.run.kernels import Kernel
from stridesmith.models.run.model import Model
from stridesmith.models.run.report import only_moves
from stridesmith.models.tasks import tasks_of
from stridesmith.models.views import Move, moves, sharing_of
from stridesmith.search.workers.protocol import Build, Built
from stridesmith.search.workers.spread import build_here

CPU = discover("cpu", 2)


@pytest.fixture(autouse=True)
def _small_tensors_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_place, "LEAST_BYTES", 1)


def untuned(network: Network, target: Target = CPU) -> Model:
    """The network with its programs as they are written."""
    kernels = {}  # type: ignore[var-annotated]
    for item in tasks_of(network, target):
        (built,) = build_here([Build(script=item.task.script, target=target)])
        assert isinstance(built, Built)
        kernels.update((node.name, Kernel(item.task, built.kernel, "untuned")) for node in item.operators)
    return Model(network, kernels, target)


def agrees(model: Model, seeds: int = 2) -> None:
    """Outputs are what the interpreter computes, also in a second run with other data."""
    for seed in range(seeds):
        given = drawn(model.network, seed)
        wanted, got = computed(model.network, given), model(given)
        for name, array in wanted.items():
            np.testing.assert_array_equal(got[name], array, err_msg=name)


def idle(network: Network, target: Target = CPU) -> int:
    return len(sharing_of(network, target).idle)


def test_parts_are_computed_in_their_whole() -> None:
    """Concatenations of concatenations, as in densenet: one buffer, no call that moves, and what is read stays."""
    make = Maker()
    x = make.input(1, 3, 4, 4)
    first = make.map("{0} + {0}", x)
    second = make.map("{0} - T.float32(1)", first)
    inner = make.concat(1, first, second)
    third = make.map("a[v0, v1, v2, v3] * a[v0, v1 + 3, v2, v3]", inner, shape=(1, 3, 4, 4))
    outer = make.concat(1, inner, third)
    network = make.network(make.map("{0} + T.float32(1)", outer))
    model = untuned(network)
    places = model.plan.places
    assert [places[t].offset - places[outer].offset for t in (inner, first, second, third)] == [0, 0, 192, 384]
    assert list(model.plan.calls) == [n.name for n in network.nodes if n.func.name == "map"]  # type: ignore[union-attr]
    assert model.plan.blocks[0] == 3 * 192
    agrees(model)
    rows = model.report(runs=1)
    assert [(row.operator, row.latency_us) for row in rows if row.origin == "view"] == [
        (n.name, 0.0)
        for n in network.nodes
        if n.func.name == "concat"  # type: ignore[union-attr]
    ]


def test_slices_are_read_where_they_lie() -> None:
    """Parts of an input, in the caller's memory, and of an intermediate tensor, which nothing writes over."""
    make = Maker()
    x = make.input(6, 4)
    half = make.map("a[v0 + 3, v1]", x, shape=(3, 4))
    flat = make.map("a[v0 // 4, v0 % 4]", half, shape=(12,))
    y = make.map("{0} * T.float32(3)", x)
    row = make.map("a[v0 + 5, v1]", y, shape=(1, 4))
    over = make.map("{0} + T.float32(1)", y)
    network = make.network(make.map("{0} + a[0]", flat), make.map("{0} + b[v0 + 2, v1]", row, over))
    model = untuned(network)
    assert model.plan.places[flat] == model.plan.places[x]._replace(offset=48)
    assert sharing_of(network, CPU).inside == {half: (x, 48), flat: (half, 0), row: (y, 80)}
    assert model.plan.places[over] != model.plan.places[y]
    agrees(model)


def test_outputs_take_their_parts() -> None:
    """A concatenation that leaves the network is computed in the caller's array."""
    make = Maker()
    x = make.input(2, 4)
    network = make.network(make.concat(0, make.map("{0} + {0}", x), make.map("{0} * {0}", x)))
    model = untuned(network)
    assert not model.plan.places[network.outputs[0]].offset and len(model.plan.calls) == 2
    agrees(model)


def parted(case: str) -> Network:
    """A concatenation of two tensors of which one cannot be a part."""
    make = Maker()
    x = make.input(1, 2, 3)
    a, b = make.map("{0} + {0}", x), make.map("{0} * {0}", x)
    found = {"twice": (a, a), "input": (a, x), "constant": (a, make.constant(1, 2, 3))}.get(case, (a, b))
    if case == "piece":
        found = make.map("a[v0, v1 + 1, v2]", a, shape=(1, 1, 3)), b
    y = make.map("{0} + T.float32(1)", make.concat(2 if case == "axis" else 1, *found))
    more = [b] if case == "output" else []
    if case == "both":
        more.append(make.map("{0} + T.float32(2)", make.concat(1, b, a)))
    return make.network(y, *more)


@pytest.mark.parametrize("case", ["twice", "input", "constant", "output", "axis", "both", "piece"])
def test_what_cannot_be_a_part_is_copied(case: str) -> None:
    """What the caller or another concatenation has, what comes twice, and what would be rows apart."""
    network = parted(case)
    assert idle(network) == (case in ("both", "piece"))  # of two that share their parts the first; the slice
    agrees(untuned(network))


def test_a_slice_that_is_an_output_is_copied() -> None:
    """The caller gets an array of its own, also where the rest of the tensor is an output."""
    make = Maker()
    x = make.input(4, 4)
    y = make.map("{0} + {0}", x)
    network = make.network(make.map("a[v0 + 1, v1]", y, shape=(2, 4)), y)
    assert idle(network) == 0
    agrees(untuned(network))


def test_parts_may_lie_rows_apart() -> None:
    """Along an inner axis, where producers write with the pitch of the whole and touch nothing between."""
    make = Maker()
    x = make.input(3, 4)
    a, b = make.map("{0} + {0}", x), make.map("{0} * {0}", x)
    network = make.network(make.map("{0} + T.float32(1)", make.concat(1, a, b)))
    assert idle(network) == 0
    left = Layout.ordered((3, 4), after=(0, 4))
    right = Layout.ordered((3, 4), before=(0, 4))
    funcs = [laid_out(node.func, {"y": layout}) for node, layout in zip(network.nodes, (left, right), strict=False)]  # type: ignore[union-attr]
    funcs.append(laid_out(network.nodes[2].func, {"x0": left, "x1": right}))  # type: ignore[union-attr]
    nodes = tuple(replace(node, func=func) for node, func in zip(network.nodes, funcs, strict=False))
    inner = network.with_nodes((*nodes, network.nodes[3]))
    model = untuned(inner)
    assert model.plan.sharing.idle == {inner.nodes[2].name} and len(model.plan.calls) == 3
    given = drawn(network)
    np.testing.assert_array_equal(model(given)[network.outputs[0]], computed(network, given)[network.outputs[0]])


def test_what_pads_its_part_is_no_part() -> None:
    """A producer that may write anything between its rows would write over its neighbour."""
    make = Maker()
    x = make.input(3, 4)
    a, b = make.map("{0} + {0}", x), make.map("{0} * {0}", x)
    network = make.network(make.map("{0} + T.float32(1)", make.concat(1, a, b)))
    left = Layout.ordered((3, 4), after=(0, 4), pad_value="undef")
    right = Layout.ordered((3, 4), before=(0, 4), pad_value="undef")
    first, second, third, last = (node for node in network.nodes if isinstance(node, Operator))
    one, other = laid_out(first.func, {"y": left}), laid_out(second.func, {"y": right})
    both = laid_out(third.func, {"x0": left, "x1": right})
    nodes = (replace(first, func=one), replace(second, func=other), replace(third, func=both), last)
    network = network.with_nodes(nodes)
    assert idle(network) == 0


def test_a_result_that_is_read_again_is_copied() -> None:
    """A program may move what it has just written: its result lies nowhere else."""
    make = Maker()
    twice = """@T.prim_func
def twice(x: T.Buffer((2, 3), "float32"), y: T.Buffer((4, 3), "float32")):
    for i, j in T.grid(2, 3):
        with T.block("top"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = x[vi, vj]
    for i, j in T.grid(2, 3):
        with T.block("bottom"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi + 2, vj] = y[vi, vj]
"""
    network = make.network(make.operator(parse(twice), make.map("{0} + {0}", make.input(2, 3))))
    assert len(moves(network.nodes[1].func)) == 2 and idle(network) == 0  # type: ignore[union-attr]
    agrees(untuned(network))


def test_a_distance_is_one_number() -> None:
    """A program that moves is described by its distances; one that turns, doubles or tests has none."""
    make = Maker()
    x = make.input(4, 6)
    programs = {
        "cut": ("a[v0 + 1, v1]", (2, 6)), "flat": ("a[v0 // 6, v0 % 6]", (24,)), "turn": ("a[v1, v0]", (6, 4)),
        "double": ("{0} + {0}", (4, 6)), "gap": ("a[v0, v1 * 2]", (4, 3)),
        "border": ("T.if_then_else(v0 >= 1, a[v0 - 1, v1], T.float32(0))", (5, 6)),
    }  # fmt: skip
    funcs = {}
    for name, (value, shape) in programs.items():
        make.map(value, x, shape=shape)
        funcs[name] = make.nodes[-1].func
    found = {name: moves(func) for name, func in funcs.items() if moves(func)}
    assert found == {"cut": (Move(0, 1, 6, 12),), "flat": (Move(0, 1, 0, 24),)}


def beside_relu(case: str) -> Network:
    """A part of an array of the caller that a rectifier reads or writes."""
    make = Maker()
    x = make.input(4, 3)
    if case == "slice":
        half = make.map("a[v0 + 2, v1]", x, shape=(2, 3))
        return make.network(make.map("T.max({0}, T.float32(0))", half), make.map("{0} + {0}", x))
    rectified, double = make.map("T.max({0}, T.float32(0))", x), make.map("{0} + {0}", x)
    if case == "result":
        return make.network(make.concat(0, rectified, double))
    return make.network(make.concat(0, x, double), rectified)


@pytest.mark.parametrize("case", ["slice", "result", "input"])
def test_foreign_operators_find_parts_of_the_callers_arrays(case: str) -> None:
    """They read and write them in Python, in this call's arrays."""
    helper = pytest.importorskip("onnx").helper
    network = beside_relu(case)
    nodes: list[Node] = []
    for node in network.nodes:
        (read, *_), (written,) = node.inputs, node.outputs
        if not isinstance(node, Operator) or "T.max" not in node.func.script():
            nodes.append(node)
            continue
        ends = [helper.make_tensor_value_info(t, 1, network.tensors[t].shape) for t in (read, written)]
        graph = helper.make_graph([helper.make_node("Relu", [read], [written])], "relu", ends[:1], ends[1:])
        text = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
        nodes.append(Foreign(node.name, "Relu", text, (read,), (written,)))
    mixed = network.with_nodes(tuple(nodes))
    assert len(mixed.foreign) == 1 and idle(mixed) == 1
    model = untuned(mixed)
    for seed in range(2):
        given = drawn(network, seed)
        got = model(given)
        for name, array in computed(network, given).items():
            np.testing.assert_array_equal(got[name], array, err_msg=name)


def random_views(seed: int) -> Network:
    """Maps, concatenations and slices of tensors that there are, several of them outputs."""
    rng, make = random.Random(seed), Maker()
    known = [make.input(1, 4, 3)]
    for _ in range(9):
        x = rng.choice(known)
        kind = rng.choice(["map", "map", "map", "concat", "concat", "cut", "add"])
        size = make.shape(x)[1]
        if kind == "concat" and size < 16:
            made = make.concat(1, *rng.choices(known[-4:], k=2))
        elif kind == "cut" and size > 1:
            start = rng.randrange(size - 1)
            made = make.map(f"a[v0, v1 + {start}, v2]", x, shape=(1, size - start - rng.randrange(size - start), 3))
        else:
            made = make.map("{0} + T.float32(1)", x)
        known.append(made)
    read = {name for node in make.nodes for name in node.inputs}
    last = [name for name in known[1:] if name not in read]
    return make.network(*last, *rng.sample([t for t in known[1:] if t not in last], k=1))


def test_random_networks_compute_the_same() -> None:
    """Whatever is made part of whatever: results are those of the interpreter."""
    found = [random_views(seed) for seed in range(12)]
    assert sum(map(idle, found)) > 12
    for network in found:
        agrees(untuned(network), 1)


def test_parts_on_a_device_begin_where_it_allows() -> None:
    """OpenCL buffers begin at multiples: parts of so many bytes are computed in place, others copied."""
    target = device()
    if target is None:
        pytest.skip("no OpenCL device on this machine")
    for size, expected in ((64, 1), (3, 0)):
        make = Maker()
        x = make.input(2, size)
        a, b = make.map("{0} + {0}", x), make.map("{0} * {0}", x)
        network = make.network(make.map("{0} + T.float32(1)", make.concat(0, a, b)))
        assert idle(network, target) == expected
        agrees(untuned(network, target), 1)


def test_what_only_moves_may_put_numbers_down_between() -> None:
    """A border, and what fills padding; a function of an element, or a conversion, is computed."""
    make = Maker()
    x = make.input(3, 4)
    make.map("T.if_then_else(v1 >= 1, a[v0, v1 - 1], T.float32(0))", x, shape=(3, 5))
    make.concat(0, x, x)
    make.map("T.if_then_else(v1 >= 1, a[v0, v1 - 1] + T.float32(1), T.float32(0))", x, shape=(3, 5))
    make.map("T.max({0}, T.float32(0))", x)
    assert [only_moves(node.func) for node in make.nodes] == [True, True, False, False]
