"""The primitive calls of apache-tvm's schedule tests: does ours, by the same name, make an equivalent program?

``python benchmarks/tvm_primitives.py --python tvm-venv/bin/python tvm/tests/python/s_tir/schedule`` takes an
environment with apache-tvm and pytest, and its tests, which are run there.  Each call of a primitive is noted with the
program before and after it, both as text; blocks and loops by their places.  Here the program before is read, the
primitive of the same name is called with the same arguments, and what comes out is run beside the program that
apache-tvm made of it, on the same integers.  A call ends as

    equal       both programs compute the same, or are one but for names and what `simplify` does
    refused     both refuse the call
    accepted    refused there, and legal here: the program computes what it did before
    stricter    legal there, and refused here
    no such     there is no primitive of that name here
    not read    one of the programs, or an argument, is not read here
    not run     the programs cannot be run here, or not in time: texts of calls of other libraries, large loops
    different   other results

A table by primitive, and one by file of tests; with ``--show`` the reasons of all calls that are not equal, refused or
accepted.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import stridesmith as ss
from stridesmith.backends.samples import statements
from stridesmith.errors import ProgramError
from stridesmith.ir.dtypes import is_float
from stridesmith.ir.expr import Buffer
from stridesmith.ir.interpreter.interpret import InterpreterError
from stridesmith.ir.passes.renaming import canonical
from stridesmith.ir.ranges import fixed
from stridesmith.ir.stmt import Block, For, Module, PrimFunc, Stmt, stmt_children

ENDS = ("equal", "refused", "accepted", "stricter", "no such", "not read", "not run", "different")
GOOD = ENDS[:3]
SECONDS = 10
"""Of processor time for one call."""
STATEMENTS = 5e6
"""Of a program that is run."""
SIZE = 8
"""What integers that are arguments are."""

RECORDER = """
import inspect, json, os
import tvm
from tvm import s_tir, tirx
from tvm.s_tir.schedule.schedule import Schedule, SBlockRV, LoopRV

OWN = set("mod state trace func_working_on work_on copy seed fork_seed show get get_sref remove_rv get_sblock "
          "get_loops get_child_blocks get_producers get_consumers get_output_blocks can_decompose_padding "
          "enter_postproc sample_categorical sample_perfect_tile sample_partitioned_tile "
          "sample_compute_location".split())
OUT, depth, found, test = os.environ["RECORDED"], 0, [], [""]

def nodes(func, kind):
    seen = []
    def visit(node):
        for item in node if type(node).__name__ in ("Array", "List", "list") else (node,):
            for name in ("block", "init", "body", "then_case", "else_case", "seq"):
                child = getattr(item, name, None)
                if child is not None:
                    visit(child)
            if isinstance(item, kind):
                seen.append(item)
    visit(func.body)
    return seen

def number(items, node):
    return next(k for k, n in enumerate(items) if n.same_as(node))

def map_of(function, ranks):
    for rank in ranks:
        try:
            made = tirx.IndexMap.from_func(function, ndim=rank, index_dtype="int32")
            names = ", ".join(str(v.name) for v in made.initial_indices)
            return "lambda " + names + ": [" + ", ".join(map(str, made.final_indices)) + "]"
        except Exception as error:
            last = error
    raise ValueError("no map: " + str(last))

def plain(sch, func, key, value, ranks):
    if isinstance(value, SBlockRV):
        return {"block": number(nodes(func, s_tir.SBlock), sch.get(value))}
    if isinstance(value, LoopRV):
        return {"loop": number(nodes(func, tirx.For), sch.get(value))}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)) or type(value).__name__ == "Array":
        return [plain(sch, func, key, v, ranks) for v in value]
    if isinstance(value, dict) or type(value).__name__ == "Map":
        return {"dict": {str(k): plain(sch, func, key, v, ranks) for k, v in value.items()}}
    if isinstance(getattr(value, "value", None), (int, float, str)):  # constants of TIR
        return value.value
    if isinstance(value, tirx.IndexMap):
        names = ", ".join(str(v.name) for v in value.initial_indices)
        return {"map": "lambda " + names + ": [" + ", ".join(map(str, value.final_indices)) + "]"}
    if callable(value) and not isinstance(value, tvm.ir.Expr):
        return {"map": map_of(value, ranks)}
    got = sch.get(value)
    return int(got)

