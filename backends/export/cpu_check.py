"""Which CPU a library needs, and the code that asks the one at hand.

An x86 says with ``cpuid`` what it can do, and with ``xgetbv`` which registers the system saves; an ARM processor is
asked through Linux.  Only features that the code generator uses by itself are asked for: a CPU without the others
runs the code as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...errors import UsageError
from ...ir.target import Target

# leaf and subleaf of cpuid, register (a, b, c, d), then features by their bit
_CPUID: dict[tuple[int, int, int], dict[str, int]] = {
    (1, 0, 2): {
        "sse3": 0, "ssse3": 9, "fma": 12, "cx16": 13, "sse4.1": 19, "sse4.2": 20, "movbe": 22, "popcnt": 23, "avx": 28,
        "f16c": 29,
    },
    (7, 0, 1): {
        "bmi": 3, "avx2": 5, "bmi2": 8, "avx512f": 16, "avx512dq": 17, "avx512ifma": 21, "avx512cd": 28, "avx512bw": 30,
        "avx512vl": 31,
    },
    (7, 0, 2): {
        "avx512vbmi": 1, "avx512vbmi2": 6, "gfni": 8, "avx512vnni": 11, "avx512bitalg": 12, "avx512vpopcntdq": 14,
    },
    (7, 0, 3): {"avx512vp2intersect": 8, "avx512fp16": 23},
    (7, 1, 0): {"avxvnni": 4, "avx512bf16": 5, "avxifma": 23},
    (7, 1, 3): {"avxvnniint8": 4, "avxneconvert": 5, "avxvnniint16": 10},
    (0x80000001, 0, 2): {"sahf": 0, "lzcnt": 5, "sse4a": 6, "xop": 11, "fma4": 16, "tbm": 21},
}  # fmt: skip
_LEVELS = {
    "x86-64-v2": "cx16 popcnt sahf sse3 sse4.1 sse4.2 ssse3",
    "x86-64-v3": "avx avx2 bmi bmi2 f16c fma lzcnt movbe",
    "x86-64-v4": "avx512bw avx512cd avx512dq avx512f avx512vl",
}
_HWCAP = {
    "neon": 1, "crc": 7, "lse": 8, "fullfp16": 10, "rdm": 12, "dotprod": 20, "sve": 22, "fp16fml": 23,
}  # fmt: skip
_KNOWN_X86 = frozenset(name for bits in _CPUID.values() for name in bits)
_SAVED = {"avx": 0x6, "avx512": 0xE6}  # what xgetbv says of registers that the system saves
BASELINE = {"x86_64": '"target-cpu"="x86-64" "target-features"=""', "aarch64": '"target-cpu"="generic"'}
"""Attributes of functions that every CPU of an architecture runs: those that run before the check."""


def architecture(target: Target) -> str:
    """``x86_64`` or ``aarch64``.  Raises UsageError for another."""
    if target.isa in ("avx512", "avx2", "avx", "sse2"):
        return "x86_64"
    if target.isa == "neon":
        return "aarch64"
    name, isa = target.name, target.isa
    raise UsageError(f"kernels leave for x86-64 and aarch64 alone, but `{name}` has the instructions `{isa}`")


def needed(target: Target) -> tuple[str, ...]:
    """The features that code for `target` may use and that not every CPU of its architecture has."""
    named = {text[1:] for text in target.features.split(",") if text.startswith("+")}
    if architecture(target) == "aarch64":
        return tuple(sorted(named & _HWCAP.keys() - {"neon"}))
    for level, names in _LEVELS.items():
        if target.cpu in _LEVELS and level <= target.cpu:
            named |= set(names.split())
    if not named and target.cpu not in ("x86-64", "generic"):
        raise UsageError(
            f"the target `{target.name}` names the CPU `{target.cpu}` without its features, so that the library could "
            f"not check whether a machine has them; list them, as in features = '+avx2,+fma', or name the CPU x86-64-v3"
        )
    return tuple(sorted(named & _KNOWN_X86))


def check_text(target: Target, system: str) -> str:
    """``@cpu_fits() -> i32``: 1 where this CPU and its system run what was compiled for `target`, else 0.

    An ARM processor is asked on Linux alone; elsewhere it has to be known that it fits.
    """
    features = needed(target)
    if architecture(target) == "x86_64":
        return _x86_text(features)
    return _aarch64_text(features) if system == "Linux" else _all_of(())


_CPUID_TEXT = """
define internal i32 @cpuid(i32 %leaf, i32 %subleaf, i32 %register) nounwind {
  %all = call {i32, i32, i32, i32} asm sideeffect "cpuid", "={ax},={bx},={cx},={dx},{ax},{cx}"(i32 %leaf, i32 %subleaf)
  %a = extractvalue { i32, i32, i32, i32 } %all, 0
  %b = extractvalue { i32, i32, i32, i32 } %all, 1
  %c = extractvalue { i32, i32, i32, i32 } %all, 2
  %d = extractvalue { i32, i32, i32, i32 } %all, 3
  %is1 = icmp eq i32 %register, 1
  %is2 = icmp eq i32 %register, 2
  %is3 = icmp eq i32 %register, 3
  %ab = select i1 %is1, i32 %b, i32 %a
  %abc = select i1 %is2, i32 %c, i32 %ab
  %abcd = select i1 %is3, i32 %d, i32 %abc
  ret i32 %abcd
}

