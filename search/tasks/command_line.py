"""Command lines as messages and summaries show them, so that what is to be done next can be pasted into a shell."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .interface import interface_key, interface_of
from .task import selector_of

if TYPE_CHECKING:
    from ...ir.target import Target
    from ...space.workloads import Workload

OPTIONS = (
    "model", "input", "precision", "workload", "shape", "script", "name", "suite", "config", "only", "dtype",
    "interface", "target", "threads", "db",
)  # fmt: skip
"""What says on which work, target and database a command acts, in the order in which it is written."""


def command_line(options: Mapping[str, object], subcommand: str = "") -> str:
    """``tune [SUBCOMMAND]`` with those of `options` that name work, target and database; others are left out.

    Keys are the names of options without dashes; an option that may be repeated has a list or tuple.  A password in
    a database's URL is written as ``***``, since messages end up in logs.
    """
    words = ["tune", *([subcommand] if subcommand else [])]
    for name in OPTIONS:
        value = options.get(name)
        for item in value if isinstance(value, list | tuple) else [value] if value else []:
            words += [f"--{name}", _without_password(str(item)) if name == "db" else str(item)]
    words += ["--no-winograd"] if options.get("winograd") is False else []
    return shlex.join(words)


def _without_password(db: str) -> str:
    scheme, mark, rest = db.partition("://")
    user, at, host = rest.rpartition("@")
    name, colon, _ = user.partition(":")
    return f"{scheme}{mark}{name}:***@{host}" if at and colon else db


def options_of(work: Workload, target: Target, interface: Mapping[str, str], db: str | None) -> dict[str, object]:
    """The options that name a task: what `command_line` takes; without `db` the environment says which one is meant."""
    from ...backends.devices import discover
    from ...space.workloads import workload

    options: dict[str, object] = {"target": selector_of(target), "db": db}
    if target.kind == "cpu" and target.threads != discover("cpu").threads:
        options["threads"] = target.threads
    if work.params:
        usual = workload(work.name).shape
        shape = ",".join(f"{name}={value}" for name, value in work.shape.items() if value != usual.get(name))
        options |= {"workload": work.name, "shape": [shape] if shape else []}
        if work.dtype != "float32":
            options["dtype"] = work.dtype
    else:
        options |= {"script": "FILE.py", "name": work.name}
    changed = {n: w for n, w in interface.items() if interface_of(work)[n] != w}
    return options | ({"interface": interface_key(changed)} if changed else {})
