"""The league draws what it says, its programs compute what their operators are, and its sums hide no failure."""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import league
import league_draw
import numpy as np
import pytest
import racing
from league_draw import CARDS, DECK, Operator, draw
from league_programs import PROGRAMS

import stridesmith as ss
from stridesmith.search.tasks.task import check

FAMILIES = {
    "1-d convolution", "3-d convolution", "attention row", "batch matmul", "convolution 1x1", "convolution 1x7, 7x1",
    "convolution 3x3", "convolution 5x5, 7x7", "convolution, dilated", "convolution, strided", "cumulative sum",
    "depthwise", "depthwise with multiplier", "element-wise", "global pooling", "grouped convolution", "interpolation",
    "layernorm", "matmul", "pixel shuffle", "pooling", "reduction", "softmax", "transposed convolution",
}  # fmt: skip


# ------------------------------------------------------------------- drawing


def test_a_number_is_drawn_alone() -> None:
    """An operator depends on its seed and number, not on what was drawn before; another seed draws others."""
    backwards = [draw(5, number) for number in reversed(range(12))]
    assert [draw(5, number) for number in range(12)] == backwards[::-1]
    assert [draw(6, number) for number in range(12)] != backwards[::-1]
    assert draw(1, 0).label == "matmul(m=128,n=91,k=256,transpose_a=1,transpose_b=1)"


def test_every_deck_has_every_family() -> None:
    """Each run of a deck's length from its beginning has all families, whatever the seed."""
    for seed, deck in ((3, 0), (4, 2)):
        numbers = range(deck * len(DECK), (deck + 1) * len(DECK))
        assert {draw(seed, number).family for number in numbers} == FAMILIES


def test_what_is_drawn_can_be_measured() -> None:
    """Every operator of a deck is well-formed and in bounds, not too large, and names inputs as constants."""
    for number in range(len(DECK)):
        operator = draw(8, number)
        check(operator.work.func)
        assert league_draw.fits(operator) and operator.work.flops <= league_draw.MOST_FLOPS
        assert set(operator.constants) <= set(operator.work.inputs), operator.label


def test_the_grouped_and_transposed_are_of_all_kinds() -> None:
    """Both layouts and both forms of grouped convolutions with 2 to 32 groups, and strides 1, 2 and 4."""
    grouped = [league_draw.conv_grouped(league_draw.Random(n)) for n in range(200)]
    assert {o.params["layout"] for o in grouped} == {"nchw", "nhwc"}
    assert {o.kind for o in grouped} == {"conv2d", "grouped_conv2d"}
    assert {2, 32} <= {o.params["groups"] for o in grouped} <= set(range(2, 33))
    transposed = [league_draw.conv_transposed(league_draw.Random(n)) for n in range(200)]
    assert {o.params["stride"] for o in transposed} == {1, 2, 4}
    products = [league_draw.batch_matmul(league_draw.Random(n)) for n in range(200)]
    products += [league_draw.matmul(league_draw.Random(n)) for n in range(200)]
    pairs = {(o.kind.startswith("batch"), o.params["transpose_a"], o.params["transpose_b"]) for o in products}
    assert len(pairs) == 8


# ------------------------------------------------------------------- programs


def shrunken(operator: Operator) -> Operator:
    """The same operator with few channels and pixels: whatever an interpreter can do in a moment."""
    p = dict(operator.params)
    groups = p["groups"] = min(p.get("groups", 1), 3)
    for name in ("ci", "co"):
        if name in p:
            p[name] = groups * min(p[name], 2)
    p |= {
        name: min(p[name], 6) for name in ("c", "m", "n", "cols", "rows", "heads", "b", "pixels", "each") if name in p
    }
    if operator.kind in ("channel_shuffle",):
        p["c"] = groups * 2
    if "groups" not in operator.params:
        del p["groups"]
    p |= {name: min(p[name], 4) for name in ("multiplier",) if name in p}
    taps = {a: p.get(f"k{a}", p.get("k", 1)) for a in "dhw"}
    for axis in "dhw":
        if axis in p:
            reach = p.get("dilation", 1) * (taps[axis] - 1) + 1
            p[axis] = min(p[axis], max(reach, 4 + "dhw".index(axis)))
    if operator.kind in ("matmul", "batch_matmul", "matmul_bias_act", "batch_matmul_bias_act"):
        p["k"] = min(p["k"], 7)
    if operator.kind == "attention_row":
        p["d"] = 5
    if operator.kind == "interpolation":
        p |= {"oh": p["h"] * 2, "ow": p["w"] * 2 + operator.params["ow"] % 2}
    if operator.kind == "reduction":
        p["shape"] = tuple(min(e, 3 + n) for n, e in enumerate(p["shape"]))
    if operator.kind == "broadcast":
        p["shapes"] = tuple(tuple(min(e, 5) for e in shape) for shape in p["shapes"])
    return replace(operator, params=p)


