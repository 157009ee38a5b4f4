"""How commands end: files that cannot be had, packages that are not there, and Ctrl-C at any moment."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from record_makers import make_record

import stridesmith
from stridesmith import errors
from stridesmith.backends.devices import discover
from stridesmith.cli import main
from stridesmith.commands import listing
from stridesmith.commands.ending import EXTRAS, ended, wants_json
from stridesmith.files import doing, small_text
from stridesmith.search.records.database import Database
from stridesmith.search.tuning import interruption
from stridesmith.space.workloads import workload

WORK = workload("matmul", m=6, n=7, k=5)
NAMED = ("--workload", "matmul", "--shape", "m=6,n=7,k=5", "--threads", "2")
HOME = str(Path(stridesmith.__file__).resolve().parents[1])


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a database, a file, a folder, links that lead nowhere, and a device of no bytes."""
    monkeypatch.chdir(tmp_path)
    facts = {"script": WORK.script, "workload": "matmul", "params": dict(WORK.params), "stage": "race", "trace": None}
    fixed = {"a": "fixed", "b": "fixed", "c": "fixed"}
    with Database("good.db") as database:
        database.put_record(make_record(target=discover("cpu", 2).to_json(), interface=fixed, **facts))
    Path("file").write_text("plain text\n", encoding="utf-8")
    Path("folder").mkdir()
    os.symlink("loop", "loop")
    os.symlink("nowhere/x", "dangling")


NO_PLACE = {
    "below a file": "file/x", "a name that is too long": "n" * 300, "a path that is too long": "d/" * 2500 + "x",
    "below a link to itself": "loop/x", "a null byte": "a\0b", "below a device": "/dev/null/x",
    "where the system lets nobody write": "/proc/x",
}  # fmt: skip
WRITING = {
    "so": ("emit", *NAMED, "--db", "good.db", "-o"),
    "c": ("emit", *NAMED, "--db", "good.db", "--format", "c", "-o"),
    "script": ("emit", *NAMED, "--db", "good.db", "--format", "script", "-o"),
    "wheel": ("emit", *NAMED, "--db", "good.db", "--format", "wheel", "-o"),
    "export": ("export", "--db", "good.db"),
}


