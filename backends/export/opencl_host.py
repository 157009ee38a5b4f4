"""The OpenCL source of a library, and a program in C that sets it up and runs it.

The program needs a C compiler and, when it runs, an OpenCL driver: it has the few declarations of OpenCL that it uses,
and loads the library by name, so that neither headers nor an import library are needed.  What it works on is written
as tables, memories and launches in order; `opencl_host.c` has the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import InternalError
from ...ir import dtypes
from ...ir.expr import Buffer
from ...ir.layout.layout import Layout
from ...ir.passes.flat import product
from ...ir.text import extent_text
from ...version import __version__
from ..artifact import Argument
from ..images import channel_of, image_shape, is_image
from ..launch import Launch, Source
from ..opencl.runtime import build_options
from ..render.opencl.exact import CORRECTLY_ROUNDED, ROUNDING, ROUNDS
from ..render.opencl.program import generate
from .extents import formula_in_c
from .library import Constant, Function, Given, Library, Place, buffers, nbytes

_CHANNELS = {
    "FLOAT": 0x10DE, "HALF_FLOAT": 0x10DD, "SIGNED_INT8": 0x10D7, "SIGNED_INT16": 0x10D8, "SIGNED_INT32": 0x10D9,
    "UNSIGNED_INT8": 0x10DA,
}  # fmt: skip


def source_texts(library: Library) -> dict[str, str]:
    """The OpenCL C of each program, by the name of its function, with a number where that has several."""
    named: dict[str, str] = {}
    for name, source in _Plan(library).programs:
        same = [known for known in named if known.partition(".")[0] == name]
        named[f"{name}.{len(same)}" if same else name] = source.text
    return named


def host_text(library: Library) -> str:
    """The program in C."""
    plan = _Plan(library)
    takes = " ".join(f"{a.name}.bin" for a in (*plan.inputs, *plan.outputs))
    listed = [f" *   {a.name}.bin  {_what(a, plan)}" for a in (*plan.inputs, *plan.outputs)]
    sources = "".join(source.text for _, source in plan.programs)
    takes += "".join(f" {name.upper()}" for name in plan.sizes)
    listed += [f" *   {name.upper()}  the size {name}, {numbers}" for name, numbers in plan.sizes.items()]
    written = "the outputs" if plan.sizes else "the last ones"
    lines = [
        f"/* {library.name}: {_line(library.about)}. Made by stridesmith {__version__}, tuned for",
        f" * {_line(library.target.name)} of {_line(library.target.platform)}.",
        " *",
        " *   cc -O2 FILE.c -o PROGRAM -ldl",
        f" *   ./PROGRAM {takes}",
        " *",
        f" * Files hold C-contiguous arrays without a header; {written} are written:",
        *listed,
        " *",
        " * OPENCL_LIBRARY names the file of another OpenCL library than libOpenCL.so.1.",
        " */",
        *_programs(plan),
        *_memories(plan),
        *_sizes(plan),
        *_files("inputs", plan.inputs, plan),
        *_files("outputs", plan.outputs, plan),
        *_launches("prepare", plan.prepare),
        *_launches("compute", plan.compute),
        *_grid(plan),
        f"#define OPTIONS {_string(' '.join(build_options(sources)))}",
        f"#define CORRECTLY_ROUNDED {CORRECTLY_ROUNDED if ROUNDS in sources else 0}",
        f"#define ROUNDED_OPTION {_string(' '.join(ROUNDING))}",
        f"#define PLATFORM {_string(library.target.platform)}",
        f"#define DEVICE {_string(library.target.name)}",
        "",
        Path(__file__).with_name("opencl_host.c").read_text(encoding="utf-8"),
    ]
    return "\n".join(lines)


@dataclass
class _Memory:
    """Memory of the device; `data` is what it holds from the beginning."""

    name: str
    buffer: Buffer
    data: bytes = field(default=b"", repr=False)


@dataclass
class _Run:
    """A launch of a program, by number, over memories by number."""

    program: int
    launch: Launch
    memories: Sequence[int]


_ARITHMETIC = [
    "static inline int64_t quotient(int64_t a, int64_t b) { return a / b - (a % b && (a < 0) != (b < 0)); }",
    "static inline int64_t rest(int64_t a, int64_t b) { return a - quotient(a, b) * b; }",
    "static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }",
    "static inline int64_t largest(int64_t a, int64_t b) { return a < b ? b : a; }",
    "",
]


class _Plan:
    """All memories of a call, and the launches that prepare constants and that compute."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.programs: list[tuple[str, Source]] = []
        self.memories: list[_Memory] = []
        self.prepare: list[_Run] = []
        self.compute: list[_Run] = []
        self._numbers: dict[str, int] = {}  # of memories, by name
        self._given: dict[str, int] = {}  # of memories for arrays that are packed, by argument
        main = library.main
        self.sizes, self.extents = main.sizes, main.extents
        self.outputs = [a for a in main.parameters if a.is_output]
        self.inputs: list[Argument] = []
        self.compute = self._function(main, {a.name: a.name for a in main.parameters})
        for argument in (a for a in main.parameters if not a.is_output and a.name not in main.sizes):
            packer = main.packers.get(argument.name)
            if packer is None:
                self.inputs.append(argument)
                continue
            function = next(f for f in library.functions if f.name == packer)
            logical, packed = function.parameters
            given = f"{argument.name} as given"
            self.prepare += self._function(function, {logical.name: given, packed.name: argument.name})
            self._given[argument.name] = self._numbers[given]
            self.inputs.append(logical_of(argument))

    @property
    def size_names(self) -> dict[str, str]:
        """What the program in C calls each size."""
        return {name: f"size[{number}]" for number, name in enumerate(self.sizes)}

    def number(self, argument: Argument) -> int:
        """The memory that the file of an argument is read into, or written from."""
        return self._given.get(argument.name, self._numbers[argument.name])

    def _function(self, function: Function, names: dict[str, str]) -> list[_Run]:
        runs = []
        for step in function.steps:
            source = generate(step.program, self.library.target)
            self.programs.append((function.name, source))
            memories = zip(step.places, buffers(step), strict=True)
            numbers = [self._memory(function, p, b, names) for p, b in memories if b.name not in step.program.sizes]
            runs += [_Run(len(self.programs) - 1, launch, numbers) for launch in source.launches]
        return runs

    def _memory(self, function: Function, place: Place, buffer: Buffer, names: dict[str, str]) -> int:
        data = b""
        if isinstance(place, Given):
            if place.offset:
                raise InternalError(f"`{place.name}` is taken from byte {place.offset} on, but a cl_mem only whole")
            name = names[place.name]
        elif isinstance(place, Constant):
            name, data = f"constant {place.name}", self.library.constants[place.name]
        else:
            # Those at other offsets are apart, also where a plan lets them overlap.
            name = f"{function.name} at {place.offset}"
        if name not in self._numbers:
            self._numbers[name] = len(self.memories)
            self.memories.append(_Memory(name, buffer, data))
        known = self.memories[self._numbers[name]]
        if buffer.is_fixed and known.buffer.is_fixed and buffer.nbytes > known.buffer.nbytes:
            known.buffer = buffer
        return self._numbers[name]


