"""Random OpenCL candidates, and spoilt programs, under oclgrind: what a CPU's driver would hide.

    apt-get install oclgrind
    python benchmarks/oclgrind.py [--count 300] [--seed 0] [--processes 1] [--out oclgrind.jsonl]

oclgrind interprets each work-item and reports accesses outside of a buffer, data races inside and between work-groups
(those of equal values too), barriers that not all items of a group reach, and values that nobody has written.  The last
are not asked for where they would be false: of images, since it takes all texels for such, and of programs that compute
on padding which may hold anything, since it takes a vector for such as a whole.
Candidates are drawn at random from the spaces of the small operators in `OPERATORS`, in turns for a CPU's vectors and
for a GPU's work-groups, local memory and images.  Buffers have no guard zones, and outputs and workspaces are not
filled, so that nothing is written or valid but what the program is given.  Results are compared with the reference.

`MUTANTS` are right sources with one mistake each: a barrier removed, a guard dropped, an index past the end.  The
exit code is 1 if a candidate was reported, wrong or not built, or a mutant was not reported.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from stridesmith.backends.artifact import Argument, Artifact
    from stridesmith.backends.samples import Sample
    from stridesmith.ir.stmt import PrimFunc
    from stridesmith.ir.target import Target
    from stridesmith.space.design.space import Space
    from stridesmith.space.workloads import Workload

LIBRARIES = ("/usr/lib/oclgrind/liboclgrind-rt-icd.so", "/usr/local/lib/liboclgrind-rt-icd.so")
SETTINGS = {
    "OCLGRIND_DATA_RACES": "1", "OCLGRIND_UNIFORM_WRITES": "1", "OCLGRIND_NUM_THREADS": "1",
    # The interpreter knows no `freeze`, which the optimizer makes; and what that leaves out was in the source.
    "OCLGRIND_BUILD_OPTIONS": "-cl-opt-disable",
    "OCLGRIND_MAX_ERRORS": "1000000",  # of a process, all of its programs together
    "PYOPENCL_NO_CACHE": "1",
}  # fmt: skip
LOG, UNINITIALIZED = "OCLGRIND_LOG", "OCLGRIND_UNINITIALIZED"
KINDS: dict[str, dict[str, Any]] = {
    "cpu": {"vector_bits": 256, "max_vector_bits": 512, "threads": 4, "units": 4, "max_work_group": 64},
    "gpu": {"vector_bits": 128, "registers": 64, "threads": 8, "units": 8, "max_work_group": 64,
            "is_cpu_device": False, "warp": 8},
}  # fmt: skip
"""What the simulated device is taken for."""

OPERATORS = (
    "conv2d(ci=5,co=7,h=9,w=7,k=3,pad=1)", "conv2d(ci=6,co=10,h=7,w=9,k=3,pad=1,stride=2)",
    "conv2d(ci=9,co=13,h=5,w=7,k=1)", "conv2d(ci=3,co=5,h=9,w=9,k=3,pad=2,dilation=2)",
    "conv2d(ci=4,co=6,h=6,w=7,k=5,pad=2,layout=nhwc)", "conv2d_bias_act(ci=4,co=9,h=6,w=5,k=3,pad=1)",
    "depthwise_conv2d(c=7,h=9,w=11,k=3,pad=1)", "depthwise_conv2d(c=10,h=8,w=7,k=3,pad=1,stride=2)",
    "conv2d_transpose(ci=5,co=6,h=4,w=5,k=3,stride=2,pad=1)", "conv1d(ci=5,co=9,w=23,k=3,pad=1)",
    "conv3d(ci=3,co=4,d=4,h=5,w=4,k=3,pad=1)", "matmul(m=13,n=17,k=11)", "matmul(m=33,n=19,k=23)",
    "matmul(m=1,n=61,k=37)", "matmul_bias_act(m=11,n=21,k=9)", "batch_matmul(b=3,m=9,n=10,k=7)",
    "max_pool2d(c=5,h=9,w=8,k=3,stride=2,pad=1)", "avg_pool2d(c=6,h=7,w=9,k=2)", "global_avg_pool2d(c=11,h=5,w=7)",
    "softmax(rows=7,cols=29)", "layernorm(rows=9,cols=21)", "scale_shift_relu(rows=9,cols=21)",
    "grouped_conv2d(ci=8,co=12,h=7,w=6,k=3,stride=1,groups=4,layout=nchw)", "attention_row(heads=2,rows=7,d=9)",
    "reduction(shape=9x13x5,axes=0x2,op=sum)", "softmax_axis(n=2,c=9,pixels=13)",
    "group_norm(groups=3,each=4,pixels=7)", "rms_norm(rows=5,cols=19)", "cumulative_sum(rows=7,cols=12,axis=1)",
    "broadcast(shapes=3x5x7+5x1,op=add,act=relu)",
    "pixel_shuffle(c=3,h=5,w=4,r=2)", "interpolation(c=3,h=4,w=5,oh=9,ow=7,mode=linear,layout=nchw)",
)  # fmt: skip
BATCH = 5
Line = dict[str, Any]


# ------------------------------------------------------------------- oclgrind


def library() -> Path | None:
    """oclgrind as an OpenCL driver, if it is installed."""
    program = shutil.which("oclgrind")
    beside = [str(Path(program).resolve().parents[1] / "lib" / "liboclgrind-rt-icd.so")] if program else []
    return next((path for path in map(Path, (*LIBRARIES, *beside)) if path.exists()), None)


def settle(folder: Path) -> None:
    """Let processes that are started from now on see oclgrind as a driver that reports all that it can."""
    found = library()
    if found is None:
        raise SystemExit("oclgrind.py: oclgrind is not installed; on Debian: apt-get install oclgrind")
    (folder / "oclgrind.icd").write_text(f"{found}\n")
    os.environ.update(SETTINGS, OCL_ICD_VENDORS=str(folder), **{LOG: str(folder / "log")})


@lru_cache(maxsize=2)
def device(kind: str) -> Target:
    """The simulated device, taken for one of a kind."""
    from stridesmith.backends.devices import discover

    return replace(discover("opencl:oclgrind"), **KINDS[kind])


def outputs_of(
    artifact: Artifact, arguments: Sequence[Argument], sample: Sample, log: Path, defined: bool = True
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Run a program once on a sample's inputs, outputs and workspaces not filled; its outputs and the reports.

    Where it is not all `defined`, values that nobody has written are not reported.
    """
    from stridesmith.backends.data import pack, unpack
    from stridesmith.backends.opencl.runtime import OpenCLExecutable
    from stridesmith.backends.verification import POISONS, poisoned_like

    log.unlink(missing_ok=True)
    # Both are read when a context is made, and a program has one of its own.
    os.environ[LOG], os.environ[UNINITIALIZED] = str(log), str(int(defined))
    bound = OpenCLExecutable(artifact).bind()
    for index, argument in enumerate(arguments):
        if not argument.is_output:
            fill = poisoned_like(np.empty(argument.physical_shape, argument.dtype), POISONS[0])
            bound.write(index, pack(argument, sample.inputs[argument.name], fill))
    bound.run()
    outputs = {
        argument.name: unpack(argument, bound.read(index).reshape(argument.physical_shape))
        for index, argument in enumerate(arguments)
        if argument.is_output
    }
    del bound
    gc.collect()
    return outputs, reports(log)


