"""A record survives every text form, and nothing hostile becomes one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from record_makers import TARGET, make_record

from stridesmith.errors import BadRecord, StorageError
from stridesmith.search.records.log import read_log, write_log
from stridesmith.search.records.record import Record, from_line, printable, to_line, validate


@pytest.mark.parametrize("latency", [12.5, None])
def test_a_record_is_its_line(latency: float | None) -> None:
    """Parsing a record's line gives an equal record, failed or not."""
    record = make_record(latency)
    assert from_line(to_line(record)) == record
    assert "\n" not in to_line(record)


def test_a_program_of_many_sums_has_a_record() -> None:
    """The name of a sketch has a part for each of them."""
    record = make_record(sketch=";".join(f"b{number}:vec=s2" for number in range(60)))
    assert from_line(to_line(record)) == record


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("latency_us", -1.0, "greater than 0"),
        ("latency_us", 0.0, "greater than 0"),
        ("latency_us", 1e13, "less than"),
        ("samples", [1e-6, -1e-6], "greater than 0"),
        ("samples", [], "exactly when its status is ok"),
        ("samples", [1e-6] * 10_001, "at most 10000"),
        ("latency_us", 0.001, "the median of the samples"),
        ("status", "great", "must be ok or one of"),
        ("status", "wrong", "exactly when its status is ok"),
        ("status", "crash:<script>", "must be ok or one of"),
        ("max_abs_error", -1.0, "greater than or equal to 0"),
        ("workload", "x\x1b[31m", "control character"),
        ("sketch", "x\x00", "control character"),
        ("sketch", "x" * 20_001, "at most 20000 characters"),
        ("params", {"m": 2**80}, "less than or equal"),
        ("params", {"m": "\x07"}, "control character"),
        ("interface", {"a": "mine"}, "fixed"),
        ("interface", {"a=free,b": "fixed"}, "no name of an argument"),
        ("interface", {"1a": "fixed"}, "no name of an argument"),
        ("interface", {"a.": "fixed"}, "no name of an argument"),
        ("interface", {"a" * 101: "fixed"}, "at most 100 characters"),
        ("target", {"threads": 2, "shell": "rm"}, "unknown target facts"),
        ("target", {"threads": "2"}, "threads is '2', of type str, not int"),
        ("target", {"threads": True}, "threads is True, of type bool, not int"),
        ("target", {"images": 1}, "images is 1, of type int, not bool"),
        ("target", {"name": 7}, "name is 7, of type int, not str"),
        ("target", {"l1_bytes": -1}, "l1_bytes is -1, which is negative"),
        ("target", {"l1_bytes": 2**62}, "which is negative or too large"),
        ("target", {"subgroups": "8 many"}, "subgroups are '8 many'"),
        ("target", {"name": "x" * 201}, "name has 201 characters"),
        ("target", {"features": "x" * 20_001}, "features has 20001 characters"),
        ("target", {"vendor": "x" * 200, "name": "x" * 200, "isa": "x" * 200}, "the key of the target has"),
        ("target", {"name": "\ud800"}, "control character"),
        ("message", "\ud800", "valid string"),
        ("script", "\udfff", "valid string"),
        ("params", {"m": "\udfff"}, "valid string|control character"),
        ("id", "../../etc/passwd", "pattern"),
        ("choice", [-1], "greater than or equal"),
        ("trace", [["x", {"a": "y" * 30_000}]], "longer than"),
        ("schema_version", 2, "Input should be 1"),
        ("verified", "yes", "valid boolean"),
        ("surprise", 1, "Extra inputs"),
    ],
)
def test_a_bad_field_is_named(field: str, value: object, rule: str) -> None:
    """Each rule refuses its own violation, and the sentence says which."""
    with pytest.raises(BadRecord, match=rule):
        validate(make_record().model_dump() | {field: value})


@pytest.mark.parametrize(
    "line",
    [
        "",
        "null",
        "[]",
        "{",
        '"text"',
        "[" * 100_000,
        '{"a":' * 50_000,
        json.dumps({"trace": 1}),
        to_line(make_record()).replace("20.0", "NaN"),
        to_line(make_record()).replace("20.0", "Infinity"),
        to_line(make_record()).replace("20.0", "1e999"),
        to_line(make_record()).replace('"trial":4', '"trial":' + "9" * 5000),
        "cos\nsystem\n(S'true'\ntR.",
        "__import__('os').system('true')",
        "x" * (5 * 2**20),
    ],
    ids=range(15),
)
def test_a_hostile_line_is_refused_quickly(line: str) -> None:
    """What is no record is refused with a reason within a tenth of a second of the processor's time."""
    start = time.process_time()
    with pytest.raises(BadRecord):
        from_line(line)
    assert time.process_time() - start < 0.1