def logical_of(argument: Argument) -> Argument:
    """The argument as its caller has it."""
    return Argument(argument.name, Layout.plain(argument.logical_shape), argument.dtype)


def _what(argument: Argument, plan: _Plan) -> str:
    if argument.name in plan.extents:
        return f"{argument.dtype} {''.join(f'[{extent_text(e)}]' for e in plan.extents[argument.name])}"
    shape = "".join(f"[{extent}]" for extent in argument.physical_shape) or "[1]"
    layout = "" if argument.layout.is_in_place else f", laid out by {argument.index_map}"
    return _line(f"{argument.dtype} {shape}, {max(nbytes(argument), dtypes.nbytes(argument.dtype))} bytes{layout}")


def _line(text: str) -> str:
    return " ".join(text.replace("*/", "* /").split())


def _programs(plan: _Plan) -> list[str]:
    lines = []
    for number, (_, source) in enumerate(plan.programs):
        text = [f"    {_string(line + chr(10))}" for line in source.text.splitlines()]
        lines += [f"static const char source{number}[] =", *text, "    ;"]
    names = ", ".join(f"source{number}" for number in range(len(plan.programs)))
    return [*lines, f"static const char *const sources[] = {{{names}}};", ""]


def _memories(plan: _Plan) -> list[str]:
    lines, rows = ["#include <stddef.h>", "#include <stdint.h>", ""], []
    for number, memory in enumerate(plan.memories):
        buffer = memory.buffer
        image = "0, 0, 0"
        if is_image(buffer.scope):
            width, height = image_shape(buffer.shape)
            image = f"{_CHANNELS[channel_of(buffer.dtype)]}, {width}, {height}"
        data = "NULL"
        if memory.data:
            padded = memory.data + bytes(-len(memory.data) % 8)
            words = (int.from_bytes(padded[k : k + 8], "little") for k in range(0, len(padded), 8))
            lines.append(f"static const uint64_t data{number}[] = {{{', '.join(f'{word:#x}' for word in words)}}};")
            data = f"data{number}"
        size = max(buffer.nbytes, 1) if buffer.is_fixed else 0
        rows.append(f"    {{{_string(memory.name)}, {size}, {image}, {data}}},")
    lines.append("static const struct {")
    lines.append("    const char *name; size_t bytes; unsigned channel; size_t width, height; const void *data;")
    return [*lines, "} memories[] = {", *rows, "};", ""]


