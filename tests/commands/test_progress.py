"""Plain progress says what changed, what is waited for, and nothing twice."""

from __future__ import annotations

import pytest

from stridesmith.commands import progress as module
from stridesmith.commands.output import Output
from stridesmith.commands.progress import Progress, State


def test_a_line_is_printed_when_something_changed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same state is told once, however many events come; a wait is told before and after the first result."""
    monkeypatch.setattr(module, "PLAIN_SECONDS", 0.0)
    waiting = {"event": "phase", "phase": "waiting for Ray to start"}
    trial = {"event": "trial", "trials": 1, "best_us": 5.0, "status": "ok"}
    with Progress(Output("plain"), State("title", limit_trials=4)) as progress:
        for event in (
            waiting, waiting, trial, trial, {"event": "phase", "phase": "building 3 candidates"},
            {"event": "phase", "phase": "waiting for the Ray cluster at head:6379"},
        ):  # fmt: skip
            progress(event)
    lines = [line.split("  ", 1)[1] for line in capsys.readouterr().out.splitlines()[1:]]
    assert lines == [
        "0/4 trials  best no result yet (waiting for Ray to start)", "1/4 trials  best 5.000 us",
        "1/4 trials  best 5.000 us  waiting for the Ray cluster at head:6379",
    ]  # fmt: skip
