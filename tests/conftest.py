"""What all tests share."""

from __future__ import annotations

import signal

import pytest


@pytest.fixture(autouse=True, scope="session")
def _interruptible() -> None:
    """Background jobs of a shell start with SIGINT ignored, which would hide what the tests of Ctrl-C look for."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
