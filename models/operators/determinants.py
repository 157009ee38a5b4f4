"""Determinants of small matrices, by their minors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...space.workloads.precision import plain
from ...space.workloads.text import Program, element
from .site import Builder, Built, Site, letters

LARGEST = 4
"""Rows of a matrix, whose determinant has n! products."""


def _det(site: Site) -> Built:
    shape = site.shape()
    if site.dtype() not in ("float32", "float64") or len(shape) < 2 or shape[-1] > LARGEST:
        return None
    lead = letters(len(shape) - 2)
    program = Program("det", plain(site.dtype()))
    program.inputs([("x", shape)])
    program.output("y", shape[:-2])
    at = [f"v{a}" for a in lead]
    text = _minor(at, 0, range(shape[-1]))
    axes = [(a, e, "S") for a, e in zip(lead, shape[:-2], strict=True)]
    program.add("det", axes, f"{element('y', at)} = {text}")
    return [site.operator(program.text(), [0])]


def _minor(at: Sequence[str], row: int, columns: Sequence[int]) -> str:
    """The determinant of the rows from `row` on and the given columns, developed along its first row."""
    text = ""
    for number, column in enumerate(columns):
        rest = [other for other in columns if other != column]
        term = element("x", [*at, str(row), str(column)])
        term += f" * {_minor(at, row + 1, rest)}" if rest else ""
        text = f"{text} {'-' if number % 2 else '+'} {term}" if text else term
    return f"({text})"


BUILDERS: Mapping[tuple[str, str], Builder] = {("", "Det"): _det}
