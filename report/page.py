"""The page: one HTML file with everything inside, which asks for nothing and opens anywhere.

Texts go through Jinja2 with escaping; charts are drawn by Vega-Lite, whose code comes from the package vl-convert and
stands compressed in the page.  What is below the overview is compressed as well, and unfolds when it is opened, so
that a page of a hundred tasks is there at once.
"""

from __future__ import annotations

import base64
import gzip
import json
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ToolMissing
from ..figures import by_clock, latency, number, percent
from ..files import shown as path_shown
from ..search.tasks.command_line import Options, options_of
from . import charts
from .advice import Finding, findings
from .layouts import LEGEND
from .words import KINDS

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup

    from .models import ModelReport
    from .tasks import TaskReport

ASSETS = Path(__file__).parent / "assets"
EXTRA = "pip install 'stridesmith[report]'"
MOST_BYTES = 1_950_000
"""Of the page; what is said of those tasks that have least to gain is left out beyond it."""
MOST_POINTS = 8_000
"""Of all search curves together."""
SKETCH = "which axis runs in vectors, and which one along the rows of the register tile"


@dataclass(frozen=True)
class Subject:
    """What the page is about: its title, the database that it was made from, notes for the reader.

    `named` says whether commands have to name the database, which the environment does not say; `script` is the file
    of the program, where one was named.
    """

    title: str
    db: str
    notes: Sequence[str] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    named: bool = True
    script: str | None = None


def require() -> None:
    """Raises ToolMissing where the page cannot be made, before any work is done for it."""
    try:
        import jinja2  # noqa: F401
        import vl_convert  # noqa: F401
    except ImportError as error:
        raise ToolMissing(f"a report needs {error.name}, which is not installed: {EXTRA}") from None


