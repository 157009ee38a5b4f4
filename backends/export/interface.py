"""The C interface of a library as LLVM text: what stands between a caller and the kernels.

For each function: a check of the CPU and of the pointers, scratch memory for the call, then its steps in order.
Scratch memory is kept from one call for the next, in places that callers take and give back with one atomic operation,
so that any number of threads may call at once.  A library also has::

    const char *NAME_version(void);         const char *NAME_message(int code);
    int NAME_supported(void);               void NAME_release(void);
    int NAME_threads(void);                 void NAME_set_threads(int);
    int NAME_interface(void);               int64_t NAME_bytes_ARGUMENT(void);

The symbols and their types follow from the program and from who may choose the layout of each argument, and from
nothing that a search finds, so that a library can take the place of another one of the same program without a caller's
notice: it packs by the functions that there always are, into memory of the size that the library tells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...ir import dtypes
from ...version import __version__
from ..artifact import Argument
from ..llvm.types import memory_type
from ..memory import HUGE_PAGE, LARGE
from .extents import bytes_of, in_llvm
from .library import Constant, Function, Given, Library, Place, nbytes
from .names import parameter_names

INTERFACE = 1
"""The number of these conventions: it grows with a change that callers have to know of."""
OK, WRONG_CPU, BAD_POINTER, NO_MEMORY, BAD_SIZE = range(5)
NO_CODE = "no code of this library"
MESSAGES = {
    OK: "the result is written",
    WRONG_CPU: "this CPU, or its system, lacks instructions that the library was compiled for",
    BAD_POINTER: "a pointer is null, or not aligned to the elements that it points to",
    NO_MEMORY: "no memory for intermediate results",
    BAD_SIZE: "a size is none of those that the library was made for",
}
"""What the functions return."""
SCRATCH_PLACES = 16
"""Of memory that is kept between calls: so many threads may call at once without allocating, a choice."""


def interface_text(library: Library, entries: Mapping[tuple[str, int], str], has_pool: bool, system: str) -> str:
    """The text for all functions; `entries` are the symbols of the steps, by function and number."""
    told = [(f"{library.name}_interface", "i32", INTERFACE)]
    fixed = {symbol: a for symbol, a in sizes(library).items() if a.name not in library.main.extents}
    told += [(symbol, "i64", nbytes(argument)) for symbol, argument in fixed.items()]
    parts = [_common(library, has_pool, system)]
    parts += [f"define {kind} @{symbol}() nounwind {{\n  ret {kind} {value}\n}}" for symbol, kind, value in told]
    parts += [_bytes_text(library.main, s, a) for s, a in sizes(library).items() if a.name in library.main.extents]
    parts += [_bytes(f'@"constant.{name}"', data, 64) for name, data in library.constants.items()]
    keeping = [function for function in library.functions if function.scratch_bytes]
    parts += [_scratch_text(function, library, system) for function in keeping]
    parts += ["declare i32 @posix_memalign(ptr, i64, i64)", "declare void @free(ptr)"] if keeping else []
    parts += ["declare i32 @madvise(ptr, i64, i32)"] if any(_is_large(f, system) for f in keeping) else []
    parts += ["declare ptr @memcpy(ptr, ptr, i64)"] if any(f.initial for f in keeping) else []
    parts.append(_release(library.name, [function.name for function in keeping]))
    parts += [f"declare void @{entry}(ptr, i64)" for entry in dict.fromkeys(entries.values())]
    parts += [_function(f, [entries[f.name, number] for number in range(len(f.steps))]) for f in library.functions]
    return "\n".join(parts)


def exported(library: Library) -> tuple[str, ...]:
    """The symbols that callers see."""
    service = ("version", "message", "supported", "threads", "set_threads", "release", "interface")
    return (
        *(f.name for f in library.functions), *(f"{library.name}_{name}" for name in service), *sizes(library)
    )  # fmt: skip


def sizes(library: Library) -> dict[str, Argument]:
    """The functions that tell how many bytes an array of the main function has, with the array."""
    names = parameter_names(library.main.parameters)
    return {f"{library.name}_bytes_{names[a.name]}": a for a in library.main.parameters if not a.is_scalar}


def _bytes_text(function: Function, symbol: str, argument: Argument) -> str:
    """The function that tells how many bytes an array has where calls decide that, by all sizes."""
    given = [a for a in function.parameters if a.name in function.sizes]
    lines: list[str] = []
    values: dict[str, str] = {}
    for number, size in enumerate(given):
        kind, values[size.name] = memory_type(size.dtype), f"%a{number}"
        if kind != "i64":
            values[size.name] = f"%n{number}"
            lines.append(f"  %n{number} = sext {kind} %a{number} to i64")
    found = in_llvm(bytes_of(function, argument), values, lines)
    kinds = ", ".join(f"{_passed(size)} %a{number}" for number, size in enumerate(given))
    return "\n".join([f"define i64 @{symbol}({kinds}) nounwind {{", *lines, f"  ret i64 {found}", "}"])


def _size_checks(function: Function, numbers: Mapping[str, int]) -> list[str]:
    """``%odd``: whether a size is none of those that there may be."""
    lines: list[str] = []
    odd = "false"
    for name, taken in function.sizes.items():
        number = numbers[name]
        kind = memory_type(function.parameters[number].dtype)
        lines += [
            f"  %less{number} = icmp slt {kind} %a{number}, {taken.low}",
            f"  %more{number} = icmp sgt {kind} %a{number}, {taken.high}",
            f"  %rest{number} = srem {kind} %a{number}, {taken.step}",
            f"  %apart{number} = icmp ne {kind} %rest{number}, 0",
            f"  %outside{number} = or i1 %less{number}, %more{number}",
            f"  %none{number} = or i1 %outside{number}, %apart{number}",
            f"  %odd{number}.0 = or i1 {odd}, %none{number}",
        ]
        odd = f"%odd{number}.0"
    return [*lines, f"  %odd = or i1 {odd}, false"]


def string(name: str, text: str) -> str:
    """A constant with the bytes of a C string."""
    return _bytes(f"@{name}", text.encode() + b"\0", 1)


def _bytes(name: str, data: bytes, align: int) -> str:
    return f'{name} = internal constant [{len(data)} x i8] c"\\{data.hex(chr(92))}", align {align}'


def _common(library: Library, has_pool: bool, system: str) -> str:
    """Version, messages, threads, and what happens when the library is loaded."""
    name = library.name
    lines = [string("version", __version__), *(string(f"message{code}", text) for code, text in MESSAGES.items())]
    lines.append(string("no_message", NO_CODE))
    choice = "@no_message"
    cases = [f"define ptr @{name}_message(i32 %code) nounwind {{"]
    for code in MESSAGES:
        cases.append(f"  %is{code} = icmp eq i32 %code, {code}")
        cases.append(f"  %text{code} = select i1 %is{code}, ptr @message{code}, ptr {choice}")
        choice = f"%text{code}"
    section = "__DATA,__mod_init_func" if system == "Darwin" else ".init_array"
    values = {"NAME": name, "THREADS": str(library.target.threads), "SECTION": section}
    text = _COMMON
    for key, value in values.items():
        text = text.replace("{" + key + "}", value)
    return "\n".join([*lines, *cases, f"  ret ptr {choice}", "}", text, _FORKS if has_pool else _NO_FORKS])


_COMMON = """
@fits = internal global i32 0
@threads = internal global i64 {THREADS}
@at_load = internal constant ptr @set_up, section "{SECTION}", align 8
@llvm.used = appending global [1 x ptr] [ptr @at_load], section "llvm.metadata"

