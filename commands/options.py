"""What the options say, as values: shapes, interfaces, pins, programs and lists of work."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ScriptProblem, UsageError, did_you_mean
from ..files import reason, small_text
from ..invocation import COMMAND
from ..numerals import count, real, whole
from ..search.tasks.command_line import Options
from ..search.tasks.device import Device, names_recording
from ..search.tasks.interface import pairs
from ..space.workloads.taking import LARGEST_SCRIPT

if TYPE_CHECKING:
    from ..configs import Entry, Suite
    from ..models.inputs import Given
    from ..space.workloads import Workload


@dataclass(frozen=True)
class RecordOptions(Options):
    """Which record a command is about: `record`, or the best one of the work, here or on `any_device`."""

    record: str | None = None
    any_device: bool = False


@dataclass(frozen=True)
class SearchOptions(Options):
    """How a search goes: the options of `tune` itself."""

    trials: int | None = None
    seconds: float | None = None
    stop_at: float | None = None
    preset: str | None = None
    seed: int | None = None
    sampler: str | None = None
    pin: tuple[str, ...] = ()
    likely: tuple[str, ...] = ()
    address: str | None = None
    resume: bool = True
    trace: str | None = None
    from_file: str | None = None
    dry_run: bool = False


def duration(text: str) -> float:
    """Seconds of a time that is written as ``90``, ``90s``, ``1.5m``, ``1m30s`` or ``2h``.  Raises UsageError."""
    number = r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+"
    found = re.fullmatch(
        rf"\s*(?:({number})h)?\s*(?:({number})m(?:in)?)?\s*(?:({number})s?)?\s*", text.lower()
    )  # fmt: skip
    hours, minutes, seconds = (float(part or 0) for part in found.groups()) if found else (0.0, 0.0, 0.0)
    total = 3600 * hours + 60 * minutes + seconds
    if not 0 < total < math.inf:
        raise UsageError(f"--seconds takes a time above 0, as 90, 90s, 1.5m or 1h30m, but got {text!r}")
    return total


def share(text: str) -> float:
    """A share above 0 and at most 1, written as ``0.9`` or ``90%``.  Raises UsageError."""
    value = real(text.strip().removesuffix("%"))
    if value is not None and 0 < (found := value / (100 if text.strip().endswith("%") else 1)) <= 1:
        return found
    raise UsageError(f"--stop-at takes a share of the roofline, above 0 and at most 1, as 0.9 or 90%, but got {text!r}")


def shape(texts: Iterable[str]) -> dict[str, str]:
    """The parameters of every `--shape`; an empty one is an error, as it would silently mean the defaults."""
    merged: dict[str, str] = {}
    for text in texts:
        found = pairs(text, "--shape")
        if not found:
            raise UsageError("--shape is empty; write for example --shape ci=64,h=56,w=56")
        merged.update(found)
    return merged


def pins(texts: Iterable[str]) -> dict[str, str]:
    """``DECISION=VALUE`` of every `--pin`; the value may hold anything."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise UsageError(f"--pin takes DECISION=VALUE, but got {text!r}; `{COMMAND} show --space` lists them")
        found[name.strip()] = value.strip()
    return found


def likely(texts: Iterable[str]) -> dict[str, dict[int, float]]:
    """``NAME=NUMBER:SHARE,...`` of every `--likely`."""
    from ..search.tuning.sizes import likely_of

    return {name: shares for text in texts for name, shares in likely_of(text).items()}


def sampler(name: str | None) -> str | None:
    """A sampler that exists, before anything is started for it."""
    if name:
        from ..search.tuning.study import SAMPLERS, check_packages

        if name not in SAMPLERS:
            known = ", ".join(SAMPLERS)
            raise UsageError(f"there is no sampler {name!r}{did_you_mean(name, SAMPLERS)}; there are {known}")
        check_packages(name)
    return name


def script_workload(path: Path, name: str | None) -> Workload:
    """A user's program as a workload.  Raises ScriptProblem with file, line and column."""
    from ..search.tasks.task import script_work

    text = small_text(path, "the script", LARGEST_SCRIPT)
    try:
        return script_work(text, name)
    except ScriptProblem as error:
        raise ScriptProblem(f"{path}: {error}") from None


def one_work(options: Options) -> Entry:
    """The single workload that `--workload` or `--script` name."""
    entries = all_work(options)
    if len(entries) != 1:
        raise UsageError(f"this command takes one workload, but got {len(entries)}; choose one with --only NAME")
    return entries[0]


def refuse_of_models(options: Options) -> None:
    """Raise UsageError for options that only models have."""
    if options.input:
        raise UsageError("--input goes with --model, whose inputs it gives shapes and values")
    if options.range:
        raise UsageError("--range goes with --model; a size of a workload has its range in --shape, as in m=1..512")
    if options.precision:
        raise UsageError("--precision goes with --model; the element type of a single workload is its --dtype")
    if options.fallback:
        raise UsageError("--fallback goes with --model: it runs what has no program in a network")
    if not options.winograd:
        raise UsageError("--no-winograd goes with --model: a single workload is computed as it is written")


