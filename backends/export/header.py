"""The header of a library: each function with the shapes, layouts, alignment and pad values of its arguments."""

from __future__ import annotations

import textwrap

from ...ir import dtypes
from ...ir.text import extent_text
from ...version import __version__
from ..artifact import Argument
from .cpu_check import architecture, needed
from .extents import bytes_of, in_c
from .interface import INTERFACE, MESSAGES, sizes
from .library import Function, Library, nbytes
from .names import parameter_names

C_TYPES = {
    "bool": "uint8_t", "int8": "int8_t", "int16": "int16_t", "int32": "int32_t", "int64": "int64_t", "uint8": "uint8_t",
    "uint16": "uint16_t", "uint32": "uint32_t", "uint64": "uint64_t", "int4": "int8_t", "uint4": "uint8_t",
    "float16": "uint16_t", "bfloat16": "uint16_t", "float32": "float", "float64": "double",
    "float8_e4m3fn": "uint8_t", "float8_e5m2": "uint8_t",
}  # fmt: skip
"""C's type of each element type; a float of 16 or 8 bits is its bits, an integer of 4 bits the lower half of a byte."""
_CODES = ("OK", "WRONG_CPU", "BAD_POINTER", "NO_MEMORY", "BAD_SIZE")
"""The last one is that of libraries whose calls have sizes."""


def header_text(library: Library) -> str:
    """The header file."""
    macro = library.name.upper()
    codes = _CODES if library.main.sizes else _CODES[:-1]
    rows = [f"  {macro}_{name} = {code}, /* {MESSAGES[code]} */" for code, name in enumerate(codes)]
    parts = [
        _comment(_opening(library)),
        f'#ifndef {macro}_H\n#define {macro}_H\n\n#include <stdint.h>\n\n#ifdef __cplusplus\nextern "C" {{\n#endif\n',
        f'#define {macro}_VERSION "{__version__}"\n#define {macro}_INTERFACE {INTERFACE}\n'
        f"#define {macro}_THREADS {library.target.threads}\n",
        "\n".join(["/* What every function returns. */", "enum {", *rows, "};", ""]),
        *(_function(library, function) for function in library.functions),
        _services(library.name, macro),
        "\n".join(
            [
                "/* What the ..._BYTES above are in this library, for callers that were compiled for another one. */",
                *(f"int64_t {symbol}({_taken(library.main, a) or 'void'});" for symbol, a in sizes(library).items()),
                "",
            ]
        ),
        f"#ifdef __cplusplus\n}}\n#endif\n\n#endif /* {macro}_H */\n",
    ]
    return "\n".join(parts)


def prototype(function: Function) -> str:
    """The declaration without a semicolon."""
    names = parameter_names(function.parameters)
    parameters = ", ".join(_declared(a, names[a.name]) for a in function.parameters) or "void"
    return f"int {function.name}({parameters})"


def pkg_config(library: Library, file: str) -> str:
    """The .pc file of the shared object `file`, which lies in the same folder, as the header does."""
    plain = file.startswith("lib") and file.endswith(".so")
    named = f"-l{file[3:-3]}" if plain else f"-l:{file}"
    return (
        f"prefix=${{pcfiledir}}\n\nName: {library.name}\nDescription: {library.about or library.name}, "
        f"made by stridesmith\nVersion: {__version__}\nLibs: -L${{prefix}} {named} -Wl,-rpath,${{prefix}}\n"
        f"Cflags: -I${{prefix}}\n"
    )


def cpu_sentence(library: Library) -> str:
    """Which CPU the code needs."""
    features = ", ".join(needed(library.target)) or "nothing beyond every CPU of the architecture"
    return f"{architecture(library.target).replace('_', '-')} with {features}"


def _opening(library: Library) -> str:
    tuned = f"tuned for {library.target.name}, {library.target.threads} threads"
    return (
        f"{library.name}: {library.about or 'a kernel'}\n\nMade by stridesmith {__version__}; {tuned}.\n\n"
        f"Needs: {cpu_sentence(library)}. {library.name}_supported() asks the CPU at hand, and every function does; on "
        f"another one nothing is computed and {library.name.upper()}_WRONG_CPU is returned.\n\n"
        "Any number of threads may call at once; one call at a time uses the thread pool, the others run on their "
        "caller's thread. A child after fork() has a pool of its own. Idle threads sleep. Arrays are C-contiguous, "
        "aligned to their elements; 64 bytes are faster. An array that is written shares no memory with another one."
    )