def reports(log: Path) -> list[str]:
    """The first line of each report: what follows is indented.  Numbers of addresses are left out."""
    text = log.read_text(errors="replace") if log.exists() else ""
    lines = [line for line in text.splitlines() if line.strip() and not line[0].isspace()]
    return [re.sub(r" (memory )?address 0x[0-9a-f]+", "", line) for line in lines]


# ------------------------------------------------------------------- candidates


@dataclass(frozen=True)
class Portion:
    """Some of the candidates, by number, of an operator on a kind of device."""

    operator: str
    kind: str
    numbers: tuple[int, ...]


def portions(count: int, done: set[tuple[str, str, int]]) -> Iterator[Portion]:
    """What is left to do of so many candidates, a few of each operator and kind in turn."""
    places = [(operator, kind) for number, operator in enumerate(OPERATORS)
              for kind in sorted(KINDS, reverse=bool(number % 2))]  # fmt: skip
    places = places[::2] + places[1::2]  # so that a few candidates are of all operators
    each, rest = divmod(count, len(places))
    for start in range(0, each + 1, BATCH):
        for position, (operator, kind) in enumerate(places):
            stop = min(start + BATCH, each + (position < rest))
            left = tuple(n for n in range(start, stop) if (operator, kind, n) not in done)
            if left:
                yield Portion(operator, kind, left)


@lru_cache(maxsize=4)
def spaces_of(operator: str, kind: str) -> tuple[Workload, tuple[Space, ...]]:
    """The program of an operator, and its spaces: one whose weights are constants, one whose inputs are free."""
    from named import parsed

    from stridesmith.search.tasks.interface import interface_of
    from stridesmith.space.design.space import generate

    named = parsed(operator, None).operator
    work = named.work
    fixed = {name: "constant" if name in named.constants else "fixed" for name in work.inputs}
    asked = (fixed, dict.fromkeys(work.inputs, "free"))
    return work, tuple(generate(work.func, device(kind), interface_of(work, each)) for each in asked)