def all_work(options: Options) -> list[Entry]:
    """Everything that `--workload`, `--script`, `--suite` or `--config` ask for; exactly one of them is given."""
    refuse_of_models(options)
    sources = [name for name in ("workload", "script", "suite", "config") if getattr(options, name)]
    if not sources and names_recording(options.target):
        return [_recorded(options.target)]
    if len(sources) != 1:
        asked = " and ".join(f"--{name}" for name in sources) or "none of them"
        raise UsageError(
            f"name the work with one of --workload, --script, --suite, --config and --model, but got {asked}; "
            f"for example `{COMMAND} --workload conv2d`, and `{COMMAND} workloads` lists them"
        )
    _refuse_unused(options, sources[0])
    if sources[0] in ("suite", "config"):
        return [entry for suite in suites(options) for entry in suite.entries]
    return [_single(options)]


def _recorded(target: str) -> Entry:
    """The workload and interface of a recorded space, the target `recorded:..`."""
    from ..configs import Entry

    found = Device.named(target).recording
    assert found is not None  # which is what the text names
    return Entry(found.work.name, found.work, dict(found.interface))


def suites(options: Options) -> list[Suite]:
    """The suites of `--suite` or `--config`, cut down to `--only`."""
    from .. import configs

    if options.config:
        found = [configs.config(Path(options.config))]
    else:
        found = [configs.suite(name.strip()) for name in (options.suite or "").split(",")]
    only = options.only
    if not only:
        return found
    names = [entry.name for suite in found for entry in suite.entries]
    if only not in names:
        raise UsageError(f"--only {only}: no such entry{did_you_mean(only, names)}; there are {', '.join(names)}")
    return [suite.only(only) for suite in found if any(e.name == only for e in suite.entries)]


def _single(options: Options) -> Entry:
    from ..configs import Entry
    from ..space.workloads import workload

    if options.script:
        work = script_workload(Path(options.script), options.name)
    else:
        parameters: dict[str, Any] = dict(shape(options.shape))
        if options.dtype:
            parameters.setdefault("dtype", options.dtype)
        work = workload(options.workload or "", **parameters)
    return Entry(work.name, work, {})


def _refuse_unused(options: Options, source: str) -> None:
    """An option that this source of work would ignore is a mistake, not a wish."""
    users = {
        "shape": ("workload",), "dtype": ("workload",), "name": ("script",), "only": ("suite", "config"),
    }  # fmt: skip
    for option, sources in users.items():
        if getattr(options, option) and source not in sources:
            raise UsageError(f"--{option} goes with --{' or --'.join(sources)}, not with --{source}")


def extents_of(text: str) -> list[int | str]:
    """What stands for the extents in a shape, ``1xnx24``, ``1,max,24`` or ``[1, max, 24]``: numbers, and other words.

    A name between commas or in brackets may have an x in it, also in an expression, ``[1, max*32]``.
    """
    is_shape = text.startswith("[") and text.endswith("]")
    found = list[int | str]()
    for given in (text[1:-1] if is_shape else text).split(","):
        is_word = given.strip().isidentifier() or any(op in given for op in "*+-/")
        whole = is_word and (is_shape or "," in text)
        for part in map(str.strip, [given] if whole else given.split("x")):
            if part or not is_shape:
                extent = count(part) if len(part) < 10 else None
                found.append(part if extent is None else extent)
    return found


def _free(name: str, extents: Sequence[int | str]) -> str:
    """What to write instead where extents are names or ranges; empty where they are something else."""
    if len(extents) < 2 or not any(isinstance(e, str) and (e.isidentifier() or ".." in e) for e in extents):
        return ""
    return (
        f"; what names among the extents may be says --range of a search, `show` and `replay`, as in "
        f"`--input {name}=nx4 --range n=1..64`"
    )


def inputs_of(texts: Iterable[str]) -> Given:
    """What each `--input` says: a shape, ``NAME=1x3x320x320`` or ``NAME=[5]``, or a value, of a number or a file."""
    from ..models.inputs import Given

    shapes, values, either = dict[str, tuple[int, ...]](), dict[str, Any](), dict[str, int]()
    for text in texts:
        name, equals, given = text.rpartition("=")
        if name in {**shapes, **values, **either}:
            raise UsageError(f"--input gives {name!r} a shape or a value twice")
        parts = extents_of(given)
        numbers = [part for part in parts if isinstance(part, int)]
        if equals and name and numbers == parts:
            if (number := count(given)) is not None:
                either[name] = number
            else:
                shapes[name] = tuple(numbers)
            continue
        value = array_of(given) if given.endswith(".npy") else number_of(given)
        if not equals or not name or value is None:
            raise UsageError(
                "--input takes NAME=EXTENTS, NAME=NUMBER or NAME=FILE.npy such as `--input x=1x3x320x320`, but got "
                f"{text!r}{_free(name, parts)}"
            )
        values[name] = value
    return Given(shapes, values, either)


def number_of(text: str) -> bool | int | float | None:
    """A value as it is written; None for what is none."""
    if text in ("true", "false"):
        return text == "true"
    found = whole(text)
    return real(text) if found is None else found


def array_of(path: str) -> Any:
    """The array of an `.npy` file, which is never unpickled."""
    import numpy as np

    try:
        return np.ascontiguousarray(np.load(Path(path), allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        raise unreadable("the input", path, "an .npy file of a plain array", error) from None


def unreadable(what: str, path: str, kind: str, error: Exception) -> UsageError:
    """The error about a file of NumPy's that is not there, or is not of its `kind`."""
    if isinstance(error, OSError) and error.errno is not None:
        return UsageError(f"cannot read {what} in {path}: {reason(error, path)}")
    return UsageError(
        f"cannot read {what} in {path}, which is not {kind}, or is damaged; NumPy's `save` and `savez` write such files"
    )