def ranks_of(sch, args):
    found = [None]
    for a in args:
        if isinstance(a, SBlockRV):
            block = sch.get(a)
            found += [len(r.region) for r in [*block.writes, *block.reads]] + [len(block.iter_vars)]
    return found

def note(name, method):
    signature = inspect.signature(method)
    def call(self, *args, **kwargs):
        global depth
        if depth:
            return method(self, *args, **kwargs)
        entry = None
        try:
            functions = [g for g, f in self.mod.functions.items() if isinstance(f, tirx.PrimFunc)]
            if len(functions) == 1:
                key, func = functions[0].name_hint, self.mod[functions[0]]
                ranks = ranks_of(self, [*args, *kwargs.values()])
                bound = signature.bind(self, *args, **kwargs).arguments
                pairs = list(bound.items())[1:]
                entry = dict(test=test[0], name=name, function=key, before=func.script(), after=None, error="",
                             args={k: plain(self, func, k, v, ranks) for k, v in pairs})
                if name == "tensorize" and isinstance(entry["args"].get("tensor_intrin"), str):
                    intrinsic = tirx.TensorIntrin.get(entry["args"]["tensor_intrin"])
                    entry["intrinsic"] = [intrinsic.desc.script(), intrinsic.impl.script()]
        except Exception as error:
            entry = dict(test=test[0], name=name, unread=type(error).__name__ + ": " + str(error)[:200])
        depth += 1
        try:
            result = method(self, *args, **kwargs)
        except Exception as error:
            if entry is not None:
                entry["error"] = (str(error).strip().splitlines() or [type(error).__name__])[-1][:300]
                found.append(entry)
            raise
        finally:
            depth -= 1
        if entry is not None:
            if "before" in entry:
                entry["after"] = self.mod[entry["function"]].script()
            found.append(entry)
        return result
    return call

for name, method in list(vars(Schedule).items()):
    if inspect.isfunction(method) and not name.startswith("_") and name not in OWN:
        setattr(Schedule, name, note(name, method))

def pytest_runtest_call(item):
    test[0] = item.nodeid

def pytest_sessionfinish(session):
    json.dump(found, open(OUT, "w"))
