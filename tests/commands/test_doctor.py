"""`tune doctor` ends with a finding for whatever is wrong, also with a check itself."""

from __future__ import annotations

import json

import pytest

from stridesmith.cli import main


@pytest.mark.parametrize(("name", "db"), [("database", "postgresql://db:54x2/k"), ("database", "/dev")])
def test_a_check_that_fails_has_a_name(name: str, db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A database that cannot be used is a problem of that name; what else there is to check is checked."""
    assert main(["doctor", "--db", db, "--format", "json"]) == 4
    found = {check["name"]: check for check in map(json.loads, capsys.readouterr().out.splitlines())}
    assert found[name]["state"] == "problem" and {"system", "numpy", "temporary folder"} < set(found)