define internal void @set_up() nounwind {
  %fits = call i32 @cpu_fits()
  store i32 %fits, ptr @fits
  call void @set_up_forks()
  ret void
}

define ptr @{NAME}_version() nounwind {
  ret ptr @version
}

define i32 @{NAME}_supported() nounwind {
  %fits = load i32, ptr @fits
  ret i32 %fits
}

define i32 @{NAME}_threads() nounwind {
  %n = load atomic i64, ptr @threads monotonic, align 8
  %short = trunc i64 %n to i32
  ret i32 %short
}

define void @{NAME}_set_threads(i32 %n) nounwind {
  %wide = sext i32 %n to i64
  %given = icmp sgt i64 %wide, 0
  %new = select i1 %given, i64 %wide, i64 {THREADS}
  store atomic i64 %new, ptr @threads monotonic, align 8
  ret void
}
"""

_NO_FORKS = """
define internal void @set_up_forks() nounwind {
  ret void
}
"""

# A child has the memory of the pool but not its threads.  glibc exports its own name for pthread_atfork, other
# libraries the standard one; whichever there is is called.
_FORKS = """
declare extern_weak i32 @__register_atfork(ptr, ptr, ptr, ptr)
declare extern_weak i32 @pthread_atfork(ptr, ptr, ptr)
declare void @pool_reset()

