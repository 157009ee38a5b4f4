"""The display of a running search, fed by its events."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..figures import latency, number, percent
from .output import Output

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

PLAIN_SECONDS = 3.0  # between two lines of progress, where there is no terminal
WAITING = "waiting"  # what phases begin with in which nothing goes on here


@dataclass
class State:
    """What is known so far, from the events `start`, `round`, `trial`, `phase` and `done`."""

    title: str = ""
    device: str = ""
    flops: int = 0
    limit_trials: int | None = None
    limit_seconds: float | None = None
    started: float = field(default_factory=time.monotonic)
    trials: int = 0
    round: int = 0
    phase: str = "starting"
    best_us: float | None = None
    baseline_us: float | None = None
    peak_gflops: float | None = None
    unit: str = "GFLOP/s"
    correlation: float | None = None
    failed: dict[str, int] = field(default_factory=dict)

    def take(self, event: dict[str, Any]) -> None:
        """Learn from one event; fields that it lacks stay as they are."""
        for name in ("round", "best_us", "baseline_us", "peak_gflops", "phase", "flops", "device"):
            if event.get(name) is not None:
                setattr(self, name, event[name])
        if event.get("rank_correlation") is not None:
            self.correlation = event["rank_correlation"]
        if isinstance(event.get("trials"), int):
            self.trials = event["trials"]
        if event["event"] == "start":
            self.phase = "starting"
        if event["event"] == "trial":
            self.phase = "searching"
            status = str(event.get("status", "ok")).split(":")[0]
            if status != "ok":
                self.failed[status] = self.failed.get(status, 0) + 1

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    @property
    def fraction(self) -> float | None:
        """How much of the budget is used; None without one."""
        shares = []
        if self.limit_trials:
            shares.append(self.trials / self.limit_trials)
        if self.limit_seconds:
            shares.append(self.seconds / self.limit_seconds)
        return min(1.0, max(shares)) if shares else None

    def count(self) -> str:
        """``40/64 trials``."""
        return f"{self.trials}/{self.limit_trials} trials" if self.limit_trials else f"{self.trials} trials"

    def best(self) -> str:
        """The best so far, in latency, speed, share of the peak and speed-up."""
        if self.best_us is None:
            return f"no result yet ({self.phase})"
        parts = [latency(self.best_us)]
        if self.flops:
            gflops = self.flops / self.best_us / 1e3
            parts.append(f"{number(gflops)} {self.unit}")
            if self.peak_gflops:
                parts.append(f"{percent(gflops / self.peak_gflops)} of peak")
        if self.baseline_us:
            parts.append(f"{number(self.baseline_us / self.best_us)}x untuned")
        return ", ".join(parts)

    def failures(self) -> str:
        """``refused 2, build_error 1``, or nothing."""
        return ", ".join(f"{kind} {count}" for kind, count in sorted(self.failed.items()))


class Progress(AbstractContextManager["Progress"]):
    """Shows a search while it runs: one live panel in a terminal, else a line every few seconds.

    In JSON the events themselves are the display.
    """

    def __init__(self, output: Output, state: State) -> None:
        self.output = output
        self.state = state
        self._live: Live | None = None
        self._last = 0.0
        self._shown = ""
        self._shown_best: float | None = None

    def __enter__(self) -> Self:
        self.output.prose(self.state.title)
        if self.output.format == "rich" and self.output.console.is_terminal:
            from rich.live import Live

            self._live = Live(
                get_renderable=self._panel, console=self.output.console, refresh_per_second=4, transient=True
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __call__(self, event: dict[str, Any]) -> None:
        """Take one event of the tuner."""
        self.state.take(event)
        self.output.event(event)
        if self.output.is_json:
            return
        if event["event"] == "note":
            self.output.prose(f"note: {event.get('message', '')}")
        if self._live is None:
            self._plain(event)
        elif event["event"] == "trial" and self._improved():
            self.output.line(f"{clock(self.state.seconds)}  {self.state.count():>16}  best {self.state.best()}")

    def _plain(self, event: dict[str, Any]) -> None:
        now = time.monotonic()
        due = now - self._last >= PLAIN_SECONDS or event["event"] in ("start", "phase")
        if event["event"] == "done" or not due:
            return
        failed = self.state.failures()
        parts = [self.state.count(), f"best {self.state.best()}"]
        if self.state.correlation is not None:
            parts.append(f"rank correlation {self.state.correlation:.2f}")
        if failed:
            parts.append(f"failed: {failed}")
        if self.state.best_us is not None and self.state.phase.startswith(WAITING):
            parts.append(self.state.phase)
        text = "  ".join(parts)
        if text != self._shown:
            self._last, self._shown = now, text
            self.output.line(f"{clock(self.state.seconds)}  {text}")

    def _improved(self) -> bool:
        if self.state.best_us is None or self.state.best_us == self._shown_best:
            return False
        self._shown_best = self.state.best_us
        return True

    def _panel(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        state = self.state
        bar = Table.grid(padding=(0, 2))
        fraction = state.fraction
        bar.add_row(
            ProgressBar(total=1.0, completed=fraction or 0.0, width=36, pulse=fraction is None),
            Text(state.count()), Text(clock(self.state.seconds)), Text(f"round {state.round}, {state.phase}"),
        )  # fmt: skip
        facts = Table.grid(padding=(0, 2))
        facts.add_row(Text("best", style="bold"), Text(state.best(), style="bold green" if state.best_us else "dim"))
        if state.correlation is not None:
            facts.add_row(Text("model"), Text(f"rank correlation {state.correlation:.2f}"))
        if state.failed:
            facts.add_row(Text("failed"), Text(state.failures()))
        return Group(bar, facts)


def clock(seconds: float) -> str:
    """``2:05``."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}"
