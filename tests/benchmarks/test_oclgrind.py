"""A few random candidates under oclgrind give no report, and every spoilt program gives one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import oclgrind
import pytest

HERE = Path(oclgrind.__file__).resolve()


@pytest.mark.skipif(oclgrind.library() is None, reason="oclgrind is not installed")
@pytest.mark.timeout(600)
def test_candidates_and_mutants_under_oclgrind(tmp_path: Path) -> None:
    """Twelve candidates run as they should, and no mutant goes unseen."""
    out = tmp_path / "found.jsonl"
    command = [sys.executable, str(HERE), "--count", "12", "--seed", "3", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    count = len(oclgrind.MUTANTS)
    assert count >= 10 and f"{count} of {count} mutants caught" in done.stdout
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(lines) == 12 and sum(line["status"] == "ok" for line in lines) >= 10
    assert not any(line.get("reports") for line in lines)


def test_mutants_are_mistakes_in_the_source_that_there_is() -> None:
    """A mutant whose place is gone says so, rather than being a right program."""
    mutant = oclgrind.MUTANTS[0]
    with pytest.raises(ValueError, match="the source has no"):
        mutant.spoil("void f() {}")


def test_reports_are_the_lines_that_are_not_indented(tmp_path: Path) -> None:
    """Addresses are left out, so that equal reports are counted together."""
    log = tmp_path / "log"
    log.write_text("\nInvalid read of size 4 at global memory address 0x30\n\tKernel: f\n\t\n\nWork-group divergence\n")
    assert oclgrind.reports(log) == ["Invalid read of size 4 at global", "Work-group divergence"]
    assert oclgrind.reports(tmp_path / "none") == []
