"""`stridesmith doctor` ends with a finding for whatever is wrong, also with a check itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stridesmith.cli import main
from stridesmith.commands import names


@pytest.mark.parametrize(("name", "db"), [("database", "postgresql://db:54x2/k"), ("database", "/dev")])
def test_a_check_that_fails_has_a_name(name: str, db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A database that cannot be used is a problem of that name; what else there is to check is checked."""
    assert main(["doctor", "--db", db, "--format", "json"]) == 4
    found = {check["name"]: check for check in map(json.loads, capsys.readouterr().out.splitlines())}
    assert found[name]["state"] == "problem" and {"system", "numpy", "temporary folder"} < set(found)


@pytest.mark.parametrize("taken", [True, False])
def test_a_name_that_another_package_has_taken_is_mended(
    taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`tune` of Ray's wheel, or none at all: a warning with what to do, and `--fix` makes it the same command."""
    ours = "#!/usr/bin/python3\nfrom stridesmith.__main__ import main\nmain()\n"
    (tmp_path / "stridesmith").write_text(ours)
    (tmp_path / "stridesmith").chmod(0o755)
    if taken:
        rays = "#!/home/you/stridesmith/.venv/bin/python\nfrom ray.tune.cli.scripts import cli\ncli()\n"
        (tmp_path / "tune").write_text(rays)
    monkeypatch.setattr(names.sysconfig, "get_path", lambda _: str(tmp_path))

    def found(*more: str) -> dict[str, str]:
        main(["doctor", "--format", "json", *more])
        checks = map(json.loads, capsys.readouterr().out.splitlines())
        return next(check for check in checks if check["name"] == "command")

    before = found()
    assert before["state"] == "warning" and "stridesmith doctor --fix" in before["advice"]
    assert ("is that of " if taken else "is missing") in before["text"]
    assert found("--fix")["state"] == found()["state"] == "ok"
    assert (tmp_path / "tune").read_text() == ours and (tmp_path / "tune").stat().st_mode & 0o111
    assert {path.name for path in tmp_path.iterdir()} == {"stridesmith", "tune"}
