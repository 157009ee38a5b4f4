"""Searches from Python: what is shown where, and that every parameter has a name."""

from __future__ import annotations

import inspect
import sys
import types
from typing import Any

import pytest

import stridesmith as ss
from stridesmith.commands import live
from stridesmith.commands.live import Chart, watching
from stridesmith.commands.progress import State
from stridesmith.search.calling import api

EVENTS: list[dict[str, Any]] = [
    {"event": "start", "flops": 2_000_000, "device": "d"},
    {"event": "trial", "trials": 1, "status": "ok", "best_us": 100.0},
    {"event": "trial", "trials": 2, "status": "crash:SIGSEGV", "best_us": 100.0},
    {"event": "trial", "trials": 3, "status": "ok", "best_us": 40.0},
    {"event": "done", "trials": 3, "best_us": 40.0},
]


class Terminal:
    """A stream that is one, or is none."""

    def __init__(self, is_terminal: bool) -> None:
        self.is_terminal, self.text, self.encoding = is_terminal, "", "utf-8"

    def isatty(self) -> bool:
        return self.is_terminal

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None: ...


def shown(progress: bool | None, terminal: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[dict[str, Any]]]:
    """What stands on stderr after all events, and what the caller's own function got."""
    stream, got = Terminal(terminal), list[dict[str, Any]]()
    monkeypatch.setattr(sys, "stderr", stream)
    with watching(progress, State("tuning x", limit_trials=4), got.append) as emit:
        assert emit is not None
        for event in EVENTS:
            emit(event)
    return stream.text, got


@pytest.mark.parametrize(
    ("progress", "terminal", "speaks"),
    [(None, False, False), (None, True, True), (True, False, True), (False, True, False), (True, True, True)],
)
def test_progress_is_shown_where_somebody_looks(
    progress: bool | None, terminal: bool, speaks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal unless it is refused, elsewhere where it is asked for; the caller's function gets all events."""
    text, got = shown(progress, terminal, monkeypatch)
    assert got == EVENTS
    assert ("tuning x" in text and "40.00 us" in text) if speaks else not text


def test_nothing_is_printed_on_stdout(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Which belongs to the caller."""
    shown(True, False, monkeypatch)
    assert capsys.readouterr().out == ""


def test_progress_is_a_choice_of_three() -> None:
    """A word is none of them."""
    with pytest.raises(ss.UsageError, match="`progress` is True, False, or None"):
        ss.tune("matmul", trials=1, progress="yes")


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A process that computes for a notebook; the list has what it displays, in its order."""
    displayed: list[str] = []

    class Handle:
        def update(self, html: str) -> None:
            displayed.append(html)

    def display(html: str, display_id: bool) -> Handle:
        assert display_id
        displayed.append(html)
        return Handle()

    shell = type("ZMQInteractiveShell", (), {})()
    inside = types.SimpleNamespace(HTML=str, display=display)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell, display=inside))
    monkeypatch.setitem(sys.modules, "IPython.display", inside)
    return displayed


def test_a_notebook_has_one_picture_that_changes(notebook: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A chart from the first result on, and at the end what was found; nothing on stderr."""
    text, _ = shown(None, False, monkeypatch)
    assert text == "" and len(notebook) >= 2
    assert "<svg" in notebook[-1] and "40.00 us" in notebook[-1] and "crash 1" in notebook[-1]


def test_a_first_result_stands_in_the_middle() -> None:
    """One latency is one label, beside a line that the frame does not hide."""
    chart = Chart(State("tuning x"), lambda html: lambda other: None)
    chart.take({"event": "trial", "trials": 1, "status": "ok", "best_us": 100.0})
    assert chart._svg().count(">100.0 us<") == 1
    (_, y), (_, end) = (point.split(",") for point in chart._svg().partition('points="')[2].partition('"')[0].split())
    assert y == end and 30 < float(y) < live.HEIGHT - live.BELOW - 30
    chart.take({"event": "trial", "trials": 2, "status": "ok", "best_us": 40.0})
    assert chart._svg().count(" us<") == 2


def test_latencies_that_no_label_tells_apart_are_one() -> None:
    chart = Chart(State("tuning x"), lambda html: lambda other: None)
    for number, best in enumerate((100.0, 99.999), 1):
        chart.take({"event": "trial", "trials": number, "status": "ok", "best_us": best})
    points = [point.split(",") for point in chart._svg().partition('points="')[2].partition('"')[0].split()]
    assert len(points) == 4 and len({y for _, y in points}) == 1
    assert chart._svg().count(" us<") == 1


def test_a_notebook_can_be_left_alone(notebook: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`progress=False` shows nothing there either."""
    shown(False, False, monkeypatch)
    assert notebook == []


def test_ipython_in_a_terminal_is_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its shell is of another class."""
    shell = type("TerminalInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    assert live._display() is None


def test_texts_of_a_chart_are_escaped() -> None:
    """No title is markup; without a result there is no picture."""
    state = State("tuning x")
    chart = Chart(state, lambda html: lambda other: None)
    assert "<svg" not in chart.html()
    state.phase = "<b>compiling</b>"
    assert "&lt;b&gt;compiling" in chart.html()


def test_ss_tune_has_every_option_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is hidden behind `**options`: what is given goes on, and what is not keeps its default."""
    found: dict[str, Any] = {}
    monkeypatch.setattr(api, "tune", lambda work, target, **options: found.update(options, work=work, target=target))
    parameters = inspect.signature(ss.tune).parameters
    assert all(p.kind is not p.VAR_KEYWORD and p.annotation is not p.empty for p in parameters.values())
    ss.tune("matmul", seconds=3, interface={"b": "free"}, pins={"a": "1"}, progress=False)
    assert found["seconds"] == 3 and found["interface"] == {"b": "free"} and found["pins"] == {"a": "1"}
    assert "trials" not in found and "sampler" not in found
    wrong: list[dict[str, Any]] = [{"secnds": 3}, {"inptus": {}}]
    with pytest.raises(ss.UsageError, match=r"tune\(\) has no option 'secnds' .did you mean 'seconds'"):
        ss.tune("matmul", **wrong[0])
    with pytest.raises(ss.UsageError, match=r"compile\(\) has no option 'inptus' .did you mean 'inputs'"):
        ss.compile("net.onnx", **wrong[1])


def test_values_of_a_wrong_kind_are_named() -> None:
    """Decisions that are no mapping, and a shape that is a text."""
    wrong: list[dict[str, Any]] = [{"pins": ["a"]}, {"inputs": {"x": "1x4"}}]
    with pytest.raises(ss.UsageError, match=r"pins=\['a'\]"):
        ss.tune("matmul", trials=1, progress=False, **wrong[0])
    with pytest.raises(ss.UsageError, match=r"as in \{'x': \(1, 3\)\}, but got '1x4'"):
        ss.compile("net.onnx", **wrong[1])
