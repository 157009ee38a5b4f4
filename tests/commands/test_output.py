"""What people read is never broken inside of a word."""

from __future__ import annotations

import io

import pytest

from stridesmith.commands import output
from stridesmith.commands.output import Output, on_terminal, printable

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


@pytest.mark.parametrize("style", ["rich", "plain"])
def test_a_sentence_in_a_table_gives_its_room_to_words(style: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is broken over lines before a word of another column is."""
    monkeypatch.setenv("COLUMNS", "124")
    sentence = (
        "unclear, use `--race` for an interval of both in turns on a machine with nothing else to do at that time"
    )
    stream = io.StringIO()
    Output(style, stream).table("", (*COLUMNS, "B is"), [(*ROW, sentence)])
    text = stream.getvalue()
    assert all(text.count(word) == 1 for cell in ROW for word in cell.split(" ")) and "workload  " in text
    assert sentence not in text and all(word in text.split() for word in sentence.split())
    assert all(len(line) <= 124 for line in text.splitlines())


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


def test_a_word_that_is_wider_than_the_terminal_is_broken_after_its_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    """A workload with its shape, in a sentence and beside its heading; a file gets it as it is."""
    monkeypatch.setenv("COLUMNS", "60")
    workload = "conv2d(n=1,ci=64,h=14,w=14,co=64,kh=3,kw=3,stride=1,pad=1,dilation=1,groups=1,layout=nchw)"
    for show in (
        lambda out: out.prose(f"tuning {workload} float32 for cpu"),
        lambda out: out.table("", ("workload", "device"), [(workload, "cpu")]),
    ):
        stream = io.StringIO()
        show(Output("rich", stream))
        lines = stream.getvalue().splitlines()
        assert "".join("".join(lines).split()).find(workload) >= 0 and all(len(line) <= 60 for line in lines)
        assert all(any(part in line for line in lines) for part in workload.split(","))
    plain = io.StringIO()
    Output("plain", plain).prose(f"tuning {workload} float32 for cpu")
    assert plain.getvalue() == f"tuning {workload} float32 for cpu\n"


def test_bytes_of_a_name_that_are_no_text_are_shown_as_bytes() -> None:
    """Python has them as halves of characters, which no terminal shows and `repr` writes as \\udcff."""
    name = b"caf\xe9.py".decode("utf-8", "surrogateescape")
    assert printable(name) == r"caf\xe9.py"
    assert printable(f"cannot read {name!r}") == r"cannot read 'caf\xe9.py'"
    assert printable("\ud800\x1b[1m\t\u00e9") == "??[1m\t\u00e9"