"""


def recorded(python: str, tests: list[Path], folder: Path) -> list[dict[str, Any]]:
    """The calls of all tests, in order."""
    (folder / "recorder.py").write_text(RECORDER, encoding="utf-8")
    out = folder / "calls.json"
    command = [
        python,
        "-m",
        "pytest",
        "-q",
        "-p",
        "recorder",
        "-p",
        "no:cacheprovider",
        "--continue-on-collection-errors",
        *map(str, tests),
    ]
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(folder), "RECORDED": str(out)}
    subprocess.run(command, env=env, check=False, stdout=subprocess.DEVNULL)
    calls: list[dict[str, Any]] = json.loads(out.read_text(encoding="utf-8"))
    return calls


class NotRead(Exception):
    """A program or an argument that is not read here."""


class NotRun(Exception):
    """Programs that cannot be run here."""


def read(text: str) -> PrimFunc:
    """A program as apache-tvm prints it."""
    try:
        program = ss.parse(text, integers="int32")
        func = program.functions[0] if isinstance(program, Module) else program
        ss.verify(func)
    except (ss.ScriptError, ss.VerifyError, NotImplementedError) as error:
        raise NotRead(f"{type(error).__name__}: {str(error).splitlines()[0]}") from None
    assert isinstance(func, PrimFunc)
    return func


def nested(stmt: Stmt, kind: type[For] | type[Block]) -> Iterator[Any]:
    """The loops or blocks below a statement as apache-tvm visits them, the inner ones first."""
    for child in stmt_children(stmt):
        yield from nested(child, kind)
    if isinstance(stmt, kind):
        yield stmt


def argument(func: PrimFunc, key: str, value: Any) -> Any:
    """An argument with the names that blocks and loops have here."""
    if isinstance(value, list):
        return [argument(func, key, v) for v in value]
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "block":
        return [b.name for b in nested(func.body, Block)][inner]
    if kind == "loop":
        return [s.var.name for s in nested(func.body, For)][inner]
    if kind == "dict":
        return {k: argument(func, k, v) for k, v in inner.items()}
    return inner if key == "pad_value" else ss.IndexMap.parse(inner)


def scheduled(func: PrimFunc, call: Mapping[str, Any]) -> PrimFunc:
    """What the primitive of the same name makes of the program.  Raises ScheduleError and NotRead."""
    sch = ss.Schedule(func)
    try:
        named = {key: argument(sch.func, key, value) for key, value in call["args"].items()}
    except (ProgramError, ValueError, IndexError) as error:
        raise NotRead(f"an argument: {error}") from None
    positional = [v for k, v in named.items() if k in STARRED]
    rest = {k: v for k, v in named.items() if k not in STARRED}
    if call["name"] == "tensorize" and "intrinsic" in call:
        name = f"tvm_{len(INTRINSICS)}"
        desc, impl = map(read, call["intrinsic"])
        rest["tensor_intrin"] = INTRINSICS.setdefault(named["tensor_intrin"], name)
        if rest["tensor_intrin"] == name:
            ss.TensorIntrin.register(name, desc, impl)
    getattr(sch, call["name"])(*(positional[0] if positional else ()), **rest)
    return sch.func


STARRED = ("loops", "ordered_loops")
INTRINSICS: dict[str, str] = {}


def results(func: PrimFunc, strict: bool) -> dict[int, Any]:
    """What the function leaves in its buffers, by their places, from small integers that their places decide."""
    arrays: list[Any] = []
    shapes = func if all(b.is_fixed for b in func.buffers) else fixed(func, dict.fromkeys(func.integers, SIZE))
    count = statements(shapes)
    if count > STATEMENTS:
        raise NotRun(f"{count:.1e} statements")
    for place, param in enumerate(shapes.params):
        rng = np.random.default_rng(place)
        if not isinstance(param, Buffer):
            arrays.append(SIZE)
            continue
        numbers = rng.integers(-2, 3, param.shape) if is_float(param.dtype) else rng.integers(0, 3, param.shape)
        arrays.append(numbers.astype(param.dtype))
    try:
        ss.interpret(func, *arrays, strict_state=strict)
    except InterpreterError as error:
        raise NotRun(str(error)) from None
    return {k: a for k, a in enumerate(arrays) if isinstance(a, np.ndarray)}


def compare(ours: PrimFunc, theirs: PrimFunc) -> str:
    """Why the programs compute something different; empty if they do not, or are one program but for names."""
    ours, theirs = (canonical(ss.transform.simplify(replace(f, attrs=()))) for f in (ours, theirs))
    if ours == theirs:
        return ""
    try:
        one = results(theirs, strict=True)
        other = results(ours, strict=True)
    except NotRun:
        one, other = results(theirs, strict=False), results(ours, strict=False)
    for place, array in one.items():
        got = other.get(place)
        if got is None or got.shape != array.shape:
            return f"argument {place} has shape {None if got is None else got.shape}, and {array.shape} there"
        rough = 1e-2 if array.dtype.itemsize < 4 else 1e-5
        if not np.allclose(got.astype("float64"), array.astype("float64"), rough, rough, equal_nan=True):
            return f"argument {place} differs"
    return ""


def judge(call: Mapping[str, Any]) -> tuple[str, str]:
    """How a call ends, and why."""
    if "before" not in call:
        return "not read", call["unread"]
    if not hasattr(ss.Schedule(ss.parse(EMPTY)), call["name"]):
        return "no such", call["name"]
    try:
        before = read(call["before"])
        after = None if call["after"] is None else read(call["after"])
        try:
            ours = scheduled(before, call)
        except (ss.ScheduleError, ProgramError, TypeError, ValueError) as error:
            return ("refused" if after is None else "stricter"), str(error)
        if after is None:
            why = compare(ours, before)
            return ("different" if why else "accepted"), why or call["error"]
        why = compare(ours, after)
        return ("different" if why else "equal"), why
    except NotRead as error:
        return "not read", str(error)
    except NotRun as error:
        return "not run", str(error)
    except Exception as error:
        return "different", f"{type(error).__name__}: {error}"


EMPTY = '@T.prim_func\ndef f(A: T.Buffer((1,), "float32")):\n    A[0] = T.float32(0)\n'


class Late(BaseException):
    """The time of a call is over; nothing that handles exceptions takes it for one of its own."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises Late after `seconds` of processor time, and again each second where a callback of C loses it."""

    def late(*_: object) -> None:
        raise Late

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def judged(call: Mapping[str, Any], seconds: float = SECONDS) -> tuple[str, str]:
    """How a call ends within its time, and why."""
    try:
        with limited(seconds):
            return judge(call)
    except Late:
        return "not run", f"more than {seconds:g} s of processor time"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--python", required=True, help="of an environment with apache-tvm and pytest")
    options.add_argument("--show", action="store_true", help="the reasons of calls that did not end well")
    options.add_argument("--calls", type=Path, help="a file that keeps the recorded calls, so that they are made once")
    options.add_argument("--only", default="", help="primitives whose name contains this")
    options.add_argument("tests", type=Path, nargs="+")
    chosen = options.parse_args()
    if chosen.calls is not None and chosen.calls.exists():
        calls = json.loads(chosen.calls.read_text(encoding="utf-8"))
    else:
        with tempfile.TemporaryDirectory() as name:
            calls = recorded(chosen.python, chosen.tests, Path(name))
        if chosen.calls is not None:
            chosen.calls.write_text(json.dumps(calls), encoding="utf-8")
    show(calls, [c for c in calls if chosen.only in c["name"]], reasons=chosen.show)


