"""Where output goes: people read stdout through rich or as plain lines, programs read JSON lines."""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO

from ..figures import number
from ..files import legible

if TYPE_CHECKING:
    from rich.console import Console

FORMATS = ("rich", "plain", "json")
UNLIMITED = 10_000  # characters, to ask what a table would need
PLAIN_WIDTH = 120  # characters, where there is no terminal
HALF_WRITTEN = re.compile(r"\\udc([89a-f][0-9a-f])")
"""How `repr` writes a byte of a name that is not UTF-8."""
HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters, and halves of characters, which no terminal shows."""


@dataclass(frozen=True)
class Output:
    """One of the three formats, on a stream, by default stdout.  Text from outside is never read as markup."""

    format: str
    stream: TextIO | None = None

    @staticmethod
    def of(format: str | None) -> Output:
        """The asked format, else rich in a terminal and plain without one."""
        return Output(format or ("rich" if sys.stdout.isatty() else "plain"))

    @property
    def is_json(self) -> bool:
        return self.format == "json"

    @cached_property
    def console(self) -> Console:
        """stdout for people; without a terminal it has neither colours nor a narrow width."""
        from rich.console import Console

        if self.format == "rich":
            return Console(file=self.stream, highlight=False, markup=False, emoji=False)
        return Console(
            file=self.stream, highlight=False, markup=False, emoji=False, color_system=None, width=PLAIN_WIDTH,
            soft_wrap=True, force_terminal=False,
        )  # fmt: skip

    def event(self, event: dict[str, Any]) -> None:
        """One JSON line; nothing in the other formats."""
        if self.is_json:
            print(json_line(event), flush=True)

    def line(self, text: str = "") -> None:
        """A line for people; nothing in JSON."""
        if not self.is_json:
            self.console.print(printable(text), soft_wrap=True)

    def notes(self, notes: Sequence[str]) -> None:
        """What stands beside a result: events in JSON, lines of stderr for people, whose stdout may go to a file."""
        for note in notes:
            self.event({"event": "note", "message": note})
            if not self.is_json:
                print(on_terminal(f"note: {printable(note)}", sys.stderr), file=sys.stderr)

    def prose(self, text: str) -> None:
        """A sentence for people, broken between words in a terminal; nothing in JSON."""
        if self.is_json:
            return
        told = printable(text)
        if self.format == "rich":
            self.console.print(roomy(told, self.width))
        else:
            self.console.print(told, soft_wrap=True)

    def code(self, text: str, language: str) -> None:
        """Program text: coloured in a terminal, exactly as it is otherwise; nothing in JSON."""
        if self.format == "rich" and self.console.is_terminal:
            from rich.syntax import Syntax

            wrapped = folded(printable(text), self.width)
            self.console.print(Syntax(wrapped, language, background_color="default", word_wrap=True))
        elif not self.is_json:
            sys.stdout.write(printable(text).rstrip("\n") + "\n")

    def section(self, title: str) -> None:
        """A heading; nothing in JSON."""
        if self.is_json:
            return
        self.line()
        if self.format == "rich":
            from rich.rule import Rule

            self.console.print(Rule(printable(title), align="left", style="dim"))
        else:
            self.line(f"{title}\n{'-' * len(title)}")

    def listing(self, lines: Sequence[tuple[str, str]]) -> None:
        """Lines as they are, each in a style of rich's where there are colours."""
        if self.is_json:
            return
        from rich.text import Text

        for style, text in lines:
            self.console.print(Text(printable(text), style=style if self.format == "rich" else ""), soft_wrap=True)

    def working(self, text: str) -> AbstractContextManager[object]:
        """Says what is going on while it goes on, where there is a terminal to say it."""
        if self.format == "rich" and self.console.is_terminal:
            return self.console.status(printable(text))
        return nullcontext()

    @property
    def draws(self) -> bool:
        """Whether pictures made of characters can be shown."""
        return self.format == "rich" and (self.console.encoding or "").lower().startswith("utf")

    @property
    def width(self) -> int:
        """Columns of the terminal."""
        return self.console.width

    def bar(self, share: float, width: int) -> str:
        """A bar of `share` of `width`; empty where nothing is drawn."""
        return "\u2588" * round(share * width) if self.draws else ""

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Rows under headings, if there are any; columns of numbers are right-aligned.

        A terminal in which the longest words of all columns have no room side by side gets a line for each cell.
        """
        if self.is_json:
            return
        from rich import box
        from rich.cells import cell_len
        from rich.measure import Measurement
        from rich.table import Table
        from rich.text import Text

        table = Table(
            title=title or None, title_justify="left", box=box.SIMPLE_HEAD if self.format == "rich" else None,
            pad_edge=False, padding=(0, 2, 0, 0), show_header=any(columns),
        )  # fmt: skip
        texts = [[printable(cell(item)) for item in row] for row in rows]
        held = [[column, *entries] for column, *entries in zip(columns, *texts, strict=True)]
        least = [max(cell_len(word) for text in column for word in (*text.split(), "")) for column in held]
        most = [max(cell_len(line) for text in column for line in (*text.splitlines(), "")) for column in held]
        for position, column in enumerate(columns):
            numeric = bool(rows) and all(isinstance(row[position], (int, float)) for row in rows)
            table.add_column(Text(column), justify="right" if numeric else "left", overflow="fold")
        for row in texts:
            table.add_row(*map(Text, row))
        unlimited = self.console.options.update(width=UNLIMITED)
        spare = self.width - Measurement.get(self.console, unlimited, table).minimum
        if spare >= 0:
            for drawn, width in zip(table.columns, shared(least, most, spare), strict=True):
                drawn.width = width
            self.console.print(table)
            return
        block = Table(title=title or None, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0),
                      show_header=False)  # fmt: skip
        for place, row in enumerate(texts):
            if place:
                block.add_row("", "")
            for column, text in zip(columns, row, strict=True):
                if text:
                    longest = self.width - max(map(len, columns)) - 2
                    block.add_row(Text(column, style="dim"), Text(roomy(text, longest)))
        self.console.print(block)


def on_terminal(text: str, stream: TextIO) -> str:
    """A sentence as it is written to a stream: broken between words where that is a terminal, else as it is."""
    if stream is None or not stream.isatty():
        return text
    width = max(20, shutil.get_terminal_size().columns)
    return "\n".join(
        textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False) for line in text.split("\n")
    )


def folded(text: str, width: int) -> str:
    """Lines longer than `width` go on below, indented further than they began, from a space on."""
    lines = []
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()) + 8)
        fits = len(line) <= width or len(indent) > width // 2
        parts = [line] if fits else textwrap.wrap(
            line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False,
            drop_whitespace=True, replace_whitespace=False,
        )  # fmt: skip
        lines += parts
    return "\n".join(lines)


def shared(least: Sequence[int], most: Sequence[int], spare: int) -> list[int]:
    """Widths from `least` to `most`, in sum at most `spare` more than the least: who lacks little gets it first."""
    widths = list(least)
    lacking = sorted(range(len(widths)), key=lambda place: most[place] - least[place])
    for place, left in zip(lacking, range(len(widths), 0, -1), strict=True):
        widths[place] += min(most[place] - least[place], spare // left)
        spare -= widths[place] - least[place]
    return widths


def roomy(text: str, width: int) -> str:
    """Words that are longer than `width`, such as a workload with its shape, may be broken after their commas."""
    return " ".join(word if len(word) <= width else word.replace(",", ", ") for word in text.split(" "))


def cell(value: object) -> str:
    """A value as it stands in a table."""
    if isinstance(value, float):
        return number(value)
    return "" if value is None else str(value)


def printable(text: str) -> str:
    """`text` without control characters other than newline and tab, so that no name can move the cursor.

    A byte of a name that is not UTF-8, which Python has as half a character, is shown as ``\\xff``, also where `repr`
    has written it.
    """
    return HIDDEN.sub("?", legible(HALF_WRITTEN.sub(r"\\x\1", text)))


def json_line(event: dict[str, Any]) -> str:
    """One line of strict JSON: numbers that JSON lacks become null."""
    return json.dumps(_finite(event), allow_nan=False, default=str)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return value
