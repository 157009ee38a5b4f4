"""Races of networks of free sizes: what is drawn is in the ranges, and a row says what was measured."""

from __future__ import annotations

import argparse
from pathlib import Path

import free_networks as free
import numpy as np
import pytest
from networks import mobilenet_v2

SMALL = free.FreeNet(lambda _: mobilenet_v2(32, 1, 10, batch="n"), ("n", 3, 32, 32), {"n": (2, 8, 2)})


def test_sizes_are_drawn_once_each() -> None:
    """A short range has fewer than are asked for; the same seed gives the same ones."""
    assert sorted(point["n"] for point in SMALL.drawn(20, 0)) == [2, 4, 6, 8]
    det = free.FREE["ppocr_det"]
    points = det.drawn(20, 1)
    assert points == det.drawn(20, 1) != det.drawn(20, 2) and len(points) == 20
    assert all(320 <= v <= 960 and v % 32 == 0 for point in points for v in point.values())
    assert det.input("x", {"h": 320, "w": 352})["x"].shape == (1, 3, 320, 352)


def test_ratios_are_those_of_the_better_peer_at_each_size() -> None:
    """The mean of a peer, the least, and the better one wherever it is another."""
    sizes = [{"us": {"stridesmith": 1.0, "a": 2.0, "b": 4.0}}, {"us": {"stridesmith": 1.0, "a": 8.0, "b": 1.0}}]
    assert free.summary(sizes) == {"a": {"mean": 4.0, "least": 2.0}, "b": {"mean": 2.0, "least": 1.0},
                                   "best": {"mean": 1.414, "least": 1.0}}  # fmt: skip


def test_results_of_another_shape_are_no_results() -> None:
    """They are neither right nor nearly so."""
    ones = np.ones((2, 3), np.float32)
    assert free.errors({"y": ones}, [ones * 2]) == 0.5
    assert np.isnan(free.errors({"y": ones}, [ones[:1]]))


def test_a_small_network_is_raced(tmp_path: Path) -> None:
    """Without tuning: right at its sizes, with a time of each peer that is there, and no more memory than it needs."""
    pytest.importorskip("onnxruntime")
    asked = argparse.Namespace(seconds=0, sizes=2, seed=0, threads=1, rounds=1, turn=0.0, memory=True, out=tmp_path)
    row = free.row_of("small", SMALL, asked)
    assert row["error"] < 1e-4 and len(row["sizes"]) == 2 and row["ranges"] == {"n": "2..8:2"}
    assert set(row["sizes"][0]["us"]) | set(row["missing"]) == {"stridesmith", "onnxruntime", "openvino"}
    assert 0.2 < row["of_largest"] < 2
    assert "small: onnxruntime" in free.told(row) and "memory" in free.told(row)
