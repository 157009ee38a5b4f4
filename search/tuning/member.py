"""Runs on one host for a driver elsewhere: ``python -m stridesmith.search.tuning.member``.

Reads one line from stdin, a JSON list of settings, makes their runs one after the other, and prints a line of JSON for
each event: ``{"run": 0, "event": {...}}``; an error's event is the last of its run.  After SIGTERM, or when stdin
closes, the run under way ends as after Ctrl-C, with the best so far, and no other begins.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from ...errors import InternalError, Interrupted, StridesmithError
from ..workers.main import claim_stdout, send
from .interruption import heard
from .settings import settings


def main() -> None:
    """Make the runs that stdin asks for."""
    answers = claim_stdout()
    asked = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt), heard():
        for number, options in enumerate(asked):

            def tell(event: Mapping[str, Any], number: int = number) -> None:
                with contextlib.suppress(BrokenPipeError):  # the driver has gone; SIGTERM is on its way
                    send(answers, json.dumps({"run": number, "event": event}, default=str))

            if not _run(options, tell):
                return


def _run(options: Mapping[str, Any], tell: Callable[[Mapping[str, Any]], None]) -> bool:
    """One run; False where no other should follow."""
    from .tuner import tune

    try:
        tune(settings(**options), tell)
    except (StridesmithError, ValueError, OSError, RuntimeError) as problem:
        error = problem if isinstance(problem, StridesmithError) else InternalError(
            f"internal error: {type(problem).__name__}: {str(problem)[:300]}"
        )  # fmt: skip
        tell({"event": "error", "code": error.exit_code, "kind": error.kind, "message": str(error)})
        return not isinstance(error, Interrupted)
    return True


def _end_with_stdin() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