UNFENCED = "#define LOAD_AGAIN()\n"
"""Before a program: oclgrind ends at the fence that keeps compilers from merging loads, and merges none itself.

Memories are apart there, so that padding is read behind a branch (see `Helpers.load_or`).
"""


def examine(portion: Portion, seed: int, log: Path, out: Path) -> int:
    """Append the lines of a portion to the file; how many there were.  Runs in a process of the pool."""
    for number in portion.numbers:
        line = {"operator": portion.operator, "kind": portion.kind, "seed": seed, "number": number}
        line |= examined(portion.operator, portion.kind, number, seed, log.with_name(f"log-{os.getpid()}"))
        with out.open("ab", buffering=0) as file:
            os.write(file.fileno(), json.dumps(line).encode() + b"\n")
    return len(portion.numbers)


def examined(operator: str, kind: str, number: int, seed: int, log: Path) -> Line:
    """Draw a candidate, run it, and tell what became of it."""
    from candidates import drawn

    from stridesmith.backends.data import arguments_of
    from stridesmith.backends.lower import lower
    from stridesmith.backends.opencl.runtime import write_opencl
    from stridesmith.backends.samples import make_samples
    from stridesmith.backends.verification import compare
    from stridesmith.errors import ProgramError, WrongResult

    work, spaces = spaces_of(operator, kind)
    space = spaces[number % len(spaces)]
    rng = np.random.default_rng([seed, number, zlib.crc32(f"{operator} {kind}".encode())])
    found = drawn(space, rng, Counter())
    if found is None:
        return {"status": "masked"}
    sketch = space.sketches[found[0]]
    line: Line = {"sketch": sketch.name, "choice": found[1]}
    try:
        func: PrimFunc = sketch.schedule(found[1]).func
        artifact = write_opencl(lower(func, device(kind)), device(kind))
        artifact["code"] = UNFENCED + artifact["code"]
    except ProgramError as error:
        return line | {"status": "refused", "message": str(error)[:500]}
    line |= uses(artifact)
    line["defined"] = not line["images"] and "undef" not in func.script()
    sample = make_samples(work.func, work.reference, seed + 1)[0]
    try:
        outputs, told = outputs_of(artifact, arguments_of(func), sample, log, line["defined"])
        compare(sample, outputs)
    except ProgramError as error:
        return line | {"status": "not built", "message": str(error)[:500]}
    except WrongResult as error:
        return line | {"status": "wrong", "message": str(error)[:500], "reports": reports(log)}
    return line | {"status": "reported" if told else "ok", "reports": told}


def uses(artifact: Artifact) -> Line:
    """What a program has that oclgrind looks at: its source's barriers, work-items of a group, and memories."""
    code = artifact["code"]
    return {
        "items": max(int(np.prod(launch["local"])) for launch in artifact["launches"]),
        "kernels": len(artifact["launches"]), "barriers": code.count("barrier("),
        "local": "__local " in code, "images": "image2d_t" in code, "vectors": bool(re.search(r"\bfloat\d", code)),
    }  # fmt: skip


# ------------------------------------------------------------------- mutants

