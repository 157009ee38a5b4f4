"""Random networks of free sizes give at every size what ONNX Runtime does; `benchmarks/free_graphs.py` draws more."""

from __future__ import annotations

import pytest

from stridesmith.errors import ModelProblem
from stridesmith.models.ranges.api import FreeSizes, network_of
from stridesmith.search.tasks.device import Device

pytest.importorskip("onnxruntime")

from free_models import Expected, computed
from free_operators import drawn_graph


@pytest.mark.parametrize("number", range(12))
def test_programs_of_all_sizes_are_the_model(number: int) -> None:
    """At both ends of the ranges and between; what is no network of all sizes is refused as one."""
    graph = drawn_graph(7, number)
    try:
        network = network_of(graph.model(), Device.here("cpu", 1), FreeSizes(graph.ranges, graph.inputs))
    except ModelProblem:
        return
    for seed, point in enumerate([*graph.ends, graph.point()]):
        expected = Expected.of(graph, point, seed)
        assert expected.differences(computed(network, point, expected.arrays)) == []