define internal void @set_up_forks() nounwind {
entry:
  %glibc = icmp ne ptr @__register_atfork, null
  br i1 %glibc, label %register, label %ask
register:
  %r = call i32 @__register_atfork(ptr null, ptr null, ptr @pool_reset, ptr null)
  br label %out
ask:
  %standard = icmp ne ptr @pthread_atfork, null
  br i1 %standard, label %atfork, label %out
atfork:
  %a = call i32 @pthread_atfork(ptr null, ptr null, ptr @pool_reset)
  br label %out
out:
  ret void
}
"""


def _is_large(function: Function, system: str) -> bool:
    """Whether its scratch memory lies in huge pages."""
    return function.scratch_bytes >= LARGE and system == "Linux"


def _scratch_text(function: Function, library: Library, system: str) -> str:
    """How a function takes and gives back its scratch memory."""
    large, size = _is_large(function, system), function.scratch_bytes
    new = [f"  %m = call i32 @madvise(ptr %fresh, i64 {size}, i32 14)  ; MADV_HUGEPAGE"] if large else []
    for number, (offset, name) in enumerate(function.initial):
        new.append(f"  %i{number} = getelementptr i8, ptr %fresh, i64 {offset}")
        bytes_ = len(library.constants[name])
        new.append(f'  %c{number} = call ptr @memcpy(ptr %i{number}, ptr @"constant.{name}", i64 {bytes_})')
    values = {"PLACES": SCRATCH_PLACES, "BYTES": size, "ALIGN": HUGE_PAGE if large else 64, "NEW": "\n".join(new),
              "NAME": function.name}  # fmt: skip
    text = _SCRATCH
    for name, value in values.items():
        text = text.replace("{" + name + "}", str(value))
    return text


_SCRATCH = """
@{NAME}.kept = internal global [{PLACES} x ptr] zeroinitializer, align 64

; What an earlier call has left, else fresh memory; null if there is none.
define internal ptr @{NAME}.take_scratch() nounwind {
entry:
  %result = alloca ptr, align 8
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %n1, %next ]
  %place = getelementptr ptr, ptr @{NAME}.kept, i64 %n
  %seen = load atomic ptr, ptr %place monotonic, align 8
  %some = icmp ne ptr %seen, null
  br i1 %some, label %claim, label %next
claim:
  %got = atomicrmw xchg ptr %place, ptr null acq_rel
  %mine = icmp ne ptr %got, null
  br i1 %mine, label %found, label %next
next:
  %n1 = add i64 %n, 1
  %more = icmp slt i64 %n1, {PLACES}
  br i1 %more, label %loop, label %allocate
allocate:
  %failed = call i32 @posix_memalign(ptr %result, i64 {ALIGN}, i64 {BYTES})
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %allocated, label %none
allocated:
  %fresh = load ptr, ptr %result
{NEW}
  ret ptr %fresh
found:
  ret ptr %got
none:
  ret ptr null
}

; Keep the memory for another call, or free it where enough is kept.
define internal void @{NAME}.give_scratch(ptr %memory) nounwind {
entry:
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %n1, %next ]
  %place = getelementptr ptr, ptr @{NAME}.kept, i64 %n
  %pair = cmpxchg ptr %place, ptr null, ptr %memory acq_rel monotonic
  %stored = extractvalue { ptr, i1 } %pair, 1
  br i1 %stored, label %done, label %next
next:
  %n1 = add i64 %n, 1
  %more = icmp slt i64 %n1, {PLACES}
  br i1 %more, label %loop, label %full
full:
  call void @free(ptr %memory)
  br label %done
done:
  ret void
}
"""


def _release(name: str, keeping: Sequence[str]) -> str:
    calls = [f"  call void @{function}.free_scratch()" for function in keeping]
    release = "\n".join([f"define void @{name}_release() nounwind {{", *calls, "  ret void", "}"])
    return release + "".join(_free_text(function) for function in keeping)


def _free_text(function: str) -> str:
    return f"""
