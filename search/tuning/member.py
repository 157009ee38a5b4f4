"""Runs on one host for a driver elsewhere: ``python -m stridesmith.search.tuning.member``.

Reads one line from stdin, a JSON list of settings, makes their runs one after the other, and prints a line of JSON for
each event: ``{"run": 0, "event": {...}}``; an error's event is the last of its run.  When stdin closes, the run under
way ends as after SIGTERM, with the best so far, and no other begins.
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
from ..workers.threads import leave
from .interruption import heard
from .settings import settings


def main() -> None:
    """Make the runs that stdin asks for."""
    answers = claim_stdout()
    asked = json.loads(sys.stdin.readline())
    is_closed = threading.Event()
    threading.Thread(target=_end_with_stdin, args=(is_closed,), daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt), heard():
        for number, options in enumerate(asked):

            def tell(event: Mapping[str, Any], number: int = number) -> None:
                with contextlib.suppress(BrokenPipeError):  # the driver has gone; SIGTERM is on its way
                    send(answers, json.dumps({"run": number, "event": event}, default=str))

            if not _run(options, tell) or is_closed.is_set():  # a signal that came while results were stored is lost
                return


def _run(options: Mapping[str, Any], tell: Callable[[Mapping[str, Any]], None]) -> bool:
    """One run; False where no other should follow."""
    from .tuner import tune

    try:
        tune(settings(**options), tell)
    except StridesmithError as error:
        tell(error.event())
        return not isinstance(error, Interrupted)
    except Exception as error:
        tell(InternalError(f"internal error: {type(error).__name__}: {str(error)[:300]}").event())
    return True


def _end_with_stdin(is_closed: threading.Event) -> None:
    sys.stdin.read()
    is_closed.set()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
    leave(0)