def _function(library: Library, function: Function) -> str:
    sizes = [_bytes(function, a) for a in function.parameters if not a.is_scalar]
    lines = [f"{function.summary}.", ""]
    lines += [_argument(function, a) for a in function.parameters]
    if function.scratch_bytes:
        lines.append("")
        lines.append(f"Keeps {function.scratch_bytes} bytes of memory for each of up to 16 calls at once; "
                     f"{library.name}_release() frees them.")  # fmt: skip
    return "\n".join([_comment("\n".join(lines)), *sizes, f"{prototype(function)};", ""])


def _bytes(function: Function, argument: Argument) -> str:
    """The macro that says how many bytes an array has; one of the sizes where calls decide that."""
    names = parameter_names(function.parameters)
    macro = f"{function.name.upper()}_{names[argument.name].upper()}_BYTES"
    if argument.name not in function.extents:
        return f"#define {macro} INT64_C({nbytes(argument)})"
    given = ", ".join(names[name] for name in function.sizes)
    return f"#define {macro}({given}) {in_c(bytes_of(function, argument), names)}"


def _taken(function: Function, argument: Argument) -> str:
    """The parameters of the function that tells how many bytes an array has."""
    if argument.name not in function.extents:
        return ""
    names = parameter_names(function.parameters)
    return ", ".join(_declared(a, names[a.name]) for a in function.parameters if a.name in function.sizes)


def _argument(function: Function, argument: Argument) -> str:
    """A line for a parameter: direction, element type, shape, layout, padding; of a size what it may be."""
    packer = function.packers.get(argument.name, "")
    if argument.name in function.sizes:
        return f"{argument.name}: in  {argument.dtype}, a size of arrays, {function.sizes[argument.name]}"
    if argument.name in function.extents:
        shape = "".join(f"[{text}]" for text in map(extent_text, function.extents[argument.name]))
        return f"{argument.name}: {'out' if argument.is_output else 'in '} {argument.dtype} {shape}"
    kind = "out" if argument.is_output else "in "
    if argument.is_scalar:
        return f"{argument.name}: {kind} {argument.dtype}, a number"
    logical = f"{argument.dtype} {_shape(argument.logical_shape)}"
    if argument.layout.is_in_place:
        return f"{argument.name}: {kind} {logical}, {nbytes(argument)} bytes"
    packed = f", written by {packer}" if packer else ""
    text = (
        f"{argument.name}: {kind} {logical}{packed}, lies in memory as {_shape(argument.physical_shape)}, "
        f"{nbytes(argument)} bytes: {argument.index_map}"
    )
    return text + (f"; padding {_padding(argument.pad_value)}" if argument.pads else "")


def _padding(pad_value: str) -> str:
    if pad_value == "undef":
        return "may hold anything"
    return f"holds {pad_value}" if pad_value else "is never touched"


def _shape(shape: tuple[int, ...]) -> str:
    return "".join(f"[{extent}]" for extent in shape) or "[]"


def _services(name: str, macro: str) -> str:
    return textwrap.dedent(f"""\
        /* The version that made the library, to compare with {macro}_VERSION. */
        const char *{name}_version(void);
        /* The number of the conventions of this interface, {macro}_INTERFACE where it is as this header has it. */
        int {name}_interface(void);
        /* What a returned code means. */
        const char *{name}_message(int code);
        /* 1 if this CPU and its system run the code, else 0. */
        int {name}_supported(void);
        /* The threads of a call, its caller included; {macro}_THREADS at first. Less than 1 sets that number again. */
        int {name}_threads(void);
        void {name}_set_threads(int threads);
        /* Free the memory that is kept between calls. */
        void {name}_release(void);
        """)


def _declared(argument: Argument, name: str) -> str:
    kind = C_TYPES[dtypes.element(argument.dtype)]
    if argument.is_scalar:
        return f"{kind} {name}"
    return f"{'' if argument.is_output else 'const '}{kind} *{name}"


def _comment(text: str) -> str:
    """A block comment of at most 120 columns; what it holds cannot end it."""
    lines: list[str] = []
    for line in text.replace("*/", "* /").splitlines():
        lines += textwrap.wrap(line, 115, subsequent_indent="    " if ": " in line[:40] else "") or [""]
    return "/* " + "\n * ".join(lines).replace(" \n", "\n") + "\n */"
