"""What all tests share."""

from __future__ import annotations

import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings
from round_trip import Sample, check, watched
from scale import SCALE, scaled

# The same examples in every run, so that what passes once passes again; other scales draw fresh ones.  A machine may be
# loaded, so that no example has a deadline.
settings.register_profile("fixed", derandomize=SCALE == 1, deadline=None)
settings.load_profile("fixed")


HERE = Path(__file__).resolve().parent
LISTED = [line for line in (HERE / "quick.txt").read_text().splitlines() if line and not line.startswith("#")]
QUICK_FILES = {HERE / line.partition("::")[0] for line in LISTED}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With ``-m quick`` other files are not even read, which would take longer than the tests of these."""
    if config.option.markexpr == "quick" and collection_path.suffix == ".py":
        return collection_path not in QUICK_FILES
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that `quick.txt` lists."""
    for item in items:
        name = f"{item.path.relative_to(HERE)}::{item.name.partition('[')[0]}" if item.path.is_relative_to(HERE) else ""
        if name in LISTED or name.partition("::")[0] in LISTED:
            item.add_marker(pytest.mark.quick)


@pytest.fixture(autouse=True, scope="session")
def _interruptible() -> None:
    """Background jobs of a shell start with SIGINT ignored, which would hide what the tests of Ctrl-C look for."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _own_kernels(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Kernels of models are compiled by the tests that ask for them first, and models read, not by earlier runs."""
    from stridesmith.models import unmeasured
    from stridesmith.models.ranges import stored
    from stridesmith.search.workers import kernel_cache

    kernel_cache.CACHE.name = str(tmp_path_factory.mktemp("kernels"))
    stored.CACHE.name = str(tmp_path_factory.mktemp("networks"))
    unmeasured.CACHE.name = str(tmp_path_factory.mktemp("layouts"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Programs that a passing test made survive printing and parsing; of many a sample is checked."""
    seen = Sample()
    with watched(seen):
        result = yield
    for func in seen.spread(scaled(8)):
        check(func)
    return result
