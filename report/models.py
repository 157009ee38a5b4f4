"""What a report says of a whole network: its operators by time, how the tensors between them lie, what limits them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..figures import latency, percent, scaled
from ..ir.layout.layout import Layout
from ..models.edges import arguments_of
from ..models.network import Operator
from ..models.run.report import copied_share
from .layouts import Picture, picture_of_argument

if TYPE_CHECKING:
    from ..backends.artifact import Argument
    from ..models.run.model import Model
    from ..models.run.report import Row

MOST_PICTURES = 24  # a choice, for the size of the page
MOST_ROWS = 500
"""Operators in the table, the slowest; a row takes about a kilobyte of the page."""
REASONS = {
    "fallback": "no program of ours does what it does, so that the reference implementation of ONNX runs it.",
    "estimated": "it has not been tuned: the kernel is what the estimate likes best. To tune the model: `{command}`",
    "view": "its tensors lie in one another, so that nothing is to be done.",
    "untuned": "nothing faster than the program as it was written is known. To tune the model for longer: `{command}`",
}


@dataclass(frozen=True)
class ModelReport:
    """A compiled model, measured as a whole and by operator; `command` is what tunes it."""

    model: Model
    rows: Sequence[Row]
    measured_us: float
    command: str

    def slowest_records(self, count: int) -> dict[str, int]:
        """Records of the kernels that take most time in all, each with how often it is called."""
        spent: dict[str, float] = {}
        calls: dict[str, int] = {}
        for row in self.rows:
            if row.record:
                spent[row.record] = spent.get(row.record, 0.0) + row.latency_us
                calls[row.record] = calls.get(row.record, 0) + 1
        chosen = sorted(spent, key=lambda record: -spent[record])[:count]
        return {record: calls[record] for record in chosen}

    def shown(self, entries: Mapping[str, Any]) -> dict[str, Any]:
        """What the page's template takes; `entries` are tasks of the page by record."""
        ordered = sorted(self.rows, key=lambda row: -row.latency_us)
        rows = [self._row(row, entries) for row in ordered[:MOST_ROWS]]
        plan = self.model.plan
        foreign = sorted({node.op for node in self.model.network.foreign})
        summary = [
            f"{len(self.rows)} operators on {self.model.target.name}, {self.model.target.threads} threads",
            f"{latency(self.measured_us)} for a call, {latency(sum(row.latency_us for row in self.rows))} in operators",
            f"{percent(copied_share(self.rows))} of the time moves data without computing",
            f"{scaled(plan.blocks[0], 'B')} for tensors, {scaled(plan.blocks[1], 'B')} for constants",
            f"run by the reference implementation: {', '.join(foreign)}" if foreign else "nothing falls back",
        ]
        if rest := ordered[MOST_ROWS:]:
            spent = latency(sum(row.latency_us for row in rest))
            summary.append(f"the {len(rest)} fastest operators, {spent} in all, are left out of the table")
        return {
            "name": self.model.network.name, "measured_us": self.measured_us, "rows": rows,
            "slowest": rows[0] if rows else None, "summary": "; ".join(summary) + ".",
            "pictures": list(self._pictures()),
        }  # fmt: skip

    def _row(self, row: Row, entries: Mapping[str, Any]) -> dict[str, Any]:
        edges = [
            {"tensor": name, "text": str(argument.layout), "pads": argument.pads}
            for name, argument in self._edges(row.operator)
            if not argument.layout.is_plain
        ]
        reason = "it moves data without computing." if row.only_moves else REASONS.get(row.origin, "")
        return {
            "operator": row.operator, "program": row.program, "latency_us": row.latency_us, "share": row.share,
            "roofline": row.roofline, "origin": row.origin, "entry": entries.get(row.record), "edges": edges,
            "padded": sum(edge["pads"] for edge in edges),
            "reason": reason.format(command=self.command),
        }  # fmt: skip

    def _edges(self, operator: str) -> Iterator[tuple[str, Argument]]:
        """The tensors between operators that one reads or writes, by name, each with its layout in the kernel."""
        network = self.model.network
        node = next(node for node in network.nodes if node.name == operator)
        if isinstance(node, Operator) and operator in self.model.kernels:
            yield from ((n, a) for n, a in arguments_of(node) if n not in network.constants)

    def _pictures(self) -> Iterator[Picture]:
        """A picture of each layout that tensors between operators have, those of the slowest operators first."""
        drawn: set[Layout] = set()
        for row in sorted(self.rows, key=lambda row: -row.latency_us):
            for name, argument in self._edges(row.operator):
                if argument.layout in drawn or len(drawn) >= MOST_PICTURES:
                    continue
                picture = picture_of_argument(argument, name, f"of {row.operator}")
                if picture is not None:
                    drawn.add(argument.layout)
                    yield picture
