"""Slots: parts of a concatenation with channels last are computed where the whole has them, and nothing is moved."""

from __future__ import annotations

import pytest
from network_maker import Maker, computed, drawn

from stridesmith import configs
from stridesmith.backends.devices import discover
from stridesmith.ir.layout.layout import Layout
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc
from stridesmith.models import layout_search, tuning
from stridesmith.models.alternatives import alternatives, wanted_by, whole_rows
from stridesmith.models.chosen import Chosen, in_layouts
from stridesmith.models.costs import Alternatives, CostTables
from stridesmith.models.fusion import fused
from stridesmith.models.layout_search import LayoutSearch, standing_for
from stridesmith.models.network import Network, Operator
from stridesmith.models.run.kernels import Kernel
from stridesmith.models.run.model import Model
from stridesmith.models.tasks import tasks_of
from stridesmith.models.views import sharing_of
from stridesmith.search.tuning.clock import Clock
from stridesmith.search.workers.protocol import Build, Built
from stridesmith.search.workers.spread import build_here
from stridesmith.space.tree import leaf_blocks

CPU = discover("cpu", 2)
LAST = Layout.ordered((1, 2, 2, 2), (0, 2, 3, 1)).dims


@pytest.fixture(scope="module")
def network() -> Network:
    """Two convolutions of one image side by side, as in SqueezeNet, and one of both."""
    make = Maker()
    x = make.map("T.max({0}, T.float32(0))", _conv(make, make.input(1, 3, 6, 6), 16))
    parts = [make.map("T.max({0}, T.float32(0))", _conv(make, x, co, k)) for co, k in ((16, 1), (32, 3))]
    return make.network(_conv(make, make.concat(1, *parts), 4))


