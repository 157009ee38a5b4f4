"""All backends keep the one contract of `backends.kernel`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from backend_contract import CHECKS

from stridesmith.backends.devices import listing
from stridesmith.backends.kernel import BACKENDS
from stridesmith.ir.target import KINDS, Target

DEVICES = [pytest.param(device.target, id=device.selector) for device in listing()]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("target", DEVICES)
def test_a_backend_keeps_the_contract(target: Target, check: Callable[[Target], None]) -> None:
    """Each check of the contract, for each device that is here, with each of its drivers."""
    check(target)


def test_each_kind_of_target_has_a_backend() -> None:
    """What can be asked for by its name can be compiled for."""
    assert tuple(BACKENDS) == KINDS
