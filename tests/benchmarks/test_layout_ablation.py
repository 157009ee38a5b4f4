"""The rules that a network is tuned under: each can be kept to, and keeps to what it says."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from layout_ablation import RULES, case_of
from network_maker import Maker, computed, drawn

from stridesmith import configs
from stridesmith.errors import UsageError
from stridesmith.models.chosen import Chosen, in_layouts
from stridesmith.models.layout_search import LayoutSearch
from stridesmith.models.network import Network

CPU = configs.target("cpu-avx2")
DOTTED = replace(CPU, features="+avx512bf16,+avx512vl")


@pytest.fixture(scope="module")
def network() -> Network:
    """Three convolutions, two of them with borders, and the sum of two as the result."""
    make = Maker()
    first = make.input(1, 3, 6, 6)
    for ci in (3, 16):
        first = make.work("conv2d", first, make.constant(16, ci, 3, 3), ci=ci, co=16, h=6, w=6, k=3, pad=1)
    last = make.work("conv2d", first, make.constant(16, 16, 1, 1), ci=16, co=16, h=6, w=6, k=1, pad=0)
    return make.network(make.map("{0} + {1}", last, first))


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_has_a_whole_to_start_with(rule: str, network: Network) -> None:
    """What it starts with keeps to the rule, and is a network, with copies where the rule cannot be kept to."""
    case = case_of(rule, network, CPU)
    assert len(case.network.nodes) == (4 if rule == "apart" else 3)
    start = LayoutSearch(case.network, case.layouts, CPU, case.prefers).start
    chosen = Chosen.of(case.layouts, start)
    wanted = {"nhwc": "0231", "block8": "block1x8", "block16": "block1x16"}.get(rule)
    between = [name for name, some in case.layouts.items() if len(some) > 1 and name in network.producer]
    if wanted:
        assert between and all(chosen.written[name].label.startswith(wanted) for name in between)
    elif rule in ("alone", "apart", "nchw"):
        assert all(layout.dims == case.layouts[name][0].dims for name, layout in chosen.written.items())
    else:  # whichever rule for all tensors the estimate likes
        assert len({layout.dims for layout in chosen.written.values()}) <= 1
    if rule in ("again", "branched", "alone", "apart"):
        assert not any(layout.has_halo for some in case.layouts.values() for layout in some)
    assert len(in_layouts(case.network, chosen).nodes) == len(case.network.nodes) + len(start.copies)


def test_a_network_that_converts_at_each_operator_keeps_float32_between_them(network: Network) -> None:
    """`converted` multiplies bfloat16 and hands on float32, the others hand on bfloat16; `no_dot` has no dots."""
    cases = {rule: case_of(rule, network, DOTTED, "bfloat16") for rule in ("agreed", "converted", "no_dot")}
    kinds = {
        rule: {case.network.tensors[name].dtype for name in case.network.producer if name not in network.outputs}
        for rule, case in cases.items()
    }  # fmt: skip
    assert kinds == {"agreed": {"bfloat16"}, "converted": {"float32"}, "no_dot": {"bfloat16"}}
    for case in cases.values():
        weights = [case.network.constants[name].dtype for name in case.network.constants]
        assert weights.count(np.dtype(np.uint16)) == 3
    assert cases["agreed"].target.dot_signs and not cases["no_dot"].target.dot_signs
    with pytest.raises(UsageError, match=re.escape("the rule `apart` is one of float32, but got the precision 'bfl")):
        case_of("apart", network, DOTTED, "bfloat16")


def test_readers_that_test_their_border_compute_the_same(network: Network) -> None:
    """The network of the rule `branched` is another one, with the same results."""
    case = case_of("branched", network, CPU)
    assert case.network != case_of("agreed", network, CPU).network
    for name, array in computed(network, drawn(network)).items():
        np.testing.assert_allclose(computed(case.network, drawn(network))[name], array, rtol=1e-5, atol=1e-5)