@pytest.mark.parametrize("place", NO_PLACE)
@pytest.mark.parametrize("command", WRITING)
def test_files_that_cannot_be_written(command: str, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 74 and one paragraph with the file and the system's reason; what was there stays."""
    code = main([*WRITING[command], NO_PLACE[place]])
    assert code == 74 or (code == 2 and place == "a null byte")  # which no name has, as the parser of options knows
    told = capsys.readouterr().err
    assert "cannot " in told or code == 2
    assert "bug" not in told and told.count("\n") == 1
    assert Path("file").read_text(encoding="utf-8") == "plain text\n"


READING = {
    "script": ("--dry-run", "--script"), "config": ("--dry-run", "--config"),
    "emit": ("emit", "-o", "x.so", "--script"),
    "recorded": ("--dry-run", "--target"), "model": ("run", "--db", "good.db"), "import": ("import", "--db", "new.db"),
    "data": ("run", "none.onnx", "--data"), "peers": ("report", "--db", "good.db", "-o", "x.html", "--peers"),
    "database": ("best", "--db"), "compare": ("compare", "good.db"),
}  # fmt: skip


@pytest.mark.parametrize("place", [*NO_PLACE, "nothing", "a link to nothing", "a link to itself", "a folder"])
@pytest.mark.parametrize("command", READING)
def test_files_that_cannot_be_read(command: str, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever a path is, no command takes it for a bug of its own, and none waits for the end of a device."""
    places = {"nothing": "none", "a link to nothing": "dangling", "a link to itself": "loop", "a folder": "folder"}
    path = {**NO_PLACE, **places}[place]
    code = main([*READING[command], f"recorded:{path}" if command == "recorded" else path])
    told = capsys.readouterr().err
    assert code in (2, 3, 4, 74) and "bug" not in told and told.count("\n") == 1, told


def test_devices_stay_devices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is written to a pipe goes through it; a text of a device without end is too long, and a log is none."""
    os.mkfifo("pipe")
    with subprocess.Popen(["cat", "pipe"], stdout=subprocess.PIPE) as reader:
        assert main(["emit", *NAMED, "--db", "good.db", "-o", "pipe"]) == 0
        assert reader.stdout is not None and reader.stdout.read(4) == b"\x7fELF"
    assert Path("pipe").is_fifo()
    assert main(["--dry-run", "--script", "/dev/zero"]) == 2
    assert "/dev/zero is larger than 1 MiB; the script is a short text" in capsys.readouterr().err
    assert main(["import", "--db", "new.db", "/dev/zero"]) == 74
    assert "cannot read the log /dev/zero: it is a device, which may have no end" in capsys.readouterr().err


def test_what_the_system_says_of_files() -> None:
    """The reason, and which file it is of where that is another; other mistakes stay what they are."""
    with pytest.raises(errors.StorageError, match=r"^cannot write a: No space left on device \(b\)$"), doing("write a"):
        raise OSError(28, "No space left on device", "b")
    with pytest.raises(errors.StorageError, match=r"^cannot write a: Is a directory$"), doing("write a"):
        raise IsADirectoryError(21, "Is a directory", "a")
    with pytest.raises(ValueError, match=r"^mine$"), doing("write a"):
        raise ValueError("mine")
    with pytest.raises(BrokenPipeError), doing("write a"):
        raise BrokenPipeError
    Path("latin").write_bytes(b"\xe9")
    with pytest.raises(
        errors.UsageError, match=r"^cannot read the notes latin: it is not UTF-8 text; save it as UTF-8$"
    ):
        small_text(Path("latin"), "the notes", 100)


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_streams_that_are_closed_are_the_null_device(closed: str) -> None:
    """A command does what it was asked for, and no file of its own takes their numbers."""
    code = f"{sys.executable} -m stridesmith best --db own.db {closed}"
    found = subprocess.run(code, shell=True, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": HOME})
    assert found.returncode == 3
    assert ("has no record yet" in found.stderr) is ("2>" not in closed) and "Traceback" not in found.stderr


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    """Where no path can be completed, the command says why."""
    (tmp_path / "gone").mkdir()
    code = f"cd gone && rmdir ../gone && {sys.executable} -m stridesmith best --db own.db"
    environment = {**os.environ, "PYTHONPATH": HOME}
    found = subprocess.run(code, shell=True, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert found.returncode == 74 and "the folder that this runs in is not there any more" in found.stderr


def test_a_mark_before_a_text_is_none_of_it() -> None:
    """As editors of Windows write it."""
    Path("marked").write_text("text", encoding="utf-8-sig")
    assert small_text(Path("marked"), "the notes", 100) == "text"


# --- packages -----------------------------------------------------------------------------------


@pytest.mark.parametrize("package", ["optuna", "numpy", "ray", *EXTRAS])
def test_packages_that_are_not_there(package: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 4, with what to install; one that cannot be loaded says why."""
    extra = f"stridesmith[{EXTRAS[package]}]" if package in EXTRAS else "stridesmith"
    assert ended(ModuleNotFoundError(f"No module named '{package}'", name=package), False) == 4
    told = capsys.readouterr().err
    assert f"the package `{package}`, which this needs, is not installed: `pip install '{extra}'`" in told
    assert ended(ImportError("libx.so: cannot open shared object", name=f"{package}.core"), True) == 4
    found = capsys.readouterr()
    assert f"the package `{package}`, which this needs, cannot be loaded: libx.so: cannot open shared" in found.err
    assert '"kind": "tool_missing"' in found.out
    assert ended(ModuleNotFoundError("No module named 'stridesmith.no'", name="stridesmith.no"), False) == 1


def tune(*arguments: str, without: str = "") -> subprocess.Popen[str]:
    """The command in a process of its own, in which a package is not installed."""
    script = (
        f"import sys\nsys.modules.update(dict.fromkeys({without.split()!r}))\nsys.argv[0] = 'tune'\n"
        "from stridesmith.__main__ import main\nsys.exit(main())"
    )
    environment = os.environ | {"PYTHONPATH": HOME}
    command = [sys.executable, "-W", "ignore", "-c", script, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.mark.parametrize("package", ["click", "pydantic", "sqlalchemy"])
def test_commands_without_a_package(package: str) -> None:
    """From the first line on."""
    out, err = (running := tune("best", *NAMED, "--db", "good.db", "--format", "json", without=package)).communicate()
    assert running.returncode == 4 and f"the package `{package}`, which this needs, is not installed" in err
    assert out.count("\n") == 1 and '"event": "error"' in out and "Traceback" not in err


# --- interrupts ---------------------------------------------------------------------------------


def hears(process: subprocess.Popen[str]) -> bool:
    """Whether the command has begun to listen: Python itself needs some time before that."""
    with open(f"/proc/{process.pid}/status", encoding="utf-8") as file:
        caught = next(int(line.split()[1], 16) for line in file if line.startswith("SigCgt"))
    return bool(caught >> (signal.SIGALRM - 1) & 1)


@pytest.fixture
def moments() -> Iterator[list[float]]:
    """Seconds within the first one of a command, the earliest among them."""
    yield [0.0, *random.Random(0).sample([number / 40 for number in range(1, 40)], 11)]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_interrupt_at_any_moment(moments: list[float]) -> None:
    """While modules are loaded, too, Ctrl-C ends a command with exit code 130 and one sentence."""
    for seconds in moments:
        process = tune(*NAMED, "--trials", "64", "--db", "new.db")
        until = time.monotonic() + 20
        while not hears(process) and time.monotonic() < until:
            time.sleep(0.001)
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 130, (seconds, err)
        assert "tune: interrupted" in err and "Traceback" not in err and "bug" not in err, (seconds, err)


def test_an_interrupt_of_which_a_library_made_another_exception(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is no bug, and no package is said to be missing."""

    def loaded(_: object) -> int:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ImportError("the core failed to be imported", name="numpy") from None
        return 0

    monkeypatch.setattr(listing, "targets", loaded)
    assert main(["targets"]) == 130
    assert "stridesmith: interrupted; what was recorded so far is kept" in capsys.readouterr().err


def test_modules_are_loaded_to_their_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal that meets an import comes after it; the second one does not wait."""
    (tmp_path / "slow_module.py").write_text(
        "import signal, time\nfor _ in range(TIMES):\n    signal.raise_signal(signal.SIGINT)\n"
        "time.sleep(0.05)\nwhole = True\n".replace("TIMES", "1"), encoding="utf-8",
    )  # fmt: skip
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(KeyboardInterrupt), interruption.heard():
        import slow_module  # type: ignore[import-not-found]

        assert slow_module.whole
        time.sleep(1)
    assert sys.modules["slow_module"].whole
    assert interruption.interrupted_by() is errors.Interrupted


def test_who_asks_for_events() -> None:
    """In either spelling."""
    assert wants_json(["best", "--format", "json"]) and wants_json(["--format=json"]) and not wants_json(["json"])


def ended_alone(options: Sequence[str], error: str, home: Path) -> subprocess.CompletedProcess[str]:
    """How a command ends by an error in a process of its own, which nothing has interrupted."""
    code = f"from stridesmith.commands.ending import ended; raise SystemExit(ended({error}, False))"
    environment = {**os.environ, "PYTHONPATH": HOME, "HOME": str(home), "XDG_DATA_HOME": str(home)}
    command = [sys.executable, *options, "-B", "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=home)


def test_too_little_memory_is_no_bug(tmp_path: Path) -> None:
    """Of the machine or by a limit: what to do is said, and the code is that of what may work later."""
    done = ended_alone([], "MemoryError()", tmp_path)
    assert done.returncode == 75 and "raise the limit of this shell (`ulimit -v`)" in done.stderr


def test_a_python_without_docstrings_is_told(tmp_path: Path) -> None:
    """Libraries that read their own end in errors of Python's then."""
    error = "AttributeError(\"'NoneType' object has no attribute 'replace'\")"
    done = ended_alone(["-OO"], error, tmp_path)
    assert done.returncode == 2 and "Python runs without docstrings here" in done.stderr
    assert "This is a bug" in ended_alone([], error, tmp_path).stderr
