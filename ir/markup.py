"""Programs and tables as HTML, for notebooks: what `_repr_html_` of public objects gives.

Colours are the notebook's own where it has any for code, and are readable on light and on dark ground.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

LONGEST = 400
"""Lines of a program that are shown."""
COLOURS = {"loop": "#0b7285", "block": "#7048e8", "type": "#2b8a3e", "text": "#a05a00", "note": "#868e96"}
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
        found.append(f'<span style="color:{COLOURS[match.lastgroup]}">{escape(match[0])}</span>')
    found.append(escape("".join(plain) + more))
    return f'<pre style="line-height:1.3;font-family:monospace">{"".join(found)}</pre>'


def table(title: str, headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Rows under headings, with a title above them."""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    above = f"<thead><tr>{head}</tr></thead>" if any(headings) else ""
    return f"<div><b>{escape(title)}</b><table>{above}<tbody>{body}</tbody></table></div>"
