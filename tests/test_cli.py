"""The command as a user meets it: what it prints, its exit codes, and that nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stridesmith.cli import main, spread_pins
from stridesmith.commands.options import duration, share
from stridesmith.errors import UsageError
from stridesmith.invocation import called

SCRIPT_WITHOUT_INIT = """
@T.prim_func
def total(A: T.Buffer((4, 8), "float32"), C: T.Buffer((4,), "float32")):
    for i, k in T.grid(4, 8):
        with T.block("total"):
            vi, vk = T.axis.remap("SR", [i, k])
            C[vi] = C[vi] + A[vi, vk]
"""

SCRIPT = """
from tvm.script import tir as T

@T.prim_func
def scale(x: T.Buffer((64, 32), "float32"), y: T.Buffer((64, 32), "float32")):
    for i, j in T.grid(64, 32):
        with T.block("scale"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = x[vi, vj] * T.float32(2)
"""


@pytest.fixture(autouse=True)
def _own_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRIDESMITH_DB", str(tmp_path / "own.db"))
    monkeypatch.setenv("NO_COLOR", "1")


BAD = [
    (["tune", "--workload", "conv2d"], 2, "leave the second one out"),
    (["--workload", "conv2"], 2, "conv2d"),
    (["--workload", "net.onnx"], 2, "`--model` takes it, and `ss.compile` in Python"),
    (["--workload", "conv2d", "--shape", "cii=3"], 2, "ci"),
    (["--workload", "conv2d", "--shape", "h=1,w=1,k=7,pad=0"], 2, "1"),
    (["--workload", "conv2d", "--shape", "h=-4"], 2, "h"),
    (["--workload", "conv2d", "--shape", "h"], 2, "NAME=VALUE"),
    (["--workload", "conv2d", "--target", "cuda"], 2, "a GPU is reached through its OpenCL driver"),
    (["--workload", "conv2d", "--target", "llvm -mcpu=skylake"], 2, "this machine's processor is `cpu`"),
    (["--workload", "conv2d", "--target", "opncl"], 2, "did you mean 'opencl'?"),
    (["--workload", "conv2d", "--target", "opencl:NoSuchVendor"], 4, "NoSuchVendor"),
    (["--workload", "conv2d", "--interface", "w=constnt"], 2, "constant"),
    (["--workload", "conv2d", "--script", "x.py"], 2, "one of"),
    (["--trials", "8"], 2, "--workload"),
    (["--workload", "conv2d", "--trials", "0"], 2, "trials"),
    (["--workload", "matmul", "--sampler", "nosuch", "--trials", "1"], 2, "nosuch"),
    (["replay", "--workload", "matmul"], 3, "stridesmith --workload matmul"),
    (["replay", "--record", "0123456789abcdef"], 3, "0123456789abcdef"),
    (["replay", "--record", "0123456789abcdef", "--no-winograd"], 2, "--model"),
    (["show", "--record", "0123456789abcdef", "--input", "x=1x3"], 2, "--model"),
    (["best"], 3, "stridesmith --workload"),
    (["repaly"], 2, "replay"),
    (["help", "shwo"], 2, "'show'"),
    (["replay", "net.onnx"], 2, "write `stridesmith replay --model net.onnx`"),
    (["show", "a9c8d8a6"], 2, "write `stridesmith show --record a9c8d8a6`"),
    (["show", "conv2d"], 2, "write `stridesmith show --workload conv2d`"),
    (["best", "matmul", "m=5", "n=7"], 2, "write `stridesmith best --workload matmul --shape m=5,n=7`"),
    (["targets", "cpu"], 2, "`stridesmith targets --help` lists its options"),
    (["m=127", "n=129"], 2, "`stridesmith --workload NAME --shape m=127,n=129`"),
    (["--workload", "matmul", "--shape", "m=127", "n=129"], 2, "`stridesmith --workload matmul --shape m=127,n=129`"),
    (["matmul", "m=5", "k=7"], 2, "`stridesmith --workload matmul --shape m=5,k=7`"),
    (["net.onnx"], 2, "`stridesmith --model net.onnx`"),
    (["my net.onnx"], 2, "`stridesmith --model 'my net.onnx'`"),
    (["mine.py"], 2, "`stridesmith --script mine.py`"),
    (["list.toml"], 2, "`stridesmith --config list.toml`"),
    (["log.jsonl"], 2, "`stridesmith import log.jsonl`"),
    (["resnet50"], 2, "`stridesmith --suite resnet50`"),
    (["opencl:pocl"], 2, "--target opencl:pocl`"),
    (["--workload", "conv2d", "--seconds", "soon"], 2, "as 90, 90s, 1.5m or 1h30m, but got 'soon'"),
    (["--workload", "conv2d", "--stop-at", "90"], 2, "as 0.9 or 90%, but got '90'"),
    (["--workload", "conv2d", "--stop-at", "０.９"], 2, "as 0.9 or 90%, but got '０.９'"),
    (["--workload", "conv2d", "--seconds", "１０s"], 2, "as 90, 90s, 1.5m or 1h30m, but got '１０s'"),
    (["--workload", "conv2d", "--trials", "１０"], 2, "--trials takes a whole number of at least 1, but got '１０'"),
    (["--workload", "conv2d", "--seed", "²"], 2, "--seed takes a whole number"),
    (["--workload", "matmul", "--shape", "m=１２８"], 2, "takes a whole number for m, but got m='１２８'"),
    (["--workload", "matmul", "--shape", "m=１..５"], 2, "a range is written 1..512"),
    (["--workload", "matmul", "--shape", "m=1..8", "--likely", "m=１:0.5"], 2, "--likely takes NAME=NUMBER:SHARE"),
    (["--workload", "matmul", "--target", "opencl:²"], 4, "there is no OpenCL platform `²`"),
    (["--workload", "matmul", "--address", "localhost:²"], 2, "HOST:PORT"),
    (["run", "a.onnx", "--input", "x=４x8"], 2, "--input takes NAME=EXTENTS"),
    (["--workload", "conv2d", "--trials", "1k"], 2, "--trials takes a whole number of at least 1, but got '1k'"),
    (["--workload", "conv2d", "--threads", "0"], 2, "--threads takes a whole number from 1 to 4096, but got '0'"),
    (["--workload", "conv2d", "--format", "jason"], 2, "'plain' or 'json', but got 'jason' (did you mean 'json'?)"),
    (["--workload", "conv2d", "--seconds"], 2, "--seconds needs a value: `--seconds S`"),
    (["--workload", "conv2d", "--workload", "matmul"], 2, "--workload is given twice"),
    (["show", "--target", "cpu", "--target", "opencl"], 2, "--target is given twice"),
    (["show", "--workload", "conv2d", "--space", "--trace"], 2, "--space and --trace choose one thing in two ways"),
    (["--workload", "conv2d", "--", "--dry-run"], 2, "leave the `--` out"),
    (["--workload", "conv2d", "-t", "cpu"], 2, "has no option '-t'; `stridesmith --help` lists its options"),
    (["show", "--worklod", "conv2d"], 2, "(did you mean '--workload'?); `stridesmith show --help`"),
    (["show", "--workload", "conv2d", "--trials", "8"], 2, "one of the search, `stridesmith --trials ...`"),
    (["--trials", "8", "show"], 2, "`show` has no such option"),
    (["--target", "cpu", "show"], 2, "write `stridesmith show --target ...`"),
    (["--model", "net.onnx", "--precision", "--seconds", "2"], 2, "--precision needs a value, but `--seconds` follows"),
    (["--shape", "--seconds", "2", "--workload", "matmul"], 2, "--shape needs a value, but `--seconds` follows"),
    (
        ["--workload", "matmul", "--shape", "m=8", "--shape", "--fresh"],
        2,
        "--shape needs a value, but `--fresh` follows",
    ),
    (["--model", "n.onnx", "--input", "--range=n=1..8"], 2, "--input needs a value, but `--range=n=1..8` follows"),
    (["show", "--model", "n.onnx", "--range", "--target", "cpu"], 2, "--range needs a value, but `--target` follows"),
    (["--pin", "--seconds", "2"], 2, "an option: `--pin DECISION=VALUE ...`"),
    (["--likely", "--trials", "2"], 2, "--likely needs a value, but `--trials` follows"),
    (["--model", "net.onnx", "--range", "n=8"], 2, "--range takes NAME=LEAST..LARGEST"),
    (["--model", "net.onnx", "--ranges", "n=1..8"], 2, "and one of a network in --range"),
    (["run", "a.onnx", "--input", "x=nx4"], 2, "may be says --range of a search, `show` and `replay`"),
    (["--workload", "matmul", "--likely", "m=4:0.5", "--dry-run"], 2, "--likely is about ranges"),
    (["workloads", "matmul", "conv2d"], 2, "takes no word 'conv2d' by itself; `stridesmith workloads --help` lists"),
    (["compare", "a.db"], 2, "needs A and B: `stridesmith compare A B`"),
    (["report"], 2, "needs -o FILE.html: `stridesmith report -o FILE.html`"),
    (["--workload", "conv2d", "--interface", "w"], 2, "or NAME=WORD for each"),
    (["--workload", "conv2d", "--target", "recorded:"], 2, "`recorded:FILE`"),
    (["--script", "/dev/null"], 2, "which is what a program is"),
    (["run", "a.onnx", "--data", "missing.npz"], 2, "cannot read the inputs in missing.npz: No such file"),
    (["run", "a.onnx", "--data", "/dev/null"], 2, "is not an .npz file of plain arrays"),
    (["run", "a.onnx", "--input", "x=/dev/null.npy"], 2, "cannot read the input in /dev/null.npy"),
    (["export", "/no/such/folder/x.jsonl"], 74, "the folder /no/such/folder is not there"),
    (["emit", "--workload", "matmul", "-o", "x.so", "--isa", "pentium"], 2, "there is no target 'cpu-pentium'"),
    (["--workload", "conv2d", "--dtype", "half"], 2, "did you mean 'float16'?"),
    (["best", "--db", "mysql://host/x"], 2, "in files of SQLite or in PostgreSQL, not by mysql"),
    (["--workload", "conv2d", "--no-such-option"], 2, "no-such-option"),
    (["--script", "missing.py"], 2, "missing.py"),
    (["--workload", "matmul", "--address", "hello"], 2, "HOST:PORT"),
    (["--workload", "matmul", "--address", "ray://127.0.0.1:10001"], 2, "ray://"),
]


@pytest.mark.parametrize(("args", "code", "word"), BAD, ids=[" ".join(b[0]) for b in BAD])
def test_bad_input_is_one_clear_paragraph(
    args: list[str], code: int, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every mistake gets its exit code and one paragraph that names the thing; never a traceback."""
    assert main(args) == code
    out, err = capsys.readouterr()
    assert word in err and err.startswith("stridesmith: ") and err.count("\n") == 1
    assert "Traceback" not in out + err


def test_errors_in_json_end_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    """With --format json the last line of stdout is the error event."""
    assert main(["--workload", "conv2", "--format", "json"]) == 2
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (last["event"], last["code"]) == ("error", 2) and "conv2d" in last["message"]


@pytest.mark.parametrize("text", ["hello", "PK\x03\x04", ""])
def test_a_file_that_is_no_database_is_never_touched(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 74 and the file as it was; an empty file counts as a new database."""
    path = tmp_path / "notes.txt"
    path.write_text(text)
    code = main(["best", "--db", str(path)])
    assert code == (74 if text else 3)
    assert not text or path.read_text() == text
    assert str(path.name) in capsys.readouterr().err


def test_a_script_with_a_syntax_error_names_line_and_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The parser's sentence reaches the user with its place."""
    path = tmp_path / "bad.py"
    path.write_text(SCRIPT.replace("T.float32(2)", "T.float32(2"))
    assert main(["--script", str(path), "--target", "cpu"]) == 2
    err = capsys.readouterr().err
    assert "bad.py" in err and "line" in err


def test_the_place_of_a_mistake_stands_below_the_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The line of the program and the mark below it are lines of their own, in JSON they are left out."""
    path = tmp_path / "two.py"
    path.write_text(SCRIPT + SCRIPT.replace("def scale", "def other"))
    assert main(["--script", str(path), "--dry-run", "--format", "json"]) == 2
    found = capsys.readouterr()
    sentence, line, mark = found.err.rstrip("\n").split("\n")
    assert "several functions (`scale`, `other`); choose one with `name=`, or `--name` of the command" in sentence
    assert line.strip().startswith("def other(") and mark.strip() == "^"
    assert json.loads(found.out.splitlines()[-1])["message"].endswith("of the command")


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("1m", 60), ("1.5m", 90), ("1m30s", 90), ("2h", 7200), (".5", 0.5)]
)
def test_times_have_units(text: str, seconds: float) -> None:
    """Seconds, minutes and hours, alone and one after the other."""
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "1x", "-1", "1s30", "nan", "inf", "0", "1e400", "1 2"])
def test_what_is_no_time_is_refused(text: str) -> None:
    """With the ways to write one."""
    with pytest.raises(UsageError, match=r"90, 90s, 1\.5m or 1h30m"):
        duration(text)


@pytest.mark.parametrize(("text", "value"), [("0.9", 0.9), ("90%", 0.9), ("1", 1.0)])
def test_shares_are_fractions_or_percents(text: str, value: float) -> None:
    """As people write them."""
    assert share(text) == value


def test_help_is_a_command_too(capsys: pytest.CaptureFixture[str]) -> None:
    """`help` prints what `--help` prints, and `help show` what `show --help` does."""
    told = []
    for args in (["help"], ["--help"], ["help", "show"], ["show", "--help"]):
        assert main(args) == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1] and told[2] == told[3] and "Usage: stridesmith show" in told[2]


@pytest.mark.parametrize(
    ("program", "command"),
    [("/usr/bin/tune", "tune"), ("C:/x/tune.exe", "tune"), ("/v/bin/stridesmith", "stridesmith"),
     ("/v/stridesmith/__main__.py", "python -m stridesmith"), ("/w/tune.py", "stridesmith"), ("", "stridesmith")],
)  # fmt: skip
def test_hints_repeat_the_name_that_was_called(program: str, command: str) -> None:
    """A name of another program is none of the command's."""
    assert called(program) == command


def test_both_names_say_their_own_in_hints() -> None:
    """The prefix of an error, the usage and a command to be pasted, of a process that was started as `tune`."""
    script = "import sys; sys.argv[0] = '/x/tune'; from stridesmith.cli import main; sys.exit(main(sys.argv[1:]))"
    found = subprocess.run([sys.executable, "-c", script, "matmul"], capture_output=True, text=True, check=False)
    assert found.returncode == 2 and found.stderr.startswith("tune: ")
    assert "run `tune --workload matmul`" in found.stderr


def test_reading_commands_create_no_database(tmp_path: Path) -> None:
    """Looking for records leaves no file behind."""
    main(["best"])
    main(["replay", "--workload", "matmul"])
    assert not (tmp_path / "own.db").exists()


def test_show_space_counts_sketches_and_decisions(capsys: pytest.CaptureFixture[str]) -> None:
    """The space of a workload is described without building anything."""
    assert main(["show", "--workload", "conv2d", "--target", "cpu", "--space"]) == 0
    out = capsys.readouterr().out
    for kind in ("layout", "pad_value", "boundary", "tile", "place"):
        assert kind in out


def test_dry_run_builds_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A user's script is read, and the size of its space told."""
    path = tmp_path / "mine.py"
    path.write_text(SCRIPT)
    assert main(["--script", str(path), "--dry-run"]) == 0
    assert "sketches" in capsys.readouterr().out
    assert not (tmp_path / "own.db").exists()


def test_a_dry_run_follows_pins(capsys: pytest.CaptureFixture[str]) -> None:
    """What pins leave is counted, and a pin of nothing is refused as in a search."""
    run = ["--workload", "matmul", "--shape", "m=12,n=12,k=12", "--dry-run"]
    sizes = []
    for pins in ([], ["--pin", "tile:s0=2"]):
        assert main([*run, "--format", "json", *pins]) == 0
        sizes.append(json.loads(capsys.readouterr().out)["size"])
    assert 0 < sizes[1] < sizes[0]
    assert main([*run, "--pin", "nonsense=9"]) == 2
    assert "names no decision of this space" in capsys.readouterr().err


def test_a_sum_without_a_beginning_is_refused_before_a_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is tried of a program that has no result."""
    path = tmp_path / "mine.py"
    path.write_text(SCRIPT_WITHOUT_INIT)
    for run in (["--dry-run"], ["--seconds", "5"]):
        assert main(["--script", str(path), *run]) == 2
        assert "`C[0]` is read, and nothing has written it before" in capsys.readouterr().err.replace("\n", " ")


LIST = """
[tune]
trials = 5
[[matmul]]
name = "one"
m = 5
n = 6
k = 7
[[row_sum]]
name = "two"
rows = 6
cols = 9
"""


@pytest.mark.parametrize(
    ("more", "trials"),
    [([], 5), (["--trials", "7"], 7), (["--preset", "quick"], 5), (["--trials", "7", "--preset", "quick"], 7)],
)
def test_options_win_over_the_file_and_the_file_over_the_preset(
    more: list[str], trials: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The budget of a list of workloads holds for each of them, unless an option says otherwise."""
    path = tmp_path / "list.toml"
    path.write_text(LIST)
    assert main(["--config", str(path), "--dry-run", "--format", "json", *more]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(e["workload"], e["trials"]) for e in events] == [("matmul", trials), ("row_sum", trials)]


def test_a_preset_is_a_budget(capsys: pytest.CaptureFixture[str]) -> None:
    """`--preset quick` limits the trials where nothing else does; an unknown one is named."""
    assert main(["--workload", "row_sum", "--preset", "quick", "--dry-run", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["trials"] == 32
    assert main(["--workload", "row_sum", "--preset", "quik", "--dry-run"]) == 2
    assert "quick" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", [["workloads"], ["suites"], ["suites", "ragged"], ["targets"], ["--help"], ["--version"]]
)
def test_listings(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """What there is can be listed without a database or a device of one's own."""
    assert main(command) == 0
    assert capsys.readouterr().out.strip()


def test_pins_may_follow_each_other() -> None:
    """`--pin a=1 b=2` is two pins."""
    assert spread_pins(["--pin", "a=1", "b=2", "--trials", "3"]) == ["--pin", "a=1", "--pin", "b=2", "--trials", "3"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_tune_then_replay(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The main job on a small product: JSON events, a verified record, and a replay of that record."""
    shape = ["--workload", "matmul", "--shape", "m=13,n=19,k=11", "--target", "cpu"]
    assert main([*shape, "--trials", "6", "--seed", "1", "--format", "json"]) == 0
    events = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    done = events[-1]
    assert events[0]["event"] == "start" and done["event"] == "done"
    assert done["verified"] is True and done["trials"] == 6 and done["stopped_by"] == "trials"
    assert main(["replay", *shape, "--format", "json"]) == 0
    replayed = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert replayed["record"] == done["record"] and replayed["verified"] is True


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_list_is_tuned_one_after_the_other(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Every workload of a list gets its own summary, and an overview ends the run; `best` then has both."""
    path = tmp_path / "list.toml"
    path.write_text(LIST)
    assert main(["--config", str(path), "--target", "cpu", "--trials", "3", "--format", "plain"]) == 0
    out = capfd.readouterr().out
    assert out.count("best kernel") == 2
    overview = out[out.index("all of them") :]
    assert "one" in overview and "two" in overview
    assert main(["best", "--format", "json"]) == 0
    records = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert {r["workload"] for r in records} == {"matmul", "row_sum"}


def test_seconds_count_from_the_call_where_a_program_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is older than the seconds of a run has all of them; the command itself counts its own start."""
    heard: list[float] = []

    def run(options: object, output: object, started: float) -> int:
        heard.append(started)
        return 0

    monkeypatch.setattr("stridesmith.commands.tune.run", run)
    long_ago = time.monotonic() - 1000
    monkeypatch.setattr("stridesmith.cli.STARTED", long_ago)
    monkeypatch.setattr("sys.argv", ["tune", "--workload", "matmul"])
    before = time.monotonic()
    assert main(["--workload", "matmul"]) == 0 and heard[0] >= before
    assert main() == 0 and heard[1] == long_ago


def test_words_of_options_are_known_in_capitals(capsys: pytest.CaptureFixture[str]) -> None:
    """``--format JSON`` is ``--format json``."""
    assert main(["--workload", "matmul", "--dry-run", "--format", "JSON"]) == 0
    assert json.loads(capsys.readouterr().out)["event"] == "dry_run"