define internal i32 @saved_registers() nounwind {
  %pair = call { i32, i32 } asm sideeffect "xgetbv", "={ax},={dx},{cx}"(i32 0)
  %low = extractvalue { i32, i32 } %pair, 0
  ret i32 %low
}
"""


class _Question(NamedTuple):
    """A word of the CPU, and what its bits in `mask` have to be: ``eq`` or ``uge`` a value."""

    call: str
    mask: int
    compare: str
    value: int


def _x86_text(features: tuple[str, ...]) -> str:
    asked: list[_Question] = []
    for (leaf, subleaf, register), bits in _CPUID.items():
        mask = sum(1 << bits[name] for name in features if name in bits)
        if mask:  # first whether there is such a leaf: the answer for one that there is not means nothing
            highest = f"call i32 @cpuid(i32 {_signed(leaf & 0x80000000)}, i32 0, i32 0)"
            asked.append(_Question(highest, 0x7FFFFFFF, "uge", leaf & 0x7FFFFFFF))
            word = f"call i32 @cpuid(i32 {_signed(leaf)}, i32 {subleaf}, i32 {register})"
            asked.append(_Question(word, mask, "eq", mask))
    saved = [mask for prefix, mask in _SAVED.items() if any(name.startswith(prefix) for name in features)]
    if saved:
        asked.append(_Question("call i32 @cpuid(i32 1, i32 0, i32 2)", 1 << 27, "eq", 1 << 27))  # xgetbv may be asked
        asked.append(_Question("call i32 @saved_registers()", max(saved), "eq", max(saved)))
    return _CPUID_TEXT + _all_of(asked)


def _all_of(questions: Sequence[_Question]) -> str:
    """One block for each question; the first that is answered with no ends the check."""
    lines = ["define internal i32 @cpu_fits() nounwind {", "entry:", "  br label %ask0"]
    for number, (call, mask, compare, value) in enumerate(questions):
        lines += [
            f"ask{number}:",
            f"  %v{number} = {call}",
            f"  %m{number} = and i32 %v{number}, {_signed(mask)}",
            f"  %ok{number} = icmp {compare} i32 %m{number}, {_signed(value)}",
            f"  br i1 %ok{number}, label %ask{number + 1}, label %no",
        ]
    lines += [f"ask{len(questions)}:", "  ret i32 1", "no:", "  ret i32 0", "}"]
    return "\n".join(lines)


def _aarch64_text(features: tuple[str, ...]) -> str:
    mask = sum(1 << _HWCAP[name] for name in features)
    return f"""
declare i64 @getauxval(i64)

define internal i32 @cpu_fits() nounwind {{
  %all = call i64 @getauxval(i64 16)  ; AT_HWCAP
  %have = and i64 %all, {mask}
  %ok = icmp eq i64 %have, {mask}
  %result = zext i1 %ok to i32
  ret i32 %result
}}
"""


def _signed(mask: int) -> int:
    return mask - (1 << 32) if mask >= 1 << 31 else mask