def reference(operator: Operator, data: dict[str, Any]) -> Any:
    if operator.script:
        return PROGRAMS[operator.kind](**operator.params).reference(data)
    return operator.work.reference(data)[operator.work.outputs[0]]


def test_programs_compute_their_operators() -> None:
    """Every kind of operator that is drawn, interpreted at small sizes, is what NumPy says."""
    operators = [card.make(league_draw.Random(n)) for card in CARDS for n in range(20)]
    seen: dict[str, list[str]] = {}
    for operator in operators:
        if len(seen.setdefault(operator.kind, [])) == 3:
            continue
        small = shrunken(operator)
        seen[operator.kind].append(small.label)
        check(small.work.func)
        rng = np.random.default_rng(0)
        data = {b.name: rng.standard_normal(b.shape).astype("float32") for b in small.work.func.buffers}
        (name,) = small.work.outputs
        expected = reference(small, {n: a.astype("float64") for n, a in data.items() if n != name})
        ss.interpret(small.work.func, *data.values())
        np.testing.assert_allclose(data[name], expected, rtol=2e-4, atol=2e-5, err_msg=small.label)
    assert set(PROGRAMS) <= set(seen), "a program that is never drawn"


# ------------------------------------------------------------------- rows and sums


def row(number: int, ratio: float, family: str = "matmul", ours: float = 10.0) -> dict[str, Any]:
    return league.failed(2, "no valid schedule") | {
        "key": f"seed1/{number:04}/-/2", "seed": 1, "number": number, "family": family, "operator": f"o{number}",
        "isa": "avx2", "asked": {"seconds": 20.0, "peers": ["torch"]}, "ours_us": ours, "ratio": ratio,
        "best_peer": "torch:matmul", "limits": "the space has one candidate",
    }  # fmt: skip


def test_what_failed_counts_as_zero() -> None:
    """A row without a kernel is counted, is the minimum, and pulls the percentile down."""
    results = [row(n, 1.0 + n / 100) for n in range(19)]
    assert "5th percentile 1.01, minimum 1.00, 0 failed, 0 below 0.8" in league.totals(results)
    worse = league.totals([*results, row(19, math.nan, ours=math.nan)])
    assert worse.startswith("20 operators: geometric mean 1.09 of 19") and "minimum 0.00, 1 failed, 1 below" in worse


def test_a_race_beside_other_work_is_told() -> None:
    """Figures that were taken while others used a processor say so."""
    quiet, busy = row(0, 1.0), row(1, 1.0) | {"busy": 0.9}
    assert "beside other work" not in league.totals([quiet])
    assert "; 1 raced beside other work" in league.totals([quiet, busy])


def test_processors_that_are_in_use_are_seen() -> None:
    """A process that computes is counted; it is waited for no longer than patience lasts."""
    spinner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        assert racing.wait_for_quiet(0) > racing.BUSY
    finally:
        spinner.kill()
        spinner.wait()


def test_low_rows_are_told_with_what_limits_them() -> None:
    """The worst first; a row at 0.8 is not low."""
    text = league.low_rows([row(0, 0.8), row(1, 0.5), row(2, math.nan, ours=math.nan)])
    lines = text.splitlines()[2:]
    assert [line.split(" | ")[0] for line in lines] == ["| 2", "| 1"]
    assert "failed: no valid schedule" in lines[0] and "the space has one candidate" in lines[1]


def test_development_seeds_are_told() -> None:
    """Figures of a seed below 100 say that they are not to be reported; those of others do not."""
    assert "not to be reported" in league.told([row(0, 1.0)])
    assert "not to be reported" not in league.told([row(0, 1.0) | {"seed": 100}])
    assert "### seed 1, avx2, threads: 2, 20 s of tuning each" in league.told([row(0, 1.0)])


def arguments(folder: Path, again: bool = False) -> argparse.Namespace:
    return argparse.Namespace(seed=1, threads=2, seconds=20.0, peers=["torch"], again=again, out=folder)