PRODUCT = """
@T.prim_func
def product(a: T.Buffer((10, 7), "float32"), b: T.Buffer((7, 13), "float32"), c: T.Buffer((10, 13), "float32")):
    left = T.alloc_buffer((4, 4), "float32", scope="shared")
    right = T.alloc_buffer((4, 4), "float32", scope="shared")
    total = T.alloc_buffer((4, 4), "float32", scope="shared")
    for i in T.thread_binding(3, thread="blockIdx.y"):
        for j in T.thread_binding(4, thread="blockIdx.x"):
            for y0 in T.thread_binding(4, thread="threadIdx.y"):
                for x0 in T.thread_binding(4, thread="threadIdx.x"):
                    total[y0, x0] = T.float32(0)
            for k in range(2):
                for y1 in T.thread_binding(4, thread="threadIdx.y"):
                    for x1 in T.thread_binding(4, thread="threadIdx.x"):
                        left[y1, x1] = T.if_then_else(
                            i * 4 + y1 < 10 and k * 4 + x1 < 7, a[i * 4 + y1, k * 4 + x1], T.float32(0))
                for y2 in T.thread_binding(4, thread="threadIdx.y"):
                    for x2 in T.thread_binding(4, thread="threadIdx.x"):
                        right[y2, x2] = T.if_then_else(
                            k * 4 + y2 < 7 and j * 4 + x2 < 13, b[k * 4 + y2, j * 4 + x2], T.float32(0))
                for y3 in T.thread_binding(4, thread="threadIdx.y"):
                    for x3 in T.thread_binding(4, thread="threadIdx.x"):
                        total[y3, x3] = (total[y3, x3] + left[y3, 0] * right[0, x3] + left[y3, 1] * right[1, x3]
                                         + left[y3, 2] * right[2, x3] + left[y3, 3] * right[3, x3])
            for y4 in T.thread_binding(4, thread="threadIdx.y"):
                for x4 in T.thread_binding(4, thread="threadIdx.x"):
                    if i * 4 + y4 < 10 and j * 4 + x4 < 13:
                        c[i * 4 + y4, j * 4 + x4] = total[y4, x4]
"""
REVERSED = """
@T.prim_func
def reversed(a: T.Buffer((24,), "float32"), b: T.Buffer((24,), "float32"), s: T.Buffer((3,), "float32")):
    row = T.alloc_buffer((8,), "float32", scope="shared")
    for g in T.thread_binding(3, thread="blockIdx.x"):
        for t in T.thread_binding(8, thread="threadIdx.x"):
            row[t] = a[g * 8 + t]
        for u in T.thread_binding(8, thread="threadIdx.x"):
            b[g * 8 + u] = row[7 - u]
        for v in T.thread_binding(1, thread="threadIdx.x"):
            s[g] = row[0] + row[7]
"""
"""A product in panels through local memory, and rows that are reversed in it while one item adds their ends."""

BARRIER = r"[ ]*barrier\(CLK_LOCAL_MEM_FENCE\);\n"


@dataclass(frozen=True)
class Mutant:
    """A mistake in the source of a program: the `which`-th match of `pattern` is replaced by `text`."""

    name: str
    program: str
    pattern: str
    text: str
    which: int = 0

    def spoil(self, code: str) -> str:
        """The source with the mistake.  Raises ValueError where it has no such place."""
        matches = list(re.finditer(self.pattern, code))
        if len(matches) <= self.which:
            raise ValueError(f"mutant `{self.name}`: the source has no {self.pattern!r} number {self.which}:\n{code}")
        match = matches[self.which]
        return code[: match.start()] + match.expand(self.text) + code[match.end() :]


MUTANTS = (
    Mutant("no barrier between the copies and the product", PRODUCT, BARRIER, "", 1),
    Mutant("no barrier before the next panel", PRODUCT, BARRIER, "", 2),
    Mutant("no barrier between two loops over items", REVERSED, BARRIER, ""),
    Mutant("a barrier that orders another memory", REVERSED, "CLK_LOCAL_MEM_FENCE", "CLK_GLOBAL_MEM_FENCE"),
    Mutant("a barrier below a condition on the item", PRODUCT, f"(?=({BARRIER}))", "if (get_local_id(0) < 3)\n", 1),
    Mutant("a row's guard dropped in a load", PRODUCT, r"\(\(i \* 4\) \+ y1\) < 10", "1"),
    Mutant("a column's guard dropped in a store", PRODUCT, r"\(\(j \* 4\) \+ x4\) < 13", "1"),
    Mutant("an index past the end", REVERSED, r"b\[(\w+)\]", r"b[\1 + 1]"),
    Mutant("local memory one element short", PRODUCT, r"float left\[16\]", "float left[15]"),
    Mutant("one panel too many", PRODUCT, r"\(\(k \* 4\) \+ y2\) < 7", "((k * 4) + y2) < 8"),
    Mutant("no work-group's number", REVERSED, r"\(int\)get_group_id\(0\)", "0"),
    Mutant("an item's guard dropped", REVERSED, r"if \(v < 1\)", "if (v < 2)"),
    Mutant("sums that start from nothing", PRODUCT, r"total\[\w+\] = 0\.0f;", ";"),
)  # fmt: skip


def mutate(log: Path) -> list[Line]:
    """For each program as it is, and for each mutant, its reports and whether the result was right."""
    found = []
    for name, program, mutant in [("as it is", p, None) for p in (PRODUCT, REVERSED)] + [
        (m.name, m.program, m) for m in MUTANTS
    ]:
        artifact, arguments, sample = prepared(program)
        code = artifact["code"] if mutant is None else mutant.spoil(artifact["code"])
        outputs, told = outputs_of({**artifact, "code": code}, arguments, sample, log)  # type: ignore[typeddict-item]
        right = all(np.array_equal(outputs[n], sample.expected[n]) for n in outputs)
        found.append({"mutant": name, "is_mutant": mutant is not None, "reports": told, "right": right})
    return found


