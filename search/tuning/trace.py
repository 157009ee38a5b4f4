"""The trace of a tuning run as Chrome's trace events, which Perfetto (https://ui.perfetto.dev) opens.

```
driver      activities | proposing           what the run's own process does, and what it asks of the model
NODE        builder 1 | builder 2 | ...      each build, with its sketch and what became of it
            measuring                        each measurement and race, with its latency
counter     best latency (us)
```
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ...errors import StorageError
from ...files import doing, refuse_other
from ..workers.timeline import Sample, Span, Timeline
from . import events
from .clock import Clock
from .events import Emit
from .interruption import uninterrupted

DRIVER, ACTIVITIES, PROPOSING = "driver", "activities", "proposing"


def check_writable(path: str) -> None:
    """Raises StorageError now, rather than after the run, where the file cannot be written."""
    _write(path, "")


@contextlib.contextmanager
def traced(path: str | None, title: str, timeline: Timeline | None, clock: Clock, emit: Emit | None) -> Iterator[None]:
    """Write the trace, if there is a `path`, when the block is over, however it ends.

    That it cannot be written is an error (StorageError) where nothing else went wrong, and else a note.
    """
    if path is None or timeline is None:
        yield
        return
    try:
        yield
    except BaseException:
        try:
            with uninterrupted():
                write_trace(path, title, timeline, clock)
        except StorageError as error:
            if emit is not None:
                with contextlib.suppress(OSError):  # a terminal that was closed
                    emit(events.Note(message=str(error)).to_json())
        raise
    with uninterrupted():
        write_trace(path, title, timeline, clock)


def write_trace(path: str, title: str, timeline: Timeline, clock: Clock) -> None:
    """Write everything that the timeline and the clock hold.  Raises StorageError."""
    activities = (Span(DRIVER, ACTIVITIES, name, start, end, {}) for name, start, end in clock.history)
    found = trace_events([*activities, *timeline.spans], timeline.samples, clock.start)
    _write(path, json.dumps({"traceEvents": found, "displayTimeUnit": "ms", "otherData": {"run": title}}))


def trace_events(spans: Iterable[Span], samples: Iterable[Sample], start: float) -> list[dict[str, Any]]:
    """Events in microseconds since `start`; a process for each node and a thread for each of its lanes."""
    nodes: dict[str, int] = {DRIVER: 1}
    lanes: dict[tuple[str, str], int] = {}
    found: list[dict[str, Any]] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        process = nodes.setdefault(span.node, len(nodes) + 1)
        thread = lanes.setdefault((span.node, span.lane), len(lanes) + 1)
        found.append({
            "ph": "X", "cat": span.lane.partition(" ")[0], "name": span.name, "pid": process, "tid": thread,
            "ts": _microseconds(span.start, start), "dur": _microseconds(span.end, span.start),
            "args": {name: value for name, value in span.facts.items() if value is not None},
        })  # fmt: skip
    for sample in samples:
        found.append({"ph": "C", "name": sample.name, "pid": nodes[DRIVER], "tid": 0,
                      "ts": _microseconds(sample.time, start), "args": {"value": sample.value}})  # fmt: skip
    named = [_name("process", number, 0, f"node {name}" if number > 1 else name) for name, number in nodes.items()]
    named += [_name("thread", nodes[node], number, lane) for (node, lane), number in lanes.items()]
    return named + found


def _name(of: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": f"{of}_name", "pid": process, "tid": thread, "args": {"name": name}}


def _microseconds(now: float, since: float) -> float:
    return round(max(0.0, now - since) * 1e6, 3)


def _write(path: str, text: str) -> None:
    refuse_other(Path(path), "a trace", b'{"traceEvents": ')
    with doing(f"write the trace {path}"):
        Path(path).write_text(text, encoding="utf-8")
