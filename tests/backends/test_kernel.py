"""All backends keep the one contract of `backends.kernel`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from backend_contract import CHECKS
from opencl_programs import device

from stridesmith.backends.kernel import BACKENDS
from stridesmith.ir.target import KINDS, Target


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", BACKENDS)
def test_a_backend_keeps_the_contract(kind: str, check: Callable[[Target], None]) -> None:
    """Each check of the contract, for each kind of target that is here."""
    target = device() if kind == "opencl" else Target(kind=kind)
    if target is None:
        pytest.skip("no OpenCL device on this machine")
    check(target)


def test_each_kind_of_target_has_a_backend() -> None:
    """What can be asked for by its name can be compiled for."""
    assert tuple(BACKENDS) == KINDS