def test_arguments_have_the_names_that_the_language_allows() -> None:
    """Any identifier is the name of an argument, as in a script, and so is one with dots."""
    record = make_record(interface={"größe": "fixed", "_x1": "free", "a.b": "constant", "y" * 100: "fixed"})
    assert from_line(to_line(record)) == record


def test_a_record_of_a_target_with_strange_facts_is_refused_alone(tmp_path) -> None:
    """Its neighbours in a log are read."""
    good = make_record(target=TARGET.to_json() | {"features": "+avx2," * 1000, "versions": "v" * 1000})
    path = tmp_path / "log.jsonl"
    write_log([good, good], path)
    first, second = path.read_text().splitlines()
    strange = first.replace('"threads":2', '"threads":"2"')
    half = first.replace("Test CPU", "\\ud800")
    path.write_text("\n".join([first, strange, half, second]))
    assert [type(item) for item in read_log(path)] == [Record, BadRecord, BadRecord, Record]


def test_nested_traces_are_bounded() -> None:
    """A trace of forty levels and more is refused."""
    deep: list[object] = []
    for _ in range(60):
        deep = [deep]
    with pytest.raises(BadRecord, match="nested"):
        validate(make_record().model_dump() | {"trace": deep})


def test_a_log_with_bad_lines_keeps_the_good_ones(tmp_path) -> None:
    """A torn or hostile line of a log is reported with its number, and its neighbours are read."""
    records = [make_record(float(n)) for n in range(1, 4)]
    path = tmp_path / "log.jsonl"
    assert write_log(records, path) == 3
    lines = path.read_text().splitlines()
    path.write_bytes("\n".join([lines[0], lines[1][:50], "\udcff", lines[2]]).encode("utf-8", "surrogateescape"))
    found = list(read_log(path))
    assert [r for r in found if not isinstance(r, BadRecord)] == [records[0], records[2]]
    assert "line 2" in str(found[1])
    assert "line 3" in str(found[2])


def test_a_log_cut_anywhere_keeps_what_stands_before(tmp_path) -> None:
    """Cut at every 97th byte, a log gives every record whose line is whole."""
    records = [make_record(float(n)) for n in range(1, 4)]
    path = tmp_path / "log.jsonl"
    write_log(records, path)
    data = path.read_bytes()
    cut = tmp_path / "cut.jsonl"
    for size in range(0, len(data), 97):
        cut.write_bytes(data[:size])
        whole = data[:size].count(b"\n")
        good = [r for r in read_log(cut) if not isinstance(r, BadRecord)]
        assert good[:whole] == records[:whole]


def test_unreadable_and_unwritable_logs_are_storage_errors(tmp_path) -> None:
    """A log that is not there, or whose folder is not, is exit 74 with its name."""
    with pytest.raises(StorageError, match=r"none\.jsonl"):
        list(read_log(tmp_path / "none.jsonl"))
    with pytest.raises(StorageError, match="cannot write"):
        write_log([make_record()], tmp_path / "none" / "log.jsonl")


def test_a_log_that_cannot_be_written_leaves_nothing_and_the_old_one(tmp_path) -> None:
    """Where the records or the room end early, what was at the path is there as it was, alone."""
    path = tmp_path / "log.jsonl"
    write_log([make_record()], path)
    before = path.read_bytes()

    def broken() -> Iterator[Record]:
        yield make_record()
        raise OSError(28, "No space left on device")

    with pytest.raises(StorageError, match="No space left"):
        write_log(broken(), path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["log.jsonl"]


def test_what_is_no_file_is_written_to_and_stays_what_it_is(tmp_path) -> None:
    """A pipe, as a device, has no other file put in its place; a full one is a storage error."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(pipe.read_text)
        assert write_log([make_record()], pipe) == 1
        assert len(read.result().splitlines()) == 1 and pipe.is_fifo()
    with pytest.raises(StorageError, match="/dev/full"):
        write_log([make_record()], Path("/dev/full"))
    assert Path("/dev/full").is_char_device()


def test_messages_are_made_printable() -> None:
    """Escape sequences and endless texts do not get into a record's message."""
    assert printable("a\x1b[31mb\n") == "a?[31mb\n"
    assert len(printable("x" * 10_000)) == 2000


def test_reading_a_hostile_record_executes_nothing() -> None:
    """No import, process, compilation or file happens because of a record's content (audit hook)."""
    code = """
import sys
from stridesmith.search.records.record import Record, from_line, to_line
from stridesmith.errors import BadRecord
good = sys.stdin.readline()
from_line(good)
seen = []
watched = ("exec", "compile", "import", "open", "os.system", "subprocess.Popen", "pickle.find_class")
sys.addaudithook(lambda name, args: seen.append((name, args)) if name in watched else None)
for old, new in (('"matmul"', '"__import__(\\'os\\').system(\\'true\\')"'), ('"i"', '"lambda: exec()"')):
    from_line(good.replace(old, new))
print(seen)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], input=to_line(make_record()), capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
