"""Races of whole networks: what is finished is not done again, and what is told is what was measured."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import network_race as race
import networks
import numpy as np
import onnx
import pytest
import related_models
from onnx.reference import ReferenceEvaluator
from peer_forms import Forms
from peer_models import inputs_of
from peer_process import elements, results_of

CASES: list[tuple[Path, list[str]]] = [(Path("a.onnx"), []), (Path("b.onnx"), [])]
TIMED = {"missing": {"openvino": "not there"}, "busy": 0.0, "errors": {},
         "rounds": {"stridesmith:model": [2.0, 4.0], "onnxruntime:session": [3.0, 6.0], "torch:eager": [8.0, 16.0]},
         "times": {name: [us] * 3 for name, us in
                   (("stridesmith:model", 3.0), ("onnxruntime:session", 4.5), ("torch:eager", 12.0))}}  # fmt: skip
OPERATOR = {"event": "operator", "operator": "c", "program": "conv2d", "latency_us": 2.0, "share": 1.0, "gflops": 7.0,
            "roofline": 0.5, "origin": "tuned", "only_moves": False}  # fmt: skip


def arguments(folder: Path, seconds: float = 20.0, again: bool = False) -> argparse.Namespace:
    return argparse.Namespace(seconds=seconds, threads=2, again=again, out=folder)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The networks that are tuned, where neither tuning nor racing takes time; `b` cannot be tuned."""
    tuned: list[str] = []

    def run(words: list[str]) -> list[dict[str, Any]]:
        if words[0] == "show":
            return [OPERATOR]
        tuned.append(Path(words[1]).stem)
        if tuned[-1] == "b":
            return [{"event": "error", "message": "it is damaged"}]
        turn = {"event": "turn", "seconds": 1.0, "predicted_us": 2.0}
        return [turn, {"event": "model", "fallback": [], "predicted_us": 2.0, "trials": 9, "seconds": 19.0}]

    monkeypatch.setattr(race, "run", run)
    monkeypatch.setattr(race, "network_in", lambda path, shapes, threads, precision: None)
    monkeypatch.setattr(race, "race", lambda path, network, db, arguments: TIMED)
    monkeypatch.setattr(race, "with_shapes", lambda network, operators: operators)
    return tuned


def test_what_is_finished_is_not_done_again(tmp_path: Path, asked: list[str]) -> None:
    """Rows stay; a network that was tuned, but not raced when a run ended, is raced; other seconds tune anew."""
    first = list(race.rows(CASES, arguments(tmp_path), {}))
    assert asked == ["a", "b"] and first[0]["ratio"] == 1.5 and first[1]["problem"] == "it is damaged"
    assert first[0]["best_peer"] == "onnxruntime:session"
    newest = {row["model"]: row for row in first}
    assert [row["model"] for row in race.rows(CASES, arguments(tmp_path), newest)] == ["b"]
    asked.clear()
    assert next(race.rows(CASES, arguments(tmp_path), {}))["ratio"] == 1.5 and not asked
    assert [row["model"] for row in race.rows(CASES, arguments(tmp_path, again=True), newest)] == ["a"] and not asked
    next(race.rows(CASES, arguments(tmp_path, seconds=40), newest))
    assert asked == ["a"]


def test_the_table_has_every_form_and_names_what_is_missing(tmp_path: Path, asked: list[str]) -> None:
    """Times of all, the ratio to the best, what takes the time, and why a network has no row."""
    text = race.told(json.loads(json.dumps(list(race.rows(CASES, arguments(tmp_path), {})))))
    assert "| a | 0.00 | 0.00 | 0.01 | onnxruntime:session | 1.50 | 0.67 | 0.0% | - | 20 |" in text
    assert "it is damaged" in text and "openvino: not there" in text
    assert "Geometric mean against the best peer 1.50 of 1 of 2 networks, least 1.50." in text
    assert "| conv2d |  | 1 | 2 | 100.0% | 7.0 | 0.0 | 50% | tuned |" in text


def test_a_network_of_ours_that_does_not_race_is_told_with_its_reason() -> None:
    """One whose error is too large has times of its peers alone: the table is told, with what is said of ours."""
    times = {"openvino:request": [2000.0] * 3}
    row = {"model": "a", "problem": "", "ratio": float("nan"), "times": times, "best_peer": "",
           "missing": {"stridesmith:model": "its error is 0.02, the least 0.003"}}  # fmt: skip
    assert race.table([row]).splitlines()[-1] == "| a | | | - | | | its error is 0.02, the least 0.003 | |"


def test_a_network_is_near_its_last_speed_at_nine_tenths_of_it() -> None:
    """The first time from which the latency is at most a ninth above the last."""

    def events(*points: tuple[float, float], known: list[float | None]) -> list[dict[str, Any]]:
        tasks = {"event": "tasks", "tasks": [{"best_us": us} for us in known], "predicted_us": None}
        return [tasks, *({"event": "turn", "seconds": s, "predicted_us": us} for s, us in points)]

    alone = events((10, 300.0), (20, 112.0), (30, 111.0), (40, 100.0), known=[None, None])
    after = events((2, 112.0), (4, 104.0), (40, 99.0), known=[5.0, None])
    found = related_models.compared(alone, after)
    assert found["seconds_to_near"] == {"alone": 30, "after": 4}
    assert found["seconds_to_near_of_alone"] == 4 and (found["known"], found["tasks"]) == (1, 2)
    assert "a share of 0.13" in related_models.told(found | {"first": "one", "second": "two"})


def test_networks_in_the_operators_of_pytorch_compute_the_same() -> None:
    """MobileNetV2 and BERT, made small."""
    torch = pytest.importorskip("torch")
    from peer_torch_models import Straight

    for made, shape in ((networks.mobilenet_v2(32, 3, 10), (1, 3, 32, 32)), (networks.bert(1, 5, 24, 3), (1, 5, 24))):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        with torch.inference_mode():
            given = torch.from_numpy(x)
            found = Straight(made, {"x": given})(given).numpy()
        (wanted,) = ReferenceEvaluator(made).run(None, {"x": x})
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)


def test_random_weights_leave_a_result_that_says_something() -> None:
    """Neither is one class certain, nor are all alike; and a page of writing is light with dark strokes."""
    made = networks.light("shufflenet")
    softmax = next(node for node in made.graph.node if node.op_type == "Softmax")
    gemm = next(node for node in made.graph.node if softmax.input[0] in node.output)
    weights = next(t for t in made.graph.initializer if t.name == gemm.input[1])
    assert 0 < float(np.abs(onnx.numpy_helper.to_array(weights)).max()) < 0.05
    page = networks.writing(np.random.default_rng(0), 48, 192)
    assert page.shape == (48, 192) and page.min() < -0.6 and np.median(page) > 0.6


def test_the_error_of_few_bits_is_told_over_several_draws() -> None:
    """Other numbers are put where the calls of a library read them, each draw the same for all libraries."""
    job = {"inputs": {"x": ([3, 5], "float32")}, "draws": 3}
    given = inputs_of(job)
    forms = Forms({"twice": lambda: given["x"] * 2}, given=given)
    found = results_of(forms, job)["twice"]
    each = [elements(inputs_of(job, draw)["x"] * 2) for draw in range(3)]
    assert found == [*each[0], *each[1], *each[2]] and each[0] != each[1] != each[2]
    assert results_of(Forms({"x": lambda: inputs_of(job)["x"]}), {**job, "draws": 1})["x"] == elements(
        inputs_of(job)["x"]
    )