def page(subject: Subject, tasks: Sequence[TaskReport], model: ModelReport | None = None) -> str:
    """The whole file.  Raises ToolMissing without the extra."""
    require()
    import jinja2

    loader = jinja2.FileSystemLoader(ASSETS)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {
        "latency": latency, "percent": percent, "number": number, "share": share, "extents": extents, "code": _code,
        "path": path_shown,
    }  # fmt: skip
    points = max(60, min(charts.MOST_POINTS, MOST_POINTS // max(1, len(tasks))))
    in_model = model is not None
    entries = [_entry(task, subject, points, in_model) for task in sorted(tasks, key=lambda task: -task.lost_us)]
    overview = charts.roofline(tasks) if len(tasks) > 1 else None
    shown = None if model is None else model.shown({entry["task"].record.id: entry for entry in entries})
    template, vega = environment.get_template("page.html"), _packed(_vega())
    text = ""
    for kept, whole in _lengths(len(entries)):
        notes = [*subject.notes]
        if kept < len(entries):
            notes.append(f"{len(entries) - kept} of {len(entries)} tasks, those with least to gain, do not fit here")
        text = template.render(
            subject=subject, notes=notes, entries=entries[:kept], model=shown, legend=LEGEND,
            made=time.strftime("%Y-%m-%d %H:%M"), has_overview=overview is not None, totals=_totals(tasks),
            style=_asset("page.css"), script=_asset("page.js"), vega=vega,
            data=_data(entries[:kept], whole, overview, environment.get_template("task.html")),
        )  # fmt: skip
        if len(text.encode()) <= MOST_BYTES:
            break
    return text


def _lengths(count: int) -> Iterator[tuple[int, int]]:
    """Ever shorter pages: how many tasks have a part, and how many of these code and pictures."""
    yield from ((count, whole) for whole in dict.fromkeys((count, count // 2, count // 5, min(1, count), 0)))
    while count > 1:
        count //= 2
        yield count, 0


def _data(
    entries: Sequence[Mapping[str, Any]], whole: int, overview: charts.Spec | None, template: jinja2.Template
) -> str:
    """Charts and what unfolds, packed; the first `whole` tasks have code and pictures."""
    specs = {f"{entry['id']}-{name}": spec for entry in entries for name, spec in entry["charts"].items()}
    if overview is not None:
        specs["overview-roofline"] = overview
    kinds = {**KINDS, "sketch": SKETCH}
    bodies = {
        entry["id"]: template.render(legend=LEGEND, kinds=kinds, whole=number < whole, **entry)
        for number, entry in enumerate(entries)
    }
    return _packed(json.dumps({"charts": specs, "bodies": bodies}, separators=(",", ":"), allow_nan=False))


def _entry(task: TaskReport, subject: Subject, points: int, in_model: bool = False) -> dict[str, Any]:
    """What the templates show of a task."""
    db = subject.db if subject.named else None
    asked = options_of(task.task.work, task.record.device, task.task.interface, db)
    if asked.script and subject.script:
        asked = replace(asked, script=subject.script)
    command = asked.command()
    drawn = {
        "search": charts.search_curve(task, points), "decisions": charts.decisions(task),
        "seconds": charts.seconds(task), "roofline": charts.roofline([task]),
    }  # fmt: skip
    foretold = charts.predictions(task, points)
    if foretold is not None:
        drawn["predictions"] = foretold[0]
    found: list[Finding] = findings(task, command, in_model)
    diagnosis = task.diagnosis
    return {
        "id": f"t{task.record.id}", "task": task, "findings": found, "why": found[0].short if found else "unknown",
        "charts": {name: spec for name, spec in drawn.items() if spec is not None},
        "foretold": foretold[1] if foretold else "", "command": command,
        "is_file_unknown": bool(asked.script and not subject.script),
        "show": Options(db=db).command("show") + f" --record {task.record.id}",
        "loop": diagnosis.facts.get("inner_loop") if diagnosis else None,
        "facts": _facts(task), "speedup": task.untuned_us / task.latency_us if task.untuned_us else None,
    }  # fmt: skip


def _facts(task: TaskReport) -> list[tuple[str, str]]:
    """The numbers of the winner."""
    record, found = task.record, list[tuple[str, str]]()
    device = record.device
    found.append(("latency", latency(task.latency_us) + by_clock(device.clock)))
    if task.ranges is not None:
        found.append(("sizes", f"{len(task.ranges.sizes)}, of which this is the geometric mean"))
    if task.task.work.flops:
        found.append(("speed", f"{number(task.gflops)} {task.task.work.speed_unit}"))
    if task.roof is not None and task.ranges is not None:
        found.append(("of the roof", f"{percent(task.fraction)} in the geometric mean"))
    elif task.roof is not None:
        found.append(("of the roof", percent(task.fraction)))
        nbytes = task.task.bytes_moved
        place = "caches, which hold the arguments" if task.roof.place(nbytes) else "memory"
        rate = f"{number(task.roof.rate(nbytes) * 1e-9)} GB/s of {place}"
        peak = f"{number(task.roof.peak_gflops)} {task.task.work.speed_unit}, {rate}"
        found.append(("device reaches", peak))
    if task.untuned_us:
        times = number(task.untuned_us / task.latency_us)
        found.append(("untuned", f"{latency(task.untuned_us)}, {times} times as long"))
    found += [(name, f"{latency(us)}, {number(us / task.latency_us)} times ours") for name, us in task.peers.items()]
    failed = ", ".join(f"{kind} {count}" for kind, count in task.failures.items()) or "none"
    found.append(("candidates", f"{len(task.records)} in {len(task.runs) or 1} runs, failed: {failed}"))
    found.append(("device", f"{device.name}, {device.threads} threads" if device.kind == "cpu" else device.name))
    found.append(("record", f"{record.id}, {'verified' if record.verified else 'not verified here'}"))
    if record.versions.get("stridesmith"):
        found.append(("made by", f"stridesmith {record.versions['stridesmith']}"))
    return found


def _totals(tasks: Sequence[TaskReport]) -> list[tuple[str, str]]:
    """What stands above the table of several tasks."""
    trials = sum(len(task.records) for task in tasks)
    failed = sum(sum(task.failures.values()) for task in tasks)
    fractions = [min(task.fraction, 1.0) for task in tasks if task.fraction]  # data in caches may exceed it
    spent = sum(run.seconds for task in tasks for run in task.runs)
    totals = [("tasks", f"{len(tasks)}"), ("candidates", f"{trials:,}"),
              ("failed", percent(failed / trials) if trials else "-")]  # fmt: skip
    if fractions:
        totals.append(("of the roof, geometric mean", percent(statistics.geometric_mean(fractions))))
    if spent:
        totals.append(("tuning", f"{spent / 60:.0f} min" if spent >= 120 else f"{spent:.0f} s"))
    return totals


def _vega() -> str:
    """Vega, Vega-Lite and vega-embed as one script without dependencies, of the versions that vl-convert has."""
    import vl_convert

    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))


def _packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _code(text: str) -> Markup:
    """A sentence with its `code` marked; everything in it is escaped."""
    from markupsafe import Markup, escape

    parts = [escape(part) for part in text.split("`")]
    marked = (Markup("<code>{}</code>").format(part) if odd % 2 else part for odd, part in enumerate(parts))
    return Markup("").join(marked)


def share(fraction: float | None) -> str:
    """A width in CSS."""
    return f"{100 * min(1.0, max(0.0, fraction or 0.0)):.1f}%"


def extents(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape))
