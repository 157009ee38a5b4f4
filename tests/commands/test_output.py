"""What people read is never broken inside of a word."""

from __future__ import annotations

import io

import pytest

from stridesmith.commands import output
from stridesmith.commands.output import Output, on_terminal

COLUMNS = ("workload", "device", "record", "latency", "replay")
ROW = ("depthwise_conv2d(c=144,h=56)", "cpu:AMD-EPYC-9R14", "a9c8d8a6e2dc4a7d", "1.129 ms", "--boundary:s1=overcompute")


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_a_table_keeps_its_words_whole(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they have no room side by side, cells stand one below the other, each beside its heading."""
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = io.StringIO()
    Output("rich", stream).table("records", COLUMNS, [ROW, ROW])
    text = stream.getvalue()
    assert all(text.count(word) == 2 for cell in ROW for word in cell.split(" "))
    assert text.count("workload") == (1 if columns == 200 else 2)
    assert all(len(line) <= columns for line in text.splitlines())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_sentence_is_broken_between_words_of_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file gets it as it is."""
    monkeypatch.setattr(output.shutil, "get_terminal_size", lambda: output.shutil.os.terminal_size((40, 24)))
    text = "note: the candidates of the earlier runs are looked at first, " + "x" * 50
    assert on_terminal(text, io.StringIO()) == text
    lines = on_terminal(text, Terminal()).split("\n")
    assert " ".join(lines) == text and all(len(line) <= 40 for line in lines[:-1])
