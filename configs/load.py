"""Reading the TOML files: bounded, never evaluated, and every mistake with its file and place."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ..errors import ConfigProblem, UsageError, did_you_mean
from ..files import small_text
from ..ir.target import Target
from .schema import Budget, Entry, Row, Suite, rows_of

LARGEST_FILE = 2**20


def suites() -> tuple[str, ...]:
    """Names of the shipped suites."""
    return _shipped("suites")


def presets() -> tuple[str, ...]:
    """Names of the shipped tuning presets."""
    return _shipped("presets")


def targets() -> tuple[str, ...]:
    """Names of the shipped target descriptions."""
    return _shipped("targets")


def suite(name: str) -> Suite:
    """The shipped suite of this name.  Raises ConfigProblem."""
    return _suite(name, _document("suites", name), f"suite {name!r}")


def preset(name: str) -> Budget:
    """The shipped preset of this name.  Raises ConfigProblem."""
    where = f"preset {name!r}"
    document = _document("presets", name)
    _only_keys(document, ("tune",), where)
    return _budget(document.get("tune", {}), where)


def target(name: str) -> Target:
    """The shipped description of a machine that need not be this one.  Raises ConfigProblem."""
    where = f"target {name!r}"
    document = _document("targets", name)
    _only_keys(document, ("target",), where)
    try:
        return Target.from_json(document.get("target", {}))
    except (TypeError, ValueError) as error:
        raise ConfigProblem(f"{where}: {error}") from None


def config(path: Path) -> Suite:
    """A user's own list of workloads.  Raises ConfigProblem."""
    text = small_text(path, "the config", LARGEST_FILE, ConfigProblem)
    return _suite(path.stem, _parse(text, str(path)), str(path))


def _shipped(folder: str) -> tuple[str, ...]:
    root = resources.files(__package__) / folder
    return tuple(sorted(item.name[:-5] for item in root.iterdir() if item.name.endswith(".toml")))


def _document(folder: str, name: str) -> dict[str, Any]:
    known = _shipped(folder)
    if name not in known:
        kind = folder[:-1]
        raise ConfigProblem(f"there is no {kind} {name!r}{did_you_mean(name, known)}; there are {', '.join(known)}")
    text = (resources.files(__package__) / folder / f"{name}.toml").read_text(encoding="utf-8")
    return _parse(text, f"{folder}/{name}.toml")


def _parse(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise ConfigProblem(f"{where} is not valid TOML: {str(error)[:300] or type(error).__name__}") from None


def _suite(name: str, document: dict[str, Any], where: str) -> Suite:
    try:
        rows = rows_of(document)
    except ValueError as error:
        raise ConfigProblem(f"{where}: {error}") from None
    if not rows:
        raise ConfigProblem(f"{where} names no workload; write at least one table such as [[matmul]] with a name")
    budget = _budget(document.get("tune", {}), where)
    entries: list[Entry] = []
    for number, (kind, row) in enumerate(rows, 1):
        place = f"{where}, entry {number}, {str(row.get('name', 'without a name'))[:64]!r} of {kind[:64]!r}"
        entry = _entry(kind, row, budget, place)
        if any(entry.name == other.name for other in entries):
            raise ConfigProblem(f"{place}: the name occurs twice; names are what --only and the summary go by")
        entries.append(entry)
    return Suite(name, tuple(entries))


def _entry(kind: str, row: dict[str, Any], budget: Budget, where: str) -> Entry:
    try:
        return Entry.of(kind, Row.model_validate(row), budget)
    except ValidationError as error:
        raise ConfigProblem(f"{where}: {sentence(error)}") from None
    except (UsageError, ValueError) as error:
        raise ConfigProblem(f"{where}: {error}") from None


def _budget(table: Any, where: str) -> Budget:
    try:
        return Budget.model_validate(table)
    except ValidationError as error:
        raise ConfigProblem(f"{where}, [tune]: {sentence(error, tuple(Budget.model_fields))}") from None


def _only_keys(document: dict[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in document:
        if key not in known:
            raise ConfigProblem(f"{where}: unknown table [{key}]{did_you_mean(key, known)}; it has {', '.join(known)}")


def sentence(error: ValidationError, known: tuple[str, ...] = ()) -> str:
    """The rules that failed, without pydantic's addresses and without the hostile input."""
    parts = []
    for item in error.errors(include_url=False, include_input=False, include_context=False)[:4]:
        key = ".".join(str(part) for part in item["loc"])[:64]
        hint = did_you_mean(key, known) if item["type"] == "extra_forbidden" else ""
        reason = "unknown key" if item["type"] == "extra_forbidden" else item["msg"]
        parts.append(f"{key}: {reason}{hint}")
    return "; ".join(parts)
