"""What a command line says of work, target and database: one value, which commands read and messages write again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from ...files import quoted
from ...invocation import COMMAND
from .device import names_recording, selector_of
from .interface import interface_key, interface_of

if TYPE_CHECKING:
    from ...ir.target import Target
    from ...space.workloads import Workload


@dataclass(frozen=True)
class Options:
    """On which work, target and database a command acts: the options of these names.

    They stand in the order in which they are written; what was not given is None or empty.  Without `db` the
    environment says which database is meant.
    """

    model: str | None = None
    input: tuple[str, ...] = ()
    range: tuple[str, ...] = ()
    precision: str | None = None
    fallback: str | None = None
    workload: str | None = None
    shape: tuple[str, ...] = ()
    script: str | None = None
    name: str | None = None
    suite: str | None = None
    config: str | None = None
    only: str | None = None
    dtype: str | None = None
    interface: str | None = None
    target: str = ""
    threads: int | None = None
    db: str | None = None
    winograd: bool = True

    @property
    def names_work(self) -> bool:
        """Whether they name workloads, be it by a recorded space."""
        return any((self.workload, self.script, self.suite, self.config)) or names_recording(self.target)

    def command(self, subcommand: str = "") -> str:
        """``stridesmith [SUBCOMMAND]`` with these options, as it can be pasted into a shell.

        A password in a database's URL is written as ``***``, since messages end up in logs.
        """
        words = [*COMMAND.split(), *([subcommand] if subcommand else [])]
        for option in fields(Options):
            value = getattr(self, option.name)
            if option.name == "db" and value:
                scheme, mark, rest = value.partition("://")
                user, at, host = rest.rpartition("@")
                name, colon, _ = user.partition(":")
                value = f"{scheme}{mark}{name}:***@{host}" if at and colon else value
            if option.name != "winograd":
                for item in value if isinstance(value, tuple) else [value] if value else []:
                    words += [f"--{option.name}", str(item)]
        return " ".join(map(quoted, words if self.winograd else [*words, "--no-winograd"]))


def options_of(work: Workload, target: Target, interface: Mapping[str, str], db: str | None) -> Options:
    """The options that name a task."""
    from ...backends.devices import discover
    from ...space.workloads import workload

    has_all = target.kind != "cpu" or target.threads == discover("cpu").threads
    changed = {n: w for n, w in interface.items() if interface_of(work)[n] != w}
    shape, is_ours = "", bool(work.params)
    if is_ours:
        usual = workload(work.name).shape
        shape = ",".join(f"{name}={value}" for name, value in work.shape.items() if value != usual.get(name))
    return Options(
        workload=work.name if is_ours else None,
        shape=(shape,) if shape else (),
        script=None if is_ours else "FILE.py",
        name=None if is_ours else work.name,
        dtype=work.dtype if is_ours and work.dtype != "float32" else None,
        interface=interface_key(changed) if changed else None,
        target=selector_of(target),
        threads=None if has_all else target.threads,
        db=db,
    )
