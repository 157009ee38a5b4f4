"""Mutated scripts give programs or clean errors, in bounded time, and run nothing."""

from __future__ import annotations

import ast
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from ir.script.seeds import SEEDS
from scale import scaled

from stridesmith.ir.script.parser import MAX_DEPTH, ScriptError, parse
from stridesmith.ir.stmt import Module, PrimFunc
from stridesmith.ir.verify.rules import VerifyError, verify

SECONDS = 20.0
WORDS = [
    "T.undef()", "T.float32(1)", "T.int8(3)", "T.Ramp(0, 1, 4)", "T.Ramp(0, 1, 10**9)", "T.Broadcast(1, 4)", "-1", "0",
    "1e999", "10**30", "9" * 30, "0.5", "None", "True", '"x"', "b'x'", "A", "A.data", "vi", "T", "T.axis.remap",
    "T.block('b')", "lambda x: x", "[i for i in range(3)]", "f'{A}'", "...", "*A", "**A", "x := 3", "await x", "yield",
    "A[0:4]", "A[::2]", "range(4)", "T.grid(2, 2)", "T.Let(x, where={x: 1})", "T.handle", "int", "__import__('os')",
    "open('x')", "not", "and", "if", "else:", "with", "for", ":", "(", ")", "[", "]", "{", "}", "=", "==", "@", ";",
    "\\", "'", '"""', "\n", "\t", "\x00", "é",
]  # fmt: skip

Mutation = Callable[[random.Random, str], str]


def tokens(text: str) -> list[str]:
    """Words, signs and spaces; joined they give the text."""
    return re.findall(r"\s+|\w+|[^\w\s]", text)


def swap_tokens(rng: random.Random, text: str) -> str:
    """Deletes, doubles, replaces or exchanges a few words."""
    words = tokens(text)
    for _ in range(rng.randint(1, 2)):
        at = rng.randrange(len(words))
        kind = rng.randrange(4)
        if kind == 0:
            words[at] = ""
        elif kind == 1:
            words[at] *= 2
        elif kind == 2:
            words[at] = " " + rng.choice(WORDS)
        else:
            other = rng.randrange(len(words))
            words[at], words[other] = words[other], words[at]
    return "".join(words)


def shuffle_lines(rng: random.Random, text: str) -> str:
    """Deletes, doubles, moves or indents a few lines."""
    lines = text.splitlines()
    for _ in range(rng.randint(1, 2)):
        at = rng.randrange(len(lines))
        line, kind = lines[at], rng.randrange(4)
        if kind == 0 and len(lines) > 1:
            del lines[at]
        elif kind == 1:
            lines.insert(rng.randrange(len(lines)), line)
        elif kind == 2:
            lines.insert(rng.randrange(len(lines)), lines.pop(at))
        else:
            lines[at] = "    " + line if rng.random() < 0.5 else line[4:]
    return "\n".join(lines) + "\n"


def splice(rng: random.Random, text: str) -> str:
    """Lines of another seed in the middle."""
    lines, other = text.splitlines(), rng.choice(SEEDS).splitlines()
    start = rng.randrange(len(other))
    part = other[start : start + rng.randint(1, 6)]
    at = rng.randrange(len(lines) + 1)
    return "\n".join(lines[:at] + part + lines[at:]) + "\n"


