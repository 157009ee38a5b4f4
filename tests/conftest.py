"""What all tests share."""

from __future__ import annotations

import signal
from collections.abc import Generator

import pytest
from hypothesis import settings
from round_trip import Sample, check, watched
from scale import SCALE, scaled

# The same examples in every run, so that what passes once passes again; other scales draw fresh ones.
settings.register_profile("fixed", derandomize=True)
if SCALE == 1:
    settings.load_profile("fixed")


@pytest.fixture(autouse=True, scope="session")
def _interruptible() -> None:
    """Background jobs of a shell start with SIGINT ignored, which would hide what the tests of Ctrl-C look for."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _own_kernels(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Kernels of models are compiled by the tests that ask for them first, not by earlier runs."""
    from stridesmith.search.workers.kernel_cache import CACHE

    CACHE.name = str(tmp_path_factory.mktemp("kernels"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Programs that a passing test made survive printing and parsing; of many a sample is checked."""
    seen = Sample()
    with watched(seen):
        result = yield
    for func in seen.spread(scaled(8)):
        check(func)
    return result
