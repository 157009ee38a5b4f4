"""The charts of a report as Vega-Lite specifications: plain data, which the page draws where they are looked at.

Colours are names of the page's theme (`page.js` puts in those of light or dark); sizes follow the page's width.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..cost_model.metrics import ENOUGH_RANKED, spearman
from ..search.records.status import FAILURES

if TYPE_CHECKING:
    from .tasks import TaskReport

Spec = dict[str, Any]
Rows = list[dict[str, Any]]

MOST_POINTS = 600
"""Of a longer search, points that are no gain are thinned out, and failures beyond as many as well."""
MOST_DECISIONS = 14  # on one screen
MOST_RUNS = 12  # on one screen
ACCENT, FAINT, WARM, COOL = "@accent", "@faint", "@warm", "@cool"
FAILURE_COLOURS = ["@fail0", "@fail1", "@fail2", "@fail3", "@fail4", "@fail5", "@fail6", "@fail7", "@fail8", "@fail9"]
ACTIVITY_COLOURS = ["@act0", "@act1", "@act2", "@act3", "@act4", "@act5", "@act6"]


def search_curve(task: TaskReport, most: int = MOST_POINTS) -> Spec | None:
    """Every candidate, the best so far, and failures by kind above them."""
    rows, best = Rows(), math.inf
    for number, record in enumerate(task.records, 1):
        row: dict[str, Any] = {"n": number, "sketch": record.sketch}
        if record.latency_us is not None:
            row["us"] = _rounded(record.latency_us)
            if record.latency_us < best:
                row["id"], best = record.id, record.latency_us
        else:
            row |= {"failed": record.failure}
        if math.isfinite(best):
            row["best"] = _rounded(best)
        rows.append(row)
    if not any("us" in row for row in rows):
        return None
    x = _axis("n", "candidates", scale={"nice": False, "domain": [0, len(rows) + 1]})
    y = _axis("us", "latency (us)", scale={"type": "log", "nice": False, "padding": 8})
    tip = [_tip("n", "candidate"), _tip("us", "us"), _tip("sketch"), _tip("id", "record")]
    layers: list[Spec] = [
        {"transform": [{"filter": "isValid(datum.us)"}], "mark": {"type": "circle", "size": 26, "opacity": 0.6,
         "color": COOL, "clip": True}, "encoding": {"x": x, "y": y, "tooltip": tip}},
        {"transform": [{"filter": "isValid(datum.best)"}],
         "mark": {"type": "line", "interpolate": "step-after", "color": ACCENT, "strokeWidth": 2.5},
         "encoding": {"x": x, "y": _axis("best", "latency (us)")}},
    ]  # fmt: skip
    if task.failures:
        layers.append({
            "transform": [{"filter": "isValid(datum.failed)"}],
            "mark": {"type": "tick", "thickness": 2, "size": 12, "orient": "vertical"},
            "encoding": {"x": x, "y": {"value": 6}, "tooltip": [_tip("n", "candidate"), _tip("failed"), _tip("sketch")],
                         "color": {"field": "failed", "type": "nominal", "title": "failed",
                                   "scale": {"domain": list(FAILURES), "range": FAILURE_COLOURS},
                                   "legend": {"orient": "bottom", "values": list(task.failures)}}},
        })  # fmt: skip
    return _spec({"layer": layers}, _thinned(rows, most), 240)


def decisions(task: TaskReport) -> Spec | None:
    """Importance of each decision."""
    shown = [w for w in task.worth if w.importance > 0][:MOST_DECISIONS]
    if not shown:
        return None
    names = _short([w.name for w in shown])
    rows = [{"name": name, "share": w.importance, "chosen": w.chosen, "kind": w.kind}
            for name, w in zip(names, shown, strict=True)]  # fmt: skip
    encoding = {
        "y": {"field": "name", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 150}},
        "x": _axis("share", "importance", axis={"format": "%", "tickCount": 4}),
        "tooltip": [_tip("name"), _tip("chosen", "chosen"), _tip("share", "importance", ".1%")],
    }
    mark = {"type": "bar", "color": ACCENT, "cornerRadiusEnd": 2, "height": {"band": 0.7}}
    return _spec({"mark": mark, "encoding": encoding}, rows, 20 * len(rows) + 8)


def _short(names: Sequence[str]) -> list[str]:
    """Names without the block that all of them are of."""
    blocks = {name.partition("/")[0] for name in names if "/" in name}
    return [name.rpartition("/")[2] for name in names] if len(blocks) == 1 else list(names)


def predictions(task: TaskReport, most: int = MOST_POINTS) -> tuple[Spec, str] | None:
    """Foretold latency against measured, and a sentence on how well the order was foretold.

    Scores of a batch share a constant that is not known; here it is what makes their median right.
    """
    batches: dict[tuple[str, int, str], list[tuple[float, float]]] = {}
    for record in task.measured:
        if record.foretold is not None and record.latency_us is not None:
            told = record.foretold
            batches.setdefault((record.run, told.batch, told.model), []).append((told.score, record.latency_us))
    rows, correlations = Rows(), list[float]()
    for (_, number, model), found in batches.items():
        if len(found) < 3:
            continue
        constant = statistics.median(math.log2(us) + score for score, us in found)
        rows += [
            {"told": _rounded(2.0**told), "us": _rounded(us), "model": model, "batch": number}
            for score, us in found
            for told in [max(-60.0, min(constant - score, 60.0))]
        ]
        if model == "learned" and len(found) >= ENOUGH_RANKED:
            correlations.append(spearman([score for score, _ in found], [-us for _, us in found]))
    if len(rows) < 4:
        return None
    low, high = (reach(row["us"] for row in rows) * by for reach, by in ((min, 1 / 1.5), (max, 1.5)))
    scale = {"type": "log", "domain": [low, high], "nice": False, "clamp": True}
    color = {"field": "model", "type": "nominal", "legend": {"orient": "bottom", "title": None},
             "scale": {"domain": ["estimate", "learned"], "range": [WARM, ACCENT]}}  # fmt: skip
    tip = [_tip("told", "foretold us"), _tip("us", "measured us"), _tip("model"), _tip("batch")]
    diagonal = [{"told": low, "us": low}, {"told": high, "us": high}]
    axes = {"x": _axis("told", "foretold (us)", scale=scale), "y": _axis("us", "measured (us)", scale=scale)}
    layers = [
        {"data": {"values": diagonal}, "mark": {"type": "line", "color": FAINT, "strokeDash": [4, 3]},
         "encoding": axes},
        {"mark": {"type": "circle", "size": 30, "opacity": 0.65},
         "encoding": {**axes, "color": color, "tooltip": tip}},
    ]  # fmt: skip
    mean = statistics.fmean(correlations) if correlations else None
    words = (
        f"Within a batch the learned model's order agrees with what was measured by a rank correlation of {mean:.2f} "
        "on average; 1 is a perfect order, 0 none. A batch holds candidates that it all likes, hard to tell apart."
        if mean is not None
        else "The learned model has foretold too few candidates to be judged: it learns from what is measured."
    )
    return _spec({"layer": layers}, rows[:: math.ceil(len(rows) / most)], 260), words


def seconds(task: TaskReport) -> Spec | None:
    """What the seconds of each run were spent on, of many runs the last ones."""
    rows = [
        {"run": f"run {number}", "what": what, "s": round(spent, 2)}
        for number, run in list(enumerate(task.runs, 1))[-MOST_RUNS:]
        for what, spent in run.activities.items()
        if spent >= 0.005
    ]
    if not rows:
        return None
    order = list(dict.fromkeys(row["what"] for row in rows))
    encoding = {
        "y": {"field": "run", "type": "nominal", "title": None, "sort": None},
        "x": _axis("s", "seconds", stack="zero"),
        "color": {"field": "what", "type": "nominal", "sort": order, "title": None,
                  "legend": {"orient": "bottom", "columns": 4},
                  "scale": {"domain": order, "range": ACTIVITY_COLOURS[: len(order)]}},
        "order": {"field": "position"},
        "tooltip": [_tip("run"), _tip("what", "spent on"), _tip("s", "seconds")],
    }  # fmt: skip
    rows = [row | {"position": order.index(row["what"])} for row in rows]
    return _spec(
        {"mark": {"type": "bar", "height": 18}, "encoding": encoding}, rows, 26 * len({row["run"] for row in rows}) + 10
    )


def roofline(tasks: Sequence[TaskReport]) -> Spec | None:
    """The roof; of one task every candidate, the untuned program and its peers, of several the best of each."""
    known = [task for task in tasks if task.roof is not None and task.roof.bandwidth > 0 and task.task.work.flops]
    if not known:
        return None
    several = [_point(task, task.latency_us, task.name, "best") for task in known]
    points = _points(known[0]) if len(known) == 1 else several
    spread = [point["x"] for point in points]
    roofs = Rows()
    for number, (peak, bandwidth) in enumerate(_roofs(known)):
        ridge = peak * 1e9 / bandwidth
        reach = (min(*spread, ridge) / 4, ridge, max(*spread, ridge) * 4)
        roofs += [{"x": x, "y": min(peak, x * bandwidth * 1e-9), "roof": number} for x in reach]
    lowest = min(point["y"] for point in points)
    scale = {"type": "log", "nice": False}
    x = _axis("x", "FLOP for each byte of the arguments", scale=scale)
    y = _axis("y", "GFLOP/s", scale=scale | {"domainMin": min(lowest, *(r["y"] for r in roofs)) / 1.5})
    tip = [_tip("label", "what"), _tip("y", "GFLOP/s", ".3~g"), _tip("us", "us", ".4~g"),
           _tip("of", "of the roof", ".0%")]  # fmt: skip
    layers: list[Spec] = [
        {"data": {"values": roofs}, "mark": {"type": "line", "color": WARM, "strokeWidth": 2},
         "encoding": {"x": x, "y": y, "detail": {"field": "roof"}}},
        {"transform": [{"filter": "datum.kind != 'candidate'"}],
         "mark": {"type": "point", "filled": True, "size": 70, "opacity": 0.95},
         "encoding": {"x": x, "y": y, "tooltip": tip, "shape": _kinds(["circle", "diamond", "square"]),
                      "color": _kinds([ACCENT, "@peer", FAINT])}},
    ]  # fmt: skip
    if len(known) == 1:
        layers.insert(1, {
            "transform": [{"filter": "datum.kind == 'candidate'"}],
            "mark": {"type": "tick", "orient": "horizontal", "size": 22, "thickness": 1, "opacity": 0.55,
                     "color": COOL},
            "encoding": {"x": x, "y": y, "tooltip": tip},
        })  # fmt: skip
        layers.append({
            "transform": [{"filter": "datum.kind != 'candidate'"}],
            "mark": {"type": "text", "align": "left", "dx": 16, "fontSize": 11, "color": "@ink"},
            "encoding": {"x": x, "y": y, "text": {"field": "label"}},
        })  # fmt: skip
    return _spec({"layer": layers}, points, 280)


def _points(task: TaskReport) -> Rows:
    shown = sorted(task.measured, key=lambda record: record.latency_us or 0.0)
    step = max(1, len(shown) // 150)
    rows = [
        _point(task, record.latency_us or 0.0, f"place {place}", "candidate")
        for place, record in list(enumerate(shown, 1))[::step]
    ]
    rows.append(_point(task, task.latency_us, "best", "best"))
    rows += [_point(task, us, name, "peer") for name, us in task.peers.items()]
    if task.untuned_us:
        rows.append(_point(task, task.untuned_us, "untuned", "untuned"))
    return rows


def _point(task: TaskReport, us: float, label: str, kind: str) -> dict[str, Any]:
    assert task.roof is not None
    work = task.task
    return {
        "x": work.work.flops / work.bytes_moved, "y": _rounded(work.work.flops / us * 1e-3), "us": _rounded(us),
        "of": round(task.roof.fraction(work, us), 4), "label": label, "kind": kind,
    }  # fmt: skip


def _roofs(tasks: Iterable[TaskReport]) -> list[tuple[float, float]]:
    """The highest roof of each device."""
    found: dict[str, tuple[float, float]] = {}
    for task in tasks:
        assert task.roof is not None
        key = f"{task.record.device_key} {task.record.dtype}"
        peak, bandwidth = found.get(key, (0.0, 0.0))
        found[key] = (max(peak, task.roof.peak_gflops), max(bandwidth, task.roof.bandwidth))
    return list(found.values())


def _kinds(values: list[str]) -> Spec:
    return {"field": "kind", "type": "nominal", "legend": None,
            "scale": {"domain": ["best", "peer", "untuned"], "range": values}}  # fmt: skip


def _axis(field: str, title: str, **more: Any) -> Spec:
    return {"field": field, "type": "quantitative", "title": title, **more}


def _tip(field: str, title: str = "", format: str = "") -> Spec:
    return {"field": field, "title": title or field} | ({"type": "quantitative", "format": format} if format else {})


def _spec(view: Mapping[str, Any], rows: Rows, height: int) -> Spec:
    return {"data": {"values": rows}, "width": "container", "height": height, **view}


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")


def _thinned(rows: Rows, most: int) -> Rows:
    """At most about `most` successes and `most` failures; gains, each kind's first failure and the last row stay."""
    step = math.ceil(len(rows) / most)
    apart = math.ceil(sum("failed" in row for row in rows) / most)
    kept, seen = Rows(), Counter[str]()
    for number, row in enumerate(rows, 1):
        if "failed" in row:
            is_due = seen[row["failed"]] % apart == 0
            seen[row["failed"]] += 1
        else:
            is_due = number % step == 0 or "id" in row
        if is_due or number == len(rows):
            kept.append(row)
    return kept