@lru_cache(maxsize=2)
def prepared(program: str) -> tuple[Artifact, tuple[Argument, ...], Sample]:
    """A program's source, its parameters, and inputs with the right outputs."""
    import stridesmith as ss
    from stridesmith.backends.data import arguments_of
    from stridesmith.backends.lower import lower
    from stridesmith.backends.opencl.runtime import write_opencl
    from stridesmith.backends.samples import make_samples

    func = ss.parse(program)
    work = ss.from_func(func)
    artifact = write_opencl(lower(work.func, device("gpu")), device("gpu"))
    return artifact, arguments_of(work.func), make_samples(work.func, work.reference, 1)[0]


# ------------------------------------------------------------------- the command


def read(out: Path) -> list[Line]:
    """The lines of a file, without one that was cut short."""
    texts = out.read_text().split("\n")[:-1] if out.exists() else []
    return [json.loads(text) for text in texts]


def told(lines: Sequence[Line]) -> bool:
    """Print what became of candidates; whether none was reported, wrong or not built."""
    run = [line for line in lines if line["status"] in ("ok", "reported", "wrong")]
    status = Counter(line["status"] for line in lines)
    bad = [line for line in lines if line["status"] in ("reported", "wrong", "not built")]
    for line in bad:
        place = f"{line['operator']} for a {line['kind']}, number {line['number']} of seed {line['seed']}"
        print(f"{line['status']}: {place}, {line['sketch']}: {line.get('message', '')}")
        for text, times in Counter(line.get("reports", ())).most_common(5):  # type: ignore[var-annotated]
            print(f"    {times} x {text}")
    several = sum(line["items"] > 1 for line in run)
    print(f"{len(run)} candidates of {len({line['operator'] for line in run})} operators ran: {several} with several "
          f"items in a group, {sum(line['local'] for line in run)} with local memory, "
          f"{sum(line['barriers'] > 0 for line in run)} with barriers, {sum(line['images'] for line in run)} with "
          f"images, {sum(line['vectors'] for line in run)} with vectors; values that nobody has written were looked "
          f"for in {sum(line['defined'] for line in run)}")  # fmt: skip
    count = sum(len(line.get("reports", ())) for line in lines)
    print(f"{count} reports of {sum(bool(line.get('reports')) for line in lines)} candidates, "
          f"{status['wrong']} wrong, {status['not built']} not built; besides {status['refused']} refused, "
          f"{status['masked']} masked")  # fmt: skip
    return not bad


def told_mutants(found: Sequence[Line]) -> bool:
    """Print what became of the mutants; whether each was reported, and no right program."""
    print("| program | reports | first | result |\n|---|---:|---|---|")
    for line in found:
        first, result = line["reports"][:1] or ["-"], "right" if line["right"] else "wrong"
        print(f"| {line['mutant']} | {len(line['reports'])} | {first[0]} | {result} |")
    mutants = [line for line in found if line["is_mutant"]]
    print(f"{sum(bool(line['reports']) for line in mutants)} of {len(mutants)} mutants caught")
    return all(bool(line["reports"]) == line["is_mutant"] for line in found)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300, help="candidates, those of earlier runs included")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("oclgrind.jsonl"), help="a run goes on where another ended")
    return parser.parse_args()


def main() -> int:
    arguments = options()
    with tempfile.TemporaryDirectory(prefix="oclgrind-") as name:
        folder = Path(name)
        settle(folder)
        done = {(line["operator"], line["kind"], line["number"]) for line in read(arguments.out)
                if line["seed"] == arguments.seed}  # fmt: skip
        todo = list(portions(arguments.count, done))
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(arguments.processes, context) as pool:
            mutants = pool.submit(mutate, folder / "log-mutants")
            waiting = [pool.submit(examine, portion, arguments.seed, folder / "log", arguments.out) for portion in todo]
            try:
                for number, future in enumerate(as_completed(waiting), 1):
                    future.result()
                    if number % 20 == 0:
                        print(f"{number} of {len(todo)} portions", file=sys.stderr, flush=True)
            except BrokenProcessPool:
                print(f"a process ended; {arguments.out} has what came before", file=sys.stderr)
                return 1
            caught = told_mutants(mutants.result())
    print()
    return 0 if told([line for line in read(arguments.out) if line["seed"] == arguments.seed]) and caught else 1


if __name__ == "__main__":
    sys.exit(main())
