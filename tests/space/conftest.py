"""What the tests of schedules share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from stridesmith.ir.verify.rules import verify
from stridesmith.space.schedule import Schedule


@pytest.fixture(autouse=True)
def _valid_after_each_primitive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever primitive a test applies, also one of those drawn at random, it leaves a valid program."""
    apply = Schedule.apply

    def checked(self: Schedule, name: str, arguments: Mapping[str, Any], results: Sequence[str] = ()) -> Any:
        made = apply(self, name, arguments, results)
        verify(self.module)
        return made

    monkeypatch.setattr(Schedule, "apply", checked)
