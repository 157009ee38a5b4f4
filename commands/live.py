"""How a search goes, for those who call it from Python: a line or a panel on a terminal, a chart in a notebook."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from html import escape
from typing import Any

from ..errors import UsageError
from ..figures import latency
from .output import Output
from .progress import Progress, State, clock

Emit = Callable[[dict[str, Any]], None]
UPDATE_SECONDS = 0.5
WIDTH, HEIGHT, LEFT, BELOW = 520, 170, 70, 26
"""Of a chart, in pixels, and of its margins."""


def watching(progress: bool | None, state: State, emit: Emit | None) -> AbstractContextManager[Emit | None]:
    """What takes the events of a search while it goes on, and shows them.

    True shows them in any case, False never, and None in a notebook and on a terminal, on stderr.  `emit` gets them
    besides.
    """
    if progress not in (None, True, False):
        raise UsageError(f"`progress` is True, False, or None for where somebody looks, but got {progress!r}")
    if emit is not None and not callable(emit):
        raise UsageError(f"`emit` is a function that is called with each event, but got {emit!r}")
    display = _display() if progress is not False else None
    if display is not None:
        return _in_notebook(Chart(state, display), emit)
    terminal = sys.stderr is not None and sys.stderr.isatty()
    if progress is False or (progress is None and not terminal):
        return contextlib.nullcontext(emit)
    return _on_terminal(Output("rich" if terminal else "plain", sys.stderr), state, emit)


@contextmanager
def _on_terminal(output: Output, state: State, emit: Emit | None) -> Iterator[Emit]:
    with Progress(output, state) as shown:

        def take(event: dict[str, Any]) -> None:
            shown(event)
            if emit is not None:
                emit(event)

        yield take
    if state.best_us is not None:
        output.line(f"{clock(state.seconds)}  {state.count()}  best {state.best()}")


@contextmanager
def _in_notebook(chart: Chart, emit: Emit | None) -> Iterator[Emit]:
    def take(event: dict[str, Any]) -> None:
        chart.take(event)
        if emit is not None:
            emit(event)

    try:
        yield take
    finally:
        chart.show()


def _display() -> Callable[[str], Callable[[str], None]] | None:
    """What shows HTML in the notebook that this process computes for, and gives what puts other HTML in its place.

    None outside of notebooks; IPython in a terminal is one.
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if type(shell).__name__ != "ZMQInteractiveShell":
        return None

    def show(html: str) -> Callable[[str], None]:
        from IPython.display import HTML, display

        handle = display(HTML(html), display_id=True)
        return lambda other: handle.update(HTML(other))

    return show


class Chart:
    """The best latency against time, and what the search does now, as HTML that is updated in its place."""

    def __init__(self, state: State, display: Callable[[str], Callable[[str], None]]) -> None:
        self.state, self._display = state, display
        self._update: Callable[[str], None] | None = None
        self._last = 0.0
        self.points: list[tuple[float, float]] = []

    def take(self, event: Mapping[str, Any]) -> None:
        """Learn from an event, and show it where the last picture is old enough."""
        self.state.take(dict(event))
        best = self.state.best_us
        if best is not None and (not self.points or best < self.points[-1][1]):
            self.points.append((self.state.seconds, best))
        if time.monotonic() - self._last >= UPDATE_SECONDS:
            self.show()

    def show(self) -> None:
        """Draw what is known now."""
        self._last = time.monotonic()
        if self._update is None:
            self._update = self._display(self.html())
        else:
            self._update(self.html())

    def html(self) -> str:
        """A line of text and, from the first result on, a chart below it."""
        state = self.state
        told = f"{state.title}<br>{clock(state.seconds)} &nbsp; {escape(state.count())} &nbsp; {escape(state.best())}"
        failed = f" &nbsp; failed: {escape(state.failures())}" if state.failed else ""
        return f'<div style="font-family:monospace">{told}{failed}{self._svg()}</div>'

    def _svg(self) -> str:
        if not self.points:
            return ""
        end = max(self.state.seconds, 1e-3)
        low, high = self.points[-1][1], self.points[0][1]
        span = high - low if f"{high:.4g}" != f"{low:.4g}" else 0.0  # the digits of labels

        def place(seconds: float, us: float) -> str:
            x = LEFT + (WIDTH - LEFT - 8) * seconds / end
            y = 8 + (HEIGHT - BELOW - 16) * (1 - (us - low) / span if span else 0.5)
            return f"{x:.1f},{y:.1f}"

        steps = [place(*self.points[0])]
        for (_, before), (seconds, us) in zip(self.points, self.points[1:], strict=False):
            steps += [place(seconds, before), place(seconds, us)]
        steps.append(place(end, low))
        values = [(14, high), (HEIGHT - BELOW - 4, low)] if span else [((HEIGHT - BELOW) // 2 + 4, low)]
        labels = [*((LEFT - 6, y, "end", latency(us)) for y, us in values),
                  (LEFT, HEIGHT - 6, "start", "0:00"), (WIDTH - 8, HEIGHT - 6, "end", clock(end))]  # fmt: skip
        texts = "".join(
            f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="11" fill="currentColor">{escape(text)}</text>'
            for x, y, anchor, text in labels
        )
        frame = f"M{LEFT},4 V{HEIGHT - BELOW} H{WIDTH - 4}"
        return (
            f'<svg width="{WIDTH}" height="{HEIGHT}" style="display:block"><path d="{frame}" fill="none" '
            f'stroke="currentColor" opacity="0.4"/><polyline points="{" ".join(steps)}" fill="none" stroke="#1c7ed6" '
            f'stroke-width="2"/>{texts}</svg>'
        )