define internal void @{function}.free_scratch() nounwind {{
entry:
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %n1, %loop ]
  %place = getelementptr ptr, ptr @{function}.kept, i64 %n
  %old = atomicrmw xchg ptr %place, ptr null acq_rel
  call void @free(ptr %old)
  %n1 = add i64 %n, 1
  %more = icmp slt i64 %n1, {SCRATCH_PLACES}
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""


def _function(function: Function, entries: list[str]) -> str:
    numbers = {a.name: number for number, a in enumerate(function.parameters)}
    most = max(len(step.places) for step in function.steps)
    kinds = ", ".join(f"{_passed(a)} %a{number}" for number, a in enumerate(function.parameters))
    lines = [f"define i32 @{function.name}({kinds}) nounwind {{", "entry:"]
    lines.append(f"  %args = alloca [{most} x ptr], align 16")
    for number, argument in enumerate(function.parameters):
        if argument.is_scalar:
            kind = _bits(argument)
            lines += [f"  %s{number} = alloca {kind}, align 8", f"  store {kind} %a{number}, ptr %s{number}"]
    lines += ["  %fits = load i32, ptr @fits", "  %known = icmp ne i32 %fits, 0"]
    lines += ["  br i1 %known, label %look, label %wrong_cpu", "look:", *_pointer_checks(function)]
    if function.sizes:
        lines += ["  br i1 %bad, label %bad_pointer, label %measure", "measure:", *_size_checks(function, numbers)]
        lines += ["  br i1 %odd, label %bad_size, label %ready", "ready:"]
    else:
        lines += ["  br i1 %bad, label %bad_pointer, label %ready", "ready:"]
    lines.append("  %threads = load atomic i64, ptr @threads monotonic, align 8")
    if function.scratch_bytes:
        lines += [f"  %scratch = call ptr @{function.name}.take_scratch()", "  %none = icmp eq ptr %scratch, null"]
        lines += ["  br i1 %none, label %no_memory, label %run", "run:"]
    for number, (step, entry) in enumerate(zip(function.steps, entries, strict=True)):
        for position, place in enumerate(step.places):
            here = f"{number}.{position}"
            lines += _located(place, here, function.parameters, numbers)
            lines.append(f"  %slot{here} = getelementptr ptr, ptr %args, i64 {position}")
            lines.append(f"  store ptr %p{here}, ptr %slot{here}, align 8")
        lines.append(f"  call void @{entry}(ptr %args, i64 %threads)")
    lines += [f"  call void @{function.name}.give_scratch(ptr %scratch)"] if function.scratch_bytes else []
    lines += [f"  ret i32 {OK}", "wrong_cpu:", f"  ret i32 {WRONG_CPU}", "bad_pointer:", f"  ret i32 {BAD_POINTER}"]
    lines += ["no_memory:", f"  ret i32 {NO_MEMORY}"] if function.scratch_bytes else []
    lines += ["bad_size:", f"  ret i32 {BAD_SIZE}"] if function.sizes else []
    return "\n".join([*lines, "}"])


def _passed(argument: Argument) -> str:
    """How C passes it: an array by address, a short number widened to a register."""
    if not argument.is_scalar:
        return "ptr"
    kind = _bits(argument)
    if kind not in ("i8", "i16"):
        return kind
    return f"{kind} {'signext' if argument.dtype in ('int4', 'int8', 'int16') else 'zeroext'}"


def _bits(argument: Argument) -> str:
    """The type of a scalar; C passes a float16 as its bits, as it does a bfloat16."""
    kind = memory_type(argument.dtype)
    return "i16" if kind == "half" else kind


def _pointer_checks(function: Function) -> list[str]:
    """``%bad``: whether a pointer is null or not aligned to its elements."""
    lines: list[str] = []
    bad = "false"
    for number, argument in enumerate(function.parameters):
        if argument.is_scalar or not nbytes(argument):
            continue
        low = dtypes.nbytes(argument.dtype) - 1
        lines += [
            f"  %i{number} = ptrtoint ptr %a{number} to i64",
            f"  %null{number} = icmp eq i64 %i{number}, 0",
            f"  %low{number} = and i64 %i{number}, {low}",
            f"  %odd{number} = icmp ne i64 %low{number}, 0",
            f"  %wrong{number} = or i1 %null{number}, %odd{number}",
            f"  %bad{number} = or i1 {bad}, %wrong{number}",
        ]
        bad = f"%bad{number}"
    return [*lines, f"  %bad = or i1 {bad}, false"]


def _located(place: Place, here: str, parameters: tuple[Argument, ...], numbers: Mapping[str, int]) -> list[str]:
    """``%p...``: the address of a place."""
    if isinstance(place, Given):
        number = numbers[place.name]
        source = "s" if parameters[number].is_scalar else "a"
        return [f"  %p{here} = getelementptr i8, ptr %{source}{number}, i64 {place.offset}"]
    if isinstance(place, Constant):
        return [f'  %p{here} = getelementptr i8, ptr @"constant.{place.name}", i64 0']
    return [f"  %p{here} = getelementptr i8, ptr %scratch, i64 {place.offset}"]
