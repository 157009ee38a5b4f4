"""The rules by number: what the error messages name, and the documentation lists."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import ProgramError


@dataclass(frozen=True)
class Rule:
    """A promise that every program keeps, in words."""

    number: int
    title: str
    text: str


RULES = tuple(
    Rule(number, title, text)
    for number, (title, text) in enumerate(
        [
            (
                "Names",
                "A name is an identifier in its normal form, neither a Python keyword nor the script's namespace, and "
                "is bound once in a function. A let expression may bind its variable again to an equal value. Block "
                "names are not empty and differ.",
            ),
            (
                "Variables",
                "A variable is used only below the parameter, loop, iterator or let that binds it. Inside a block with "
                "iterators the loops around it are not visible.",
            ),
            (
                "Buffers in scope",
                "A buffer is used only where it is a parameter, allocated or declared, and as it was declared there.",
            ),
            (
                "Loops and iterators",
                "Kinds are known. Loop variables and iterators are scalar integers of the type of their extent and "
                "binding; a constant extent fits the type, that of a loop is at least 0, that of an iterator at least "
                "1. A thread belongs to a `thread_binding` loop, and only there.",
            ),
            (
                "Types",
                "Operands agree, conditions are bool, indices are as many integers as the buffer has dimensions, and a "
                "stored value has the buffer's type with lanes multiplied by the index's lanes. Constants fit their "
                "type, and scalar parameters have scalar types.",
            ),
            (
                "Blocks",
                "Bindings and predicate speak of what is around the block. A function's body is a block `root` without "
                "iterators, predicate and init.",
            ),
            ("Inits", "An init belongs to a block with reduce iterators, and uses none of them."),
            (
                "First instances",
                "Where there is an init, the instance with all reduce iterators 0 is executed for every spatial point "
                "that has an instance, and is its first.",
            ),
            (
                "Memory",
                "A buffer has a known type, positive extents, fewer than 2**63 bytes, a scope, and axis separators "
                "that ascend strictly between 0 and its rank.",
            ),
            (
                "Layouts",
                "A layout names a buffer parameter, at most one layout each, and has a logical shape of positive "
                "extents.",
            ),
            (
                "Views",
                "A declared buffer names as its data a buffer that owns memory and is in scope there; it is in the "
                "same scope and has no more bytes. Parameters and allocations own their memory.",
            ),
            (
                "Undef",
                "Undef is a value to store. It stands in no index, condition, comparison or binding, except in an "
                "assumption as `buffer[i] == undef`.",
            ),
            (
                "Form",
                "A sequence has at least two statements, none of them a sequence; an empty one stands alone as a "
                "body. Annotations and attributes have different keys, and values that are numbers, texts, None or "
                "tuples of such.",
            ),
            (
                "Modules",
                "Functions of a module have different names. Buffer parameters of one name are one buffer: they agree "
                "in everything, their layouts too.",
            ),
            (
                "Extents",
                "An extent that is no number is an int64 computed from the function's integers, and at least 1 by what "
                "is known of them. What is no parameter among these stands alone as an extent of one. Some values meet "
                "all of it.",
            ),
        ],
        1,
    )
)


def listing() -> str:
    """The rules as a numbered list in Markdown."""
    return "".join(f"{rule.number}. **{rule.title}.** {rule.text}\n" for rule in RULES)


class VerifyError(ProgramError, ValueError):
    """A program that breaks rule number `rule`."""

    def __init__(self, rule: int, message: str) -> None:
        self.rule = rule
        self.message = message
        super().__init__(f"rule {rule}: {message}")

    def __reduce__(self) -> tuple[type[VerifyError], tuple[int, str]]:
        return type(self), (self.rule, self.message)