def _conv(make: Maker, x: str, co: int, k: int = 1) -> str:
    _, ci, h, w = make.shape(x)
    return make.work("conv2d", x, make.constant(co, ci, k, k), ci=ci, co=co, h=h, w=w, k=k, pad=k // 2)


def last_of(network: Network, layouts: Alternatives) -> Chosen:
    """Channels last, in slots where there are such."""
    written = {}
    for name, some in layouts.items():
        found = [layout for layout in some if layout.dims == LAST]
        if found and name in network.producer:
            written[name] = found[-1]
    return Chosen(written)


def test_parts_are_computed_where_the_whole_has_them(network: Network) -> None:
    """Rows of the parts lie side by side; the concatenation has nothing to do, and no part writes into another."""
    layouts = {name: whole_rows(some) for name, some in alternatives(network, CPU).items()}
    concat = next(node for node in network.nodes if isinstance(node, Operator) and node.func.name == "concat")
    assert [[layout.label for layout in layouts[name]] for name in concat.inputs] == [
        ["0123", "0231", "0231+halo1"]
    ] * 2
    assert [layouts[name][-1].room for name in concat.inputs] == [(1, 48, 6, 6)] * 2
    model = _right_in(network, layouts)
    assert concat.name in sharing_of(model.network, CPU).idle
    assert [model.plan.places[name].offset for name in (*concat.inputs, *concat.outputs)] == [0, 64, 0]


def test_parts_of_parts_are_computed_where_the_last_whole_has_them() -> None:
    """As in DenseNet: each concatenation is a part of the next one, and all are where the last one is.

    Equal parts at different distances from the beginning of the whole have one kernel.
    """
    make = Maker()
    last = first = make.map("T.max({0}, T.float32(0))", _conv(make, make.input(1, 3, 6, 6), 16))
    parts, wholes = [first], []
    for _ in range(3):
        squeezed = make.map("T.max({0}, T.float32(0))", _conv(make, last, 8))
        parts.append(make.map("T.max({0}, T.float32(0))", _conv(make, squeezed, 16, 3)))
        last = make.concat(1, last, parts[-1])
        wholes.append(last)
    network = make.network(_conv(make, last, 4))
    layouts = {name: whole_rows(some) for name, some in alternatives(network, CPU).items()}
    assert {layouts[name][-1].room for name in (*parts, *wholes[:-1])} == {(1, 64, 6, 6)}
    model = _right_in(network, layouts)
    assert len(sharing_of(model.network, CPU).idle) == len(wholes)
    assert [model.plan.places[name].offset for name in parts] == [0, 64, 128, 192]
    assert len({model.kernels[model.network.producer[name].name].task.key for name in parts[1:]}) == 1


def _right_in(network: Network, layouts: Alternatives) -> Model:
    """The model in channels last and slots, which computes what the network does."""
    chosen = last_of(network, layouts)
    assert Chosen.from_json(chosen.to_json()) == chosen
    made = in_layouts(network, chosen)
    kernels: dict[str, Kernel] = {}
    for item in tasks_of(made, CPU):
        (built,) = build_here([Build(script=item.task.script, target=CPU)])
        assert isinstance(built, Built)
        kernels.update((node.name, Kernel(item.task, built.kernel, "untuned")) for node in item.operators)
    model = Model(made, kernels, CPU)
    for seed in range(2):
        given = drawn(network, seed)
        assert {k: v.tolist() for k, v in model(given).items()} == {
            k: v.tolist() for k, v in computed(network, given).items()
        }
    return model


def test_only_what_the_network_places_has_slots() -> None:
    """Not the parts of a result, nor what a second concatenation has, too, nor what is added up instead."""
    make = Maker()
    x = make.map("{0} + {0}", make.input(1, 8, 3, 3))
    y = _conv(make, x, 8)
    both, again = make.concat(1, x, y), make.concat(1, y, x)
    network = make.network(_conv(make, both, 4), _conv(make, again, 4), make.concat(1, x, _conv(make, y, 8)))
    found = alternatives(network, CPU)
    slots = {name: [k for k in some if k.has_halo and k.pad_value is None] for name, some in found.items()}
    assert {name: [k.room for k in some] for name, some in slots.items() if some} == {
        x: [(1, 16, 3, 3)],
        y: [(1, 16, 3, 3)],
    }


def test_a_short_run_keeps_to_the_rule_that_the_estimate_likes(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there are not two seconds for each operator: channels last, though no other layout was measured."""

    def liked(func: object, *_: object) -> float:
        return 1.0 if "d2, d3, d1" in str(getattr(func, "layouts", "")) else 2.0

    monkeypatch.setattr(layout_search, "predicted_us", liked)
    for seconds, is_short in ((4.0, True), (400.0, False)):
        guide = tuning._guide(network, CPU, None, None, None, Clock(None, seconds))
        chosen = Chosen.of(guide.alternatives, guide.whole())
        assert {layout.dims for layout in chosen.written.values()} == {LAST}
        assert (guide.prefers is not None) is is_short
        assert any(layout.blocks for some in guide.alternatives.values() for layout in some) is not is_short
        if is_short:
            assert list(tuning._wholes(guide, None)) == ["agreed"]
    monkeypatch.setattr(layout_search, "predicted_us", lambda *_: 1.0)
    plain = tuning._guide(network, CPU, None, None, None, Clock(None, 4.0))
    assert isinstance(plain, LayoutSearch) and not any(plain.start.written.values()), "no copies for nothing"


def test_few_kinds_stand_for_all_work() -> None:
    """Those of one family share its work; one that is asked for twice is asked at two places of its extents."""
    make = Maker()
    x = make.input(1, 8, 6, 6)
    ones = [_conv(make, x, co) for co in (8, 16, 32, 64)]
    network = make.network(*ones, _conv(make, x, 4, 3))
    tables = CostTables(network, alternatives(network, CPU), CPU)
    work = {kind: float(kind.func.buffers[-1].shape[1]) for kind in tables.grids}
    asked = [[(kind.func.buffers[-1].shape[1], times) for kind, times in standing_for(work, n)] for n in (1, 2, 3, 9)]
    assert asked[0] == [(64, 120 / 64)]
    assert asked[1] == [(64, 60 / 64), (32, 60 / 32)]
    assert asked[2] == [(64, 80 / 64), (16, 40 / 16)]
    assert asked[3] == [(64, 1.0), (32, 1.0), (16, 1.0), (8, 1.0), (4, 1.0)]


def test_a_rule_that_reaches_a_part_of_the_tensors_costs_what_it_moves() -> None:
    """Channels in groups have no order with channels last: operators between the two orders would turn all around."""
    make = Maker()
    x = make.map("{0} + {0}", make.input(1, 8, 6, 6))
    groups = make.map("a[0, v1 * 2 + v2, v3, v4]", _conv(make, x, 8), shape=(1, 4, 2, 6, 6))
    mixed = make.map("a[0, v1 % 4, v1 // 4, v2, v3]", groups, shape=(1, 8, 6, 6))
    network = make.network(_conv(make, mixed, 4))
    layouts = {name: whole_rows(some) for name, some in alternatives(network, CPU).items()}
    guide = LayoutSearch(network, layouts, CPU)
    rules = [prefers for form, prefers in guide._rules() if form == LAST]
    assert guide._moved_us(guide.tables.as_given) == 0
    assert guide._moved_us(guide.tables.under_rule(rules[0])) > 0


def test_what_a_stage_reads_may_lie_as_the_stage_would_like() -> None:
    """A product of values that a convolution makes of each element first: the image has the orders of any other."""
    make = Maker()
    x = make.input(1, 16, 6, 6)
    network = fused(make.network(_conv(make, make.map("T.exp({0} * T.float32(0.5))", x), 24)), CPU)
    (node,) = network.nodes
    assert isinstance(node, Operator) and "exp" in str(leaf_blocks(node.func.body)[0].body)
    assert [k.label for k in alternatives(network, CPU)[x][:2]] == ["0123", "0231"]


def test_a_result_with_a_dimension_more_leaves_its_order_open() -> None:
    """Rows by weights, stored as rows of one point each: what the sum would like says nothing of three dimensions."""
    func = parse("""
@T.prim_func
def f(a: T.Buffer((8, 64), "float32"), b: T.Buffer((64, 96), "float32"), y: T.Buffer((8, 1, 96), "float32")):
    c = T.alloc_buffer((8, 96), "float32")
    for i, j, k in T.grid(8, 96, 64):
        with T.block("sum"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                c[vi, vj] = T.float32(0)
            c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]
    for i, j in T.grid(8, 96):
        with T.block("finish"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, 0, vj] = T.max(c[vi, vj], T.float32(0))
""")
    assert isinstance(func, PrimFunc)
    wanted = wanted_by(func, configs.target("cpu-avx512"))
    assert wanted["b"].weight > 0 and not wanted["y"].layouts