def test_rows_that_are_there_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second run measures what is missing, or was measured otherwise; `--again` races what is there, untuned."""
    tuned: list[str] = []
    found = {"event": "done", "process_seconds": 1.0, "db": "", "record": "r"}
    timed = {"times": {"stridesmith:kernel": [1.0] * 3, "torch:x": [2.0] * 3}, "fastest_us": 1.0, "busy": 0.0,
             "rounds": {"stridesmith:kernel": [1.0], "torch:x": [2.0]}, "missing": {}}  # fmt: skip
    monkeypatch.setattr(league, "tune", lambda case, seconds, folder: tuned.append(case.name) or found)
    monkeypatch.setattr(league, "race", lambda case, found, arguments: timed)
    monkeypatch.setattr(league, "wait_for_quiet", lambda patience: 0.0)
    first = list(league.rows(range(2), arguments(tmp_path), {}, "avx2"))
    assert tuned == ["0000", "0001"] and [r["ratio"] for r in first] == [2.0, 2.0]
    newest = {r["key"]: r for r in first}
    assert [r["number"] for r in league.rows(range(3), arguments(tmp_path), newest, "avx2")] == [2]
    assert len(list(league.rows(range(3), arguments(tmp_path), newest, "avx512"))) == 3
    tuned.clear()
    assert [r["number"] for r in league.rows(range(3), arguments(tmp_path, again=True), newest, "avx2")] == [0, 1]
    assert not tuned
    newest["seed1/0001/-/2"] |= {"ours_us": math.nan, "busy": 0.9}
    assert [r["number"] for r in league.rows(range(2), arguments(tmp_path), newest, "avx2")] == [1]
    assert tuned == ["0001"], "what found nothing beside other work is tuned anew"


def test_an_operator_that_the_language_lacks_is_a_row_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not dropped, and says why."""
    lacking = Operator("sorting", "sort", {"rows": 3})
    monkeypatch.setattr(league, "draw", lambda seed, number: lacking)
    (only,) = league.rows(range(1), arguments(tmp_path), {}, "avx2")
    assert league.has_failed(only) and "there is no workload 'sort'" in only["problem"]
    assert "1 failed" in league.totals([only])


class Silent:
    """A library that is no process."""

    def __init__(self, name: str) -> None:
        self.name = name


def test_ours_is_wrong_where_peers_agree_with_each_other() -> None:
    """One form that differs does something else; two that are alike and differ from ours say that ours is wrong."""
    libraries: Any = [Silent("stridesmith"), Silent("torch"), Silent("numpy")]

    def answers(*results: list[float]) -> list[dict[str, Any]]:
        return [{"forms": {"f": values}, "missing": {}} for values in results]

    runners, missing = racing.runners_of(libraries, answers([1.0, 2.0], [1.0, 2.0], [3.0, 2.0]))
    assert [library.name for library, _ in runners] == ["stridesmith", "torch"] and "numpy:f" in missing
    runners, missing = racing.runners_of(libraries, answers([1.0, 2.0], [3.0, 2.0], [3.0, 2.0]))
    assert not runners and "agree with each other" in missing["stridesmith"]
    runners, _ = racing.runners_of(libraries, answers([1.0, 2.0], [3.0, 2.0], [4.0, 2.0]))
    assert [library.name for library, _ in runners] == ["stridesmith"]


def test_networks_of_few_bits_are_compared_by_their_errors() -> None:
    """Each library rounds elsewhere: who is about as near to the exact result as the nearest races, ours included."""
    libraries: Any = [Silent("stridesmith"), Silent("onnxruntime"), Silent("openvino")]
    exact = [1.0, -2.0, 2.0]
    results = ([1.1, -2.0, 2.0], [1.0, -2.1, 2.0], [1.0, -2.0, 1.7])
    answers: list[dict[str, Any]] = [{"forms": {"f": values}, "missing": {}} for values in results]
    runners, missing = racing.runners_of(libraries, answers, exact)
    assert [library.name for library, _ in runners] == ["stridesmith", "onnxruntime"]
    assert missing == {"openvino:f": "its error is 0.1, the least 0.0333"}
    answers[0]["forms"]["f"] = [0.0, 0.0, 0.0]
    runners, missing = racing.runners_of(libraries, answers, exact)
    assert [library.name for library, _ in runners] == ["onnxruntime"] and "stridesmith:f" in missing


def test_limits_are_read_off_a_diagnosis() -> None:
    """What is remarkable is told, what is not is not."""
    loop = {"fmas": 4, "vector_fmas": 0, "spills": 2, "reloads": 3, "fma_share": 0.25, "bound": "loads"}
    facts = {"schedule": "# the untuned program: no instruction", "overcompute": 16.0, "inner_loop": loop,
             "roofline": {"bound": "compute", "roofline_fraction": 0.01}}  # fmt: skip
    assert list(league.of_diagnosis(facts)) == [
        "the untuned program is the fastest", "computes 16.0 for each useful operation", "no vectors in its inner loop",
        "5 spills and reloads in its inner loop", "its inner loop, bound by loads, allows 25% of the peak",
        "at 1% of what compute allows",
    ]  # fmt: skip
    plain = {"schedule": "", "overcompute": 1.0, "inner_loop": None, "roofline": {"bound": None}}
    assert list(league.of_diagnosis(plain)) == []
