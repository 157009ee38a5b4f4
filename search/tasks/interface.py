"""Interfaces of tasks: who chooses the layout of each argument (`space.interface`), as texts and as users give them.

As a text an interface is one word for all arguments, or ``x=fixed,w=constant``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

from ...errors import UnknownParameter, UsageError, did_you_mean
from ...space.interface import PACKED_AHEAD, WHO, Who

if TYPE_CHECKING:
    from ...backends.artifact import Argument
    from ...space.workloads import Workload

Interface: TypeAlias = dict[str, Who]

LONGEST_NAME = 100
"""Characters of the name of an argument, or of a function, in a record."""
MOST_ARGUMENTS = 1024
"""Buffers of a function of which there are records."""


def interface_key(interface: Mapping[str, str]) -> str:
    """The canonical text of an interface: records of different interfaces are never compared."""
    if not isinstance(interface, Mapping):
        raise UsageError(
            f"the interface of records is a dict of words by the names of arguments, but got {interface!r}"
        )
    return ",".join(f"{name}={interface[name]}" for name in sorted(interface))


def pairs(text: str, what: str) -> dict[str, str]:
    """``a=1,b=2`` -> ``{"a": "1", "b": "2"}``.  Raises UsageError, which names `what` was given so."""
    found: dict[str, str] = {}
    for item in text.split(","):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not item.strip():
            continue
        if not equals or not name or not value:
            raise UsageError(f"{what} takes NAME=VALUE pairs such as `{what} a=1,b=2`, but got {item.strip()!r}")
        if name in found:
            raise UsageError(f"{what} names {name!r} twice, with {found[name]} and {value}")
        found[name] = value
    return found


def interface_of(work: Workload, *asked: str | Mapping[str, str] | None) -> Interface:
    """Who chooses each argument's layout: `constant` for declared weights, else `fixed`, unless `asked` otherwise.

    Each of `asked` is a text or a mapping, and goes before those on its left.  One word is meant for every argument
    that can have it: an output is never constant.
    """
    names = [b.name for b in work.func.buffers]
    result: Interface = {name: "constant" if name in work.constants else "fixed" for name in names}
    for wanted in asked:
        result.update(chosen_by(work.name, names, work.outputs, wanted))
    return result


def chosen_by(
    program: str, names: Sequence[str], outputs: Collection[str], wanted: str | Mapping[str, str] | None
) -> Interface:
    """Who chooses the layouts of those arguments of `program` that `wanted` speaks of, as `interface_of` has it.

    Raises UsageError for a word that is none, and UnknownParameter for a name that the program has not.
    """
    if isinstance(wanted, str) and wanted and "=" not in wanted:
        word = _known(wanted, wanted)
        return {n: "fixed" if word in PACKED_AHEAD and n in outputs else word for n in names}
    given = pairs(wanted, "--interface") if isinstance(wanted, str) else wanted or {}
    if not isinstance(given, Mapping):
        raise UsageError(
            f"an interface is one of {', '.join(WHO)}, for all arguments, or a dict of these words by the names of "
            f"arguments, but got {given!r}"
        )
    result: Interface = {}
    for name, text in given.items():
        if name not in names:
            hint = did_you_mean(name, names) or f"; there are {', '.join(names)}"
            raise UnknownParameter(f"`{program}` has no argument {name!r}{hint}")
        who = _known(text, f"{name}={text}")
        if who in PACKED_AHEAD and name in outputs:
            raise UsageError(f"`{name}` is an output of `{program}`, which cannot be {who}; use fixed or free")
        result[name] = who
    return result


def _known(word: str, item: str) -> Who:
    if not is_who(word):
        raise UsageError(
            f"the interface {item!r} is none of {', '.join(WHO)}{did_you_mean(word, WHO)}; write one of these words "
            "for all arguments, or NAME=WORD for each"
        )
    return word


def is_who(word: str) -> TypeGuard[Who]:
    """Whether a text is one of the words."""
    return word in WHO


def breach(interface: Mapping[str, str], arguments: Iterable[Argument], given: Iterable[Argument] = ()) -> str:
    """Why a kernel breaks an interface: it moves a ``fixed`` argument.  Empty where it keeps it.

    `given` are those of the program as it was written, which may have layouts itself; without one they have none.
    """

    own = {argument.name: argument for argument in given}
    for argument in arguments:
        at = own.get(argument.name)
        padded_alike = at is None or at.layout.is_in_place or argument.layout.pad_value == at.layout.pad_value
        stays = padded_alike and (argument.layout.is_in_place if at is None else argument.layout.same_memory(at.layout))
        if interface.get(argument.name, "free") == "fixed" and not stays:
            return (
                f"`{argument.name}` is fixed, but this schedule wants it as `{argument.index_map or 'plain'}` of shape "
                f"{argument.physical_shape}; call it free or constant"
            )
    return ""
