"""What a worker process can be asked to do: a JSON object in, a JSON object out."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from . import selftest
from .process import Reply, failure

Job = dict[str, Any]


def run(job: Job) -> Reply:
    """Do `job`; every failure that is not a crash is a value."""
    name = job.get("job")
    if name not in JOBS:
        return failure("refused", f"unknown job `{name}`; there are {', '.join(JOBS)}")
    return JOBS[name](job)


def ping(job: Job) -> Reply:
    return {"status": "ok", "pid": os.getpid()}


JOBS: dict[str, Callable[[Job], Reply]] = {"ping": ping, "selftest": selftest.run}
