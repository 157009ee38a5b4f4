"""Records that an earlier version of the package wrote mean what they did."""

from __future__ import annotations

from pathlib import Path

import pytest

import stridesmith as ss
from stridesmith.backends.data import arguments_of
from stridesmith.backends.kernel import compile_lowered, load_artifact
from stridesmith.backends.lower import lower
from stridesmith.backends.samples import make_samples
from stridesmith.backends.verification import verify
from stridesmith.search.records.record import Record, from_line, to_line
from stridesmith.search.tasks.task import stored_work
from stridesmith.search.workers.programs import candidate

RECORDS = [from_line(line) for line in (Path(__file__).parent / "earlier.jsonl").read_text().splitlines()]
"""The fastest of short runs, one of a network that agreed on layouts among them."""


def test_layouts_are_among_them() -> None:
    """A constant that is packed ahead and tensors between operators of a network."""
    kinds = {kind for record in RECORDS for kind in dict(record.interface).values()}
    assert {"fixed", "constant"} <= kinds and len(kinds) > 2


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.workload)
def test_a_record_is_read_replayed_and_right(record: Record) -> None:
    """Its line is the same, each step of its trace is accepted, and its kernel gives what the program does."""
    assert from_line(to_line(record)) == record
    work = stored_work(record.workload, record.params, record.script)
    func, target = candidate(record.script, record.trace), ss.Target("cpu", threads=2)
    kernel = load_artifact(compile_lowered(lower(func, target), target))
    assert verify(kernel.bind(guard_bytes=64), arguments_of(func), make_samples(work.func, work.reference, 0)).complete