def _files(name: str, arguments: Sequence[Argument], plan: _Plan) -> list[str]:
    rows = [
        f"    {{{_string(a.name)}, {plan.number(a)}, {0 if a.name in plan.extents else nbytes(a)}}}," for a in arguments
    ]
    head = f"static const struct {{ const char *name; int memory; size_t bytes; }} {name}[] = {{"
    return [head, *(rows or ["    {0},"]), "};", f"enum {{ {name}_count = {len(arguments)} }};", ""]


def _sizes(plan: _Plan) -> list[str]:
    """A table of the sizes, and the bytes of memories that they decide; 0 for others."""
    rows = [
        f"    {{{_string(name)}, {_string(str(own))}, {own.low}, {own.high}, {own.step}}},"
        for name, own in plan.sizes.items()
    ]
    names, cases = plan.size_names, list[str]()
    for number, memory in enumerate(plan.memories):
        if not memory.buffer.is_fixed:
            count = formula_in_c(product((*memory.buffer.extents, dtypes.nbytes(memory.buffer.dtype))), names)
            cases.append(f"    if (memory == {number}) return {count};")
    return [
        "static const struct { const char *name, *range; int64_t low, high, step; } sizes[] = {",
        *(rows or ["    {0},"]), "};", f"enum {{ sizes_count = {len(rows)} }};",
        f"static int64_t size[{max(len(rows), 1)}];", "", *(_ARITHMETIC if rows else []),
        "static size_t sized_bytes(int memory) {", *cases, "    (void)memory;", "    return 0;", "}", "",
    ]  # fmt: skip


def _grid(plan: _Plan) -> list[str]:
    """A function for what sizes decide of a launch: its work-items, and whether there is anything to do."""
    cases = []
    for number, run in enumerate(plan.compute):
        launch = run.launch
        conditions = [formula_in_c(cond, plan.size_names) for cond in launch.when]
        if not conditions and not launch.counts:
            continue
        counts = [formula_in_c(count, plan.size_names) for count in launch.counts]
        cases.append(f"    if (launch == {number}) {{")
        cases += [f"        if (!{cond}) return 0;" for cond in conditions]
        for axis, (count, items) in enumerate(zip(counts, launch.local_size, strict=False)):
            cases.append(f"        global[{axis}] = {count} * {items};")
        cases += ["        return global[0] && global[1] && global[2];", "    }"]
    head, rest = "static int grid(int launch, size_t *global) {", "    (void)launch, (void)global;"
    return [head, *cases, rest, "    return 1;", "}", ""]


def _launches(name: str, runs: Sequence[_Run]) -> list[str]:
    """A table of launches; an argument that is an image is written as a negative number, -1 for memory 0."""
    head = (
        f"static const struct {{ int program; const char *kernel; unsigned axes; size_t global[3], local[3]; "
        f"const int *arguments, *stale; }} {name}[] = {{"
    )
    lists: list[str] = []
    rows = []
    for number, run in enumerate(runs):
        launch = run.launch
        arguments = [-1 - run.memories[k] if k in launch.images else run.memories[k] for k in launch.args]
        stale = [run.memories[k] for k in launch.stale]
        for kind, values in (("arguments", arguments), ("stale", stale)):
            lists.append(f"static const int {name}_{kind}{number}[] = {{{', '.join(map(str, [*values, 'END']))}}};")
        sizes = ", ".join("{" + ", ".join(map(str, size)) + "}" for size in (launch.global_size, launch.local_size))
        rows.append(
            f"    {{{run.program}, {_string(launch.kernel)}, {len(launch.global_size)}, {sizes}, "
            f"{name}_arguments{number}, {name}_stale{number}}},"
        )
    start = ["#define END 0x7fffffff", ""] if name == "prepare" else []
    return [*start, *lists, head, *(rows or ["    {0},"]), "};", f"enum {{ {name}_count = {len(runs)} }};", ""]


def _string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("?", "\\?")
    return f'"{escaped}"'