def trees(rng: random.Random, text: str) -> str:
    """Exchanges parts of the syntax tree: expressions, statements and names anywhere."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return text
    for _ in range(rng.randint(1, 3)):
        places = list(_places(tree))
        donors = [value for _, _, value in places]
        owner, key, value = rng.choice(places)
        kind = ast.stmt if isinstance(value, ast.stmt) else ast.expr
        fitting = [d for d in donors if isinstance(d, kind)]
        new = rng.choice(fitting)
        if isinstance(key, tuple):
            getattr(owner, key[0])[key[1]] = new
        else:
            setattr(owner, key, new)
        try:
            tree = ast.parse(ast.unparse(tree))
        except (SyntaxError, ValueError, RecursionError, AttributeError, TypeError):
            return text
    return ast.unparse(tree) + "\n"


def _places(tree: ast.AST) -> Iterator[tuple[ast.AST, str | tuple[str, int], ast.AST]]:
    for node in ast.walk(tree):
        for name, value in ast.iter_fields(node):
            if isinstance(value, (ast.expr, ast.stmt)):
                yield node, name, value
            elif isinstance(value, list):
                for number, item in enumerate(value):
                    if isinstance(item, (ast.expr, ast.stmt)):
                        yield node, (name, number), item


def outcome(text: str) -> str:
    """What parsing, verifying and printing `text` come to; whatever is no clean error is raised."""
    start = time.process_time()  # not the wall clock, which goes on while a busy machine does other things
    try:
        program = parse(text)
        for func in program.functions if isinstance(program, Module) else (program,):
            verify(func)
            assert isinstance(func, PrimFunc) and parse(func.script()) == func and parse(func.script("tvm")) == func
        return "program"
    except ScriptError as error:
        assert 1 <= error.line <= text.count("\n") + text.count("\r") + 1 and error.column >= 1 and error.message
        return "ScriptError"
    except VerifyError:
        return "VerifyError"
    finally:
        assert time.process_time() - start < SECONDS, f"takes too long:\n{text}"


pytestmark = pytest.mark.filterwarnings("ignore::SyntaxWarning")


@pytest.mark.parametrize("mutate", [swap_tokens, shuffle_lines, splice, trees])
def test_mutated_scripts_give_clean_errors(mutate: Mutation) -> None:
    """Whatever happens to the text, it is a program that survives printing, a ScriptError or a VerifyError."""
    found: Counter[str] = Counter()
    for seed in range(scaled(400)):
        rng = random.Random(f"{mutate.__name__} {seed}")
        text = rng.choice(SEEDS)
        for _ in range(rng.choice((1, 1, 2))):
            text = mutate(rng, text)
        try:
            found[outcome(text)] += 1
        except Exception as error:
            raise AssertionError(f"seed {seed} of {mutate.__name__} ends with {error!r}:\n{text}") from error
    print(dict(found))
    assert found["ScriptError"] and found["program"]


def test_parsing_runs_and_opens_nothing() -> None:
    """Parsing mutated texts executes, imports, opens and starts nothing: only syntax trees are built."""
    for text in SEEDS:
        outcome(text)
    texts = []
    for seed in range(scaled(200)):
        rng = random.Random(f"audit {seed}")
        texts.append(rng.choice([swap_tokens, splice, trees])(rng, rng.choice(SEEDS)))
    texts.append("import os\nos.system('true')\n" + SEEDS[0].replace("T.prim_func", "T.prim_func(__import__('os'))"))
    events: list[str] = []
    watching = True

    def hook(event: str, args: tuple[object, ...]) -> None:
        if watching and _forbidden(event, args):
            events.append(f"{event} {args!r}"[:200])

    sys.addaudithook(hook)
    try:
        for text in texts:
            with suppress(ScriptError):
                parse(text)
    finally:
        watching = False
    assert not events, events


def _forbidden(event: str, args: tuple[object, ...]) -> bool:
    """Everything that acts on the world, but for CPython's look for the lines of a file that cannot exist."""
    if event == "open" and args[0] == "/dev/null/script":
        return False
    acts = ("os.", "subprocess.", "socket.", "ctypes.", "shutil.")
    return event in ("exec", "import", "open") or event.startswith(acts)


LEVELS = 3 * MAX_DEPTH


def _nested(line: str, depth: int) -> str:
    lines = ["    " * (d + 1) + line.format(d) for d in range(depth)]
    return "\n".join([*lines, "    " * (depth + 1) + "A[0] = 1"])


DEEP = {
    "sum": "    A[0] = " + " + ".join(["A[0]"] * LEVELS),
    "parentheses": "    A[0] = " + "(" * 150 + "1" + ")" * 150,
    "more parentheses": "    A[0] = " + "(" * 5000 + "1" + ")" * 5000,
    "calls": "    A[0] = " + "T.exp(" * 150 + "A[0]" + ")" * 150,
    "nots": "    T.assume(" + "not " * 100000 + "True)",
    "minuses": "    A[0] = " + "-" * 50000 + "1",
    "attributes": "    A[0] = T" + ".a" * 50000,
    "loops": _nested("for i{} in range(2):", 90),
    "ifs": _nested("if A[0] < {}:", 98),
    "elifs": "    if A[0] < 1:\n        pass" + "\n    elif A[0] < 2:\n        pass" * LEVELS,
    "digits": "    A[0] = " + "9" * 10000,
    "hex": "    A[0] = 0x" + "f" * 10000,
    "products": "    for i in range(" + " * ".join(["99999999999"] * 100) + "):\n        A[0] = 1",
    "float": "    A[0] = T.float32(1e999 * 0) + T.float64(" + "9" * 400 + ")",
    "shape": "    B = T.alloc_buffer((" + "9" * 18 + ", " + "9" * 18 + "))\n    B[0, 0] = 1",
    "lanes": "    A[T.Ramp(0, 1, 99999)] = 1",
    "wide type": "    A[0] = T.Cast('float32x99999', A[0])",
    "tuple": "    A[" + ", ".join(["0"] * 10000) + "] = 1",
    "lines": "    A[0] = 1\n" * 2000,
}


@pytest.mark.parametrize("name", DEEP)
def test_deep_and_huge_texts_end_cleanly(name: str) -> None:
    """Neither the recursion limit nor memory nor time ends the parser: only its own errors do."""
    assert outcome('@T.prim_func\ndef f(A: T.Buffer((4,), "float32")):\n' + DEEP[name] + "\n")