def show(calls: Sequence[Mapping[str, Any]], asked: Sequence[Mapping[str, Any]], reasons: bool) -> None:
    """Judge what is `asked` once each, and print the tables: by file the programs of all calls, too."""
    ends: dict[str, tuple[str, str]] = {}
    primitives: dict[str, Counter[str]] = {}
    files: dict[str, Counter[str]] = {}
    found: dict[tuple[str, str, str], list[str]] = {}
    for call in asked:
        key = json.dumps({k: v for k, v in call.items() if k not in ("test", "error")}, sort_keys=True)
        if key in ends:
            continue
        ends[key] = end, why = judged(call)
        primitives.setdefault(call["name"], Counter())[end] += 1
        files.setdefault(_file(call), Counter())[end] += 1
        reason = call["name"], end, re.sub(r"\d+", "N", re.sub(r"`[^`]*`", "`_`", why))[:160]
        found.setdefault(reason, []).append(f"{call['test'].rpartition('/')[2]}: {why[:400]}")
    _table("primitive", primitives, {})
    print()
    texts: dict[str, dict[str, bool]] = {}
    for call in calls:
        for text in (call.get("before"), call.get("after")):
            if text is not None and text not in texts.setdefault(_file(call), {}):
                texts[_file(call)][text] = _is_read(text)
    _table("file", files, {k: f"{sum(v.values())} of {len(v)}" for k, v in texts.items()})
    for (name, end, _), items in sorted(found.items(), key=lambda item: -len(item[1])) if reasons else ():
        if end not in GOOD:
            print(len(items), name, end, "|", items[0])


def _file(call: Mapping[str, Any]) -> str:
    name: str = call["test"].partition("::")[0].rpartition("/")[2]
    return name.removeprefix("test_tir_schedule_").removesuffix(".py")


def _is_read(text: str) -> bool:
    try:
        with limited(SECONDS):
            read(text)
    except (NotRead, Late):
        return False
    return True


def _table(first: str, counts: Mapping[str, Counter[str]], programs: Mapping[str, str]) -> None:
    head = [first, *(["programs read"] if programs else []), "calls", *ENDS]
    print("| " + " | ".join(head) + " |\n|---|" + "---:|" * (len(head) - 1))
    for name, own in (*sorted(counts.items()), ("all", sum(counts.values(), Counter()))):
        cells = [name, *([programs.get(name, "")] if programs else []), str(sum(own.values()))]
        print("| " + " | ".join([*cells, *(str(own[e] or "") for e in ENDS)]) + " |")


if __name__ == "__main__":
    main()
