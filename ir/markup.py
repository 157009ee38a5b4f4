"""Programs and tables as HTML, for notebooks: what `_repr_html_` of public objects gives.

Colours are mixed with that of the text around, so that they are readable on light and on dark ground, whatever tells
the two apart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

LONGEST = 400
"""Lines of a program that are shown."""
COLOURS = {"loop": "#1098ad", "block": "#7950f2", "type": "#37b24d", "text": "#e8860c", "note": "#868e96"}
"""Of the kinds of tokens, each to be mixed with the colour of the text around."""
TOKEN = re.compile(
    r"""(?P<note>\#[^\n]*)|(?P<text>"[^"\n]*"|'[^'\n]*')|(?P<loop>\b(?:for|in|range|if|else|while|let|with|def)\b"""
    r"""|T\.(?:parallel|vectorized|unroll|serial|grid|thread_binding)\b)"""
    r"""|(?P<block>T\.(?:block|sblock|init|reads|writes|axis)\b(?:\.\w+)?)"""
    r"""|(?P<type>\bT\.(?:Buffer|alloc_buffer|match_buffer|prim_func|\w*int\d+|\w*float\d+)\b)|.""",
    re.DOTALL,
)


def program(text: str) -> str:
    """The text of a program or a schedule, coloured."""
    lines = text.rstrip("\n").split("\n")
    more = f"\n... {len(lines) - LONGEST} more lines" if len(lines) > LONGEST else ""
    found, plain = list[str](), list[str]()
    for match in TOKEN.finditer("\n".join(lines[:LONGEST])):
        if match.lastgroup is None:
            plain.append(match[0])
            continue
        found.append(escape("".join(plain)))
        plain.clear()
        colour = f"color-mix(in srgb, currentcolor 50%, {COLOURS[match.lastgroup]})"
        found.append(f'<span style="color:{colour}">{escape(match[0])}</span>')
    found.append(escape("".join(plain) + more))
    return f'<pre style="line-height:1.3;font-family:monospace">{"".join(found)}</pre>'


def table(title: str, headings: Sequence[str], rows: Sequence[Sequence[object]], notes: Sequence[str] = ()) -> str:
    """Rows under headings, with a title above them and notes below."""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    above = f"<thead><tr>{head}</tr></thead>" if any(headings) else ""
    name = f"<b>{escape(title)}</b>" if title else ""
    below = "".join(f"<div>{escape(note)}</div>" for note in notes)
    return f"<div>{name}<table>{above}<tbody>{body}</tbody></table>{below}</div>"
