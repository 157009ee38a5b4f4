"""What can become of a candidate: ``ok``, or a kind of failure with an optional detail, as in ``crash:SIGSEGV``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...errors import BadRecord, StridesmithError, TemporaryError, WrongResult

OK = "ok"
TOO_LATE = "out_of_time"
DEVICE_LOST = "infrastructure:device"
"""The device did not answer any more, whoever's fault that was."""


@dataclass(frozen=True)
class Failure:
    """What follows from a kind of failure.

    `teaches`: it is the candidate's own fault, so that the cost model learns from it.  `disqualifies`: a measurement
    that was stored before does not count any longer.  `lasts`: the same code fails in the same way again.  `of_driver`:
    a driver's compiler or runtime may be what fails, so that another version of it may not.  `error` is what a command
    ends with that needed the candidate.
    """

    error: type[StridesmithError]
    teaches: bool = True
    disqualifies: bool = True
    lasts: bool = False
    of_driver: bool = True


KINDS: dict[str, Failure] = {
    "refused": Failure(BadRecord, of_driver=False),
    "build_error": Failure(BadRecord),
    "build_timeout": Failure(TemporaryError, disqualifies=False),
    "run_timeout": Failure(TemporaryError, disqualifies=False, lasts=True),
    "crash": Failure(WrongResult),
    "oom": Failure(TemporaryError),
    "wrong": Failure(WrongResult, lasts=True),
    "infrastructure": Failure(StridesmithError, teaches=False, disqualifies=False, of_driver=False),
    TOO_LATE: Failure(TemporaryError, teaches=False, disqualifies=False, of_driver=False),
    "no_reference": Failure(StridesmithError, teaches=False, disqualifies=False, of_driver=False),
}
FAILURES = tuple(KINDS)
_STATUS = re.compile(rf"(ok|{'|'.join(FAILURES)})(:[A-Za-z0-9_+-]{{1,24}})?")


def is_status(text: str) -> bool:
    """Whether `text` is ``ok`` or one of `FAILURES`, optionally with ``:detail``."""
    return _STATUS.fullmatch(text) is not None


def failure_kind(status: str) -> str:
    """``crash:SIGSEGV`` -> ``crash``; every other status is its own kind."""
    return status.partition(":")[0]


def tells_nothing(kind: str | None) -> bool:
    """Whether a kind of failure says nothing of the candidate; None is no failure.

    Something was lost, the run's time was over, or nothing was there to compare with.
    """
    return kind is not None and not KINDS[kind].teaches


def error_of(subject: str, done: str, status: str, message: str, note: str = "") -> StridesmithError:
    """What a command ends with whose `subject` failed when it was to be `done`; `note` is appended."""
    error = KINDS[failure_kind(status)].error
    if error is WrongResult:
        return WrongResult(f"{subject} does not hold: {status}: {message}{note}")
    if error is BadRecord:
        return BadRecord(f"{subject} is refused: {message}{note}")
    busy = "; the machine may be busy" if error is TemporaryError else ""
    return error(f"{subject} could not be {done}: {status}: {message}{busy}")
