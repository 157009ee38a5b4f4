"""The helper functions and macros of OpenCL C that a source may need."""

from __future__ import annotations

import math
import struct

from ...exponential import COEFFICIENTS, LEAST, LN2_HIGH, LN2_LOW, ROUND
from ...neighbours import Picks
from .types import bits_type, literal, nbytes

DOT_BUILTIN = "dot_4x8packed_"
"""How the functions begin that give the sum of four products, of two words that are four bytes each."""
CALL_BYTES = 128
"""Bytes of the longest vector of OpenCL C: 16 lanes of 8 bytes."""
POCL_CALL_BYTES = 32
"""Bytes of the longest vector that PoCL's built-in functions get and give in the right registers, even where they are
compiled for another processor than the program is (see `known_faults`)."""
FLOATS8 = {"float8_e4m3fn": (3, 7, 0x7E), "float8_e5m2": (2, 15, 0x7C)}
"""Floats of 8 bits: bits of the fraction, what the exponent is too large by, and the last byte that is no NaN."""
MOST_PAIRS = 8
"""Lanes of 32 bits whose halves are one native vector."""

ONE_MEMORY = "ONE_MEMORY"
"""Defined where addresses of global and private memory are of one kind."""

X86_EXTREMA = {
    ("float", 4): ("__SSE__", "ps", ""),
    ("float", 8): ("__AVX__", "ps256", ""),
    ("float", 16): ("__AVX512F__", "ps512", ", 4"),
    ("double", 2): ("__SSE2__", "pd", ""),
    ("double", 4): ("__AVX__", "pd256", ""),
    ("double", 8): ("__AVX512F__", "pd512", ", 4"),
}
"""For vectors that x86 has min and max for: what Clang defines then, the ends of the names, the rounding of zmm."""


def dot_builtin(signs: str) -> str:
    """The function of OpenCL C that adds the products of bytes of these signs."""
    return f"{DOT_BUILTIN}{signs}_{'uint' if signs == 'uu' else 'int'}"


class Helpers:
    """The helper functions that a source uses, each written once.

    Built-in functions get and give vectors of at most `call_bytes`.  Where the compiler `has_avx512`, lanes of a vector
    are loaded and stored under a mask by one instruction.
    """

    def __init__(self, call_bytes: int = CALL_BYTES, has_avx512: bool = False) -> None:
        self.call_bytes, self.has_avx512 = call_bytes, has_avx512
        self._texts: dict[str, str] = {}

    def text(self) -> str:
        """The definitions, in order of first use."""
        return "".join(self._texts.values())

    def define(self, name: str, text: str) -> None:
        """Write the function `name`, once."""
        self._texts.setdefault(name, text)

    def built_in(self, name: str, given: str, got: str, count: int, parameters: int = 1) -> str:
        """The built-in function ``got name(given, ...)`` of vectors, or one that calls it for both halves of long ones.

        ``{n}`` in its name stands for the lanes.
        """
        if count == 1 or count * max(nbytes(given), nbytes(got)) <= self.call_bytes:
            return name.format(n=count)
        part = self.built_in(name, given, got, count // 2, parameters)
        halves, letters = f"halves_{name.format(n=count)}_{given}{count}", "abc"[:parameters]
        calls = ", ".join(f"{part}({', '.join(f'{v}.{half}' for v in letters)})" for half in ("lo", "hi"))
        declared = ", ".join(f"{given}{count} {v}" for v in letters)
        text = f"inline {got}{count} {halves}({declared}) {{ return ({got}{count})({calls}); }}\n"
        self._texts.setdefault(halves, text)
        return halves

    def load(self, ctype: str, count: int, space: str) -> str:
        """The macro that loads `count` elements from an address that is aligned to one of them."""
        name = f"LOAD{count}_{space}_{ctype}"
        self._vector(ctype, count)
        self._texts.setdefault(
            name,
            f"#ifdef __clang__\n#define {name}(p) (*(const __{space} {ctype}{count}_u*)(p))\n"
            f"#else\n#define {name}(p) vload{count}(0, p)\n#endif\n",
        )
        return name

    def store(self, ctype: str, count: int, space: str) -> str:
        """The macro that stores a vector to an address that is aligned to one element."""
        name = f"STORE{count}_{space}_{ctype}"
        self._vector(ctype, count)
        self._texts.setdefault(
            name,
            f"#ifdef __clang__\n#define {name}(v, p) (*(__{space} {ctype}{count}_u*)(p) = (v))\n"
            f"#else\n#define {name}(v, p) vstore{count}(v, 0, p)\n#endif\n",
        )
        return name

    def load_again(self) -> str:
        """A macro without an instruction, over which a compiler keeps nothing that it has loaded."""
        self._texts.setdefault(
            "LOAD_AGAIN",
            "#if !defined(LOAD_AGAIN) && defined(__has_builtin)\n#if __has_builtin(__atomic_signal_fence)\n"
            "#define LOAD_AGAIN() __atomic_signal_fence(__ATOMIC_SEQ_CST)\n#endif\n#endif\n"
            "#ifndef LOAD_AGAIN\n#define LOAD_AGAIN()\n#endif\n",
        )
        return "LOAD_AGAIN"

    def load_or(self, ctype: str, count: int) -> str:
        """A macro for elements of a buffer in global memory where a condition holds, else those of a private array.

        The address of that array is `place`.

        Compilers make a branch of ``?:`` beside a load that may fail, and a move of one of two addresses, which are of
        one kind where the processor has one memory for all.
        """
        name = f"load_or_{ctype}" if count == 1 else f"load_or_{ctype}{count}"
        if count == 1:
            chosen, otherwise = "*", "(p)[at] : other[0]"
        else:
            chosen, whole = self.load(ctype, count, "private"), self.load(ctype, count, "global")
            otherwise = f"{whole}((p) + (at)) : ({ctype}{count})(other[0])"
        self._texts.setdefault(
            name,
            f"#ifdef {ONE_MEMORY}\n#define {name}(holds, p, at, other, place) \\\n"
            f"    ({chosen}((__private const {ctype}*)((holds) ? (size_t)((p) + (at)) : place)))\n"
            f"#else\n#define {name}(holds, p, at, other, place) ((holds) ? {otherwise})\n#endif\n",
        )
        return name

    def load_within(self, ctype: str, count: int) -> str:
        """A function for `count` elements of a buffer in global memory; those that lie outside of it are 0."""
        name, kind = f"load_within_{ctype}{count}", f"{ctype}{count}"
        load, whole = self.load(ctype, count, "private"), self.load(ctype, count, "global")
        self._texts.setdefault(
            name,
            f"inline {kind} {name}(__global const {ctype}* p, long at, long size) {{\n"
            f"    if (at >= 0 && at <= size - {count}) return {whole}(p + at);\n"
            f"    {ctype} lanes[{count}];\n"
            f"    #pragma nounroll\n"
            f"    for (int k = 0; k < {count}; ++k) lanes[k] = (at + k >= 0 && at + k < size) ? p[at + k] : 0;\n"
            f"    return {load}(lanes);\n}}\n",
        )
        return name

    def is_masked(self, ctype: str, count: int) -> bool:
        """Whether `load_masked` and `store_masked` have such vectors."""
        return self.has_avx512 and ctype in ("float", "double", "int") and count * nbytes(ctype) in (16, 32, 64)

    def load_masked(self, ctype: str, count: int) -> str:
        """A function from a buffer in global memory, a position, a mask of bits and a vector to those lanes of the
        buffer from the position on that the mask chooses, and to those of the vector; no other memory is touched."""
        name, kind = f"load_masked_{ctype}{count}", f"{ctype}{count}"
        inside = f"{self._cast('other', ctype, count)}, mask"
        loaded = f"{self._masked('load', ctype, count)}({self._place(ctype)}, {inside})"
        value = f"as_{kind}({loaded})" if ctype == "int" else loaded
        one_by_one = " ".join(f"if (mask >> {k} & 1) other.s{k:x} = p[at + {k}];" for k in range(count))
        self._texts.setdefault(
            name,
            f"inline {kind} {name}(__global const {ctype}* p, long at, {bits_type(count)} mask, {kind} other) "
            f"{{\n{self._either(f'return {value};', f'{one_by_one} return other;')}}}\n",
        )
        return name

    def store_masked(self, ctype: str, count: int) -> str:
        """A function that stores the lanes of a vector that a mask chooses to a buffer, from a position on."""
        name, kind = f"store_masked_{ctype}{count}", f"{ctype}{count}"
        inside = f"{self._cast('v', ctype, count)}, mask"
        stored = f"{self._masked('store', ctype, count)}({self._place(ctype)}, {inside});"
        one_by_one = " ".join(f"if (mask >> {k} & 1) p[at + {k}] = v.s{k:x};" for k in range(count))
        self._texts.setdefault(
            name,
            f"inline void {name}({kind} v, __global {ctype}* p, long at, {bits_type(count)} mask) "
            f"{{\n{self._either(stored, one_by_one)}}}\n",
        )
        return name

    @staticmethod
    def _either(instruction: str, lanes: str) -> str:
        """The instruction where the compiler that gets the text has it, else lane by lane."""
        return f"#if defined(__AVX512VL__) && defined(__AVX512DQ__)\n    {instruction}\n#else\n    {lanes}\n#endif\n"

    @staticmethod
    def _masked(action: str, ctype: str, count: int) -> str:
        """Clang's name of the instruction, which moves words as floats."""
        kind = "pd" if nbytes(ctype) == 8 else "ps"
        return f"__builtin_ia32_{action}u{kind}{8 * count * nbytes(ctype)}_mask"

    def bits(self, count: int, nbytes: int) -> str:
        """A function from a mask of lanes of so many bytes to a bit for each."""
        kind, letter = ("long", "q") if nbytes == 8 else ("int", "d")
        name = f"mask_bits_{kind}{count}"
        instruction = f"return __builtin_ia32_cvt{letter}2mask{8 * count * nbytes}(mask);"
        lanes = " | ".join(f"(mask.s{k:x} & 1) << {k}" for k in range(count))
        declared = f"inline {bits_type(count)} {name}({kind}{count} mask)"
        self._texts.setdefault(name, f"{declared} {{\n{self._either(instruction, f'return {lanes};')}}}\n")
        return name

    @staticmethod
    def _cast(value: str, ctype: str, count: int) -> str:
        return f"as_float{count}({value})" if ctype == "int" else value

    @staticmethod
    def _place(ctype: str) -> str:
        # Clang's functions take pointers of C, and an address of x86 is one in any address space.
        kind = "double" if nbytes(ctype) == 8 else "float"
        return f"(__private {kind}*)((size_t)p + {nbytes(ctype)} * at)"

    def _vector(self, ctype: str, count: int) -> None:
        # PoCL does not inline vload and vstore; through a pointer to a type of small alignment they are one
        # instruction, and private arrays can live in registers.
        size = nbytes(ctype)
        self._texts.setdefault(
            f"{ctype}{count}_u",
            f"#ifdef __clang__\ntypedef {ctype}{count} {ctype}{count}_u "
            f"__attribute__((aligned({size}), may_alias));\n#endif\n",
        )

    def extremum(self, op: str, ctype: str, count: int) -> str:
        """A function for min or max, which gives NaN if either operand is NaN.

        For `select`, `min` and `max` of vectors PoCL calls functions, before which all registers are spilled; for ?: it
        does not.  Two of these become two comparisons, an `or` of masks and a blend: x86 has one instruction, which
        gives the second operand where either is NaN, so that the first one alone needs a comparison.  Of two zeros
        both forms give the second.
        """
        kind = ctype if count == 1 else f"{ctype}{count}"
        is_float = ctype in ("half", "float", "double")
        name, sign = f"{'nan_' if is_float else 'lane_'}{op}_{kind}", "<" if op == "min" else ">"
        choice = f"(a {sign} b) ? a : b"
        choice = f"(a != a) ? a : ({choice})" if is_float else choice
        body = f"    return {choice};\n"
        if (ctype, count) in X86_EXTREMA:
            feature, suffix, rounding = X86_EXTREMA[ctype, count]
            chosen = f"    {kind} c = __builtin_ia32_{op}{suffix}(a, b{rounding});\n    return (a != a) ? a : c;\n"
            body = f"#if defined({feature})\n{chosen}#else\n{body}#endif\n"
        self._texts.setdefault(name, f"inline {kind} {name}({kind} a, {kind} b) {{\n{body}}}\n")
        return name

    def choice(self, op: str, ctype: str, count: int) -> str:
        """A function for min or max whose first operand is not NaN; it gives NaN if the second is."""
        kind, sign = ctype if count == 1 else f"{ctype}{count}", "<" if op == "min" else ">"
        name = f"lane_{op}_of_{kind}"
        self._texts.setdefault(name, f"inline {kind} {name}({kind} a, {kind} b) {{ return (a {sign} b) ? a : b; }}\n")
        return name

    def no_nan(self, ctype: str, count: int) -> str:
        """A function that gives floats as they are, and 0 for NaN, of which drivers make any integer."""
        kind = ctype if count == 1 else f"{ctype}{count}"
        name, zero = f"nan_to_zero_{kind}", f"({kind})(0)"
        self._texts.setdefault(name, f"inline {kind} {name}({kind} v) {{ return (v == v) ? v : {zero}; }}\n")
        return name

    def pick(self, ctype: str, chosen: Picks) -> str:
        """A function from vectors to a vector of the lanes that were chosen from them.

        Lane by lane: compilers make one instruction of it, and oclgrind cannot join vectors of other lengths.
        """
        lanes = [f"v{vector}.s{place:x}" for vector, place in zip(chosen.holder, chosen.inside, strict=True)]
        name = f"pick_{ctype}{chosen.length}_{'_'.join(lane.replace('.s', '') for lane in lanes)}"
        parameters = ", ".join(f"{ctype}{chosen.length} v{number}" for number in range(len(chosen.starts)))
        kind = f"{ctype}{len(lanes)}"
        value = f"({kind})({', '.join(lanes)})"
        self._texts.setdefault(name, f"inline {kind} {name}({parameters}) {{ return {value}; }}\n")
        return name

    def exponential(self, count: int) -> str:
        """A function for ``e**x`` of floats on a CPU, where drivers call a library for it (see `..exponential`)."""
        kind, bits = (f"{base}{count if count > 1 else ''}" for base in ("float", "int"))
        name = f"exp_{kind}"

        def number(value: float) -> str:
            return f"({kind})({literal(value, 'float32', 'int')})"

        value = number(COEFFICIENTS[-1])
        for coefficient in (*reversed(COEFFICIENTS[:-1]), 1.0, 1.0):
            value = f"({value} * r + {number(coefficient)})"
        least, most, shift = number(LEAST), number(ROUND + 127 + 127), number(ROUND + 127)
        self._texts.setdefault(
            name,
            f"inline {kind} {name}({kind} x) {{\n"
            f"    const {kind} a = (x < {least}) ? {least} : x;\n"
            f"    const {kind} t = a * {number(1 / math.log(2.0))} + {shift};\n"
            f"    const {kind} s = (t > {most}) ? {most} : t;\n"
            f"    const {kind} n = s - {shift};\n"
            f"    const {kind} h = n * {number(-LN2_HIGH)} + a;\n"
            f"    const {kind} r = n * {number(-LN2_LOW)} + h;\n"
            f"    return {value} * as_{kind}(as_{bits}(s) << 23);\n}}\n",
        )
        return name

    def component(self, ctype: str) -> str:
        """A function from a texel of four components and a number below 4 to that component."""
        name, single = f"component_{ctype}", ctype[:-1]
        choice = "k < 2 ? (k == 0 ? t.x : t.y) : (k == 2 ? t.z : t.w)"
        self._texts.setdefault(name, f"inline {single} {name}({ctype} t, int k) {{ return {choice}; }}\n")
        return name

    def dot(self, signs: str, count: int, in_pairs: bool) -> str:
        """A function from two vectors of words to the sum of the four products of bytes in each lane."""
        name = f"dot_int{count}" if signs == "ss" else f"dot_{signs}_int{count}"
        if not in_pairs:
            lanes = ", ".join(f"{dot_builtin(signs)}((uint)a.s{k:x}, (uint)b.s{k:x})" for k in range(count))
            body = f"return (int{count})({lanes});"
        elif count > MOST_PAIRS:
            half = self.dot(signs, count // 2, in_pairs)
            body = f"return (int{count})({half}(a.lo, b.lo), {half}(a.hi, b.hi));"
        else:
            body = f"return {self._pairs(signs, count, 8)} + {self._pairs(signs, count, 0)};"
        self._texts.setdefault(name, f"inline int{count} {name}(int{count} a, int{count} b) {{ {body} }}\n")
        return name

    def _pairs(self, signs: str, count: int, left: int) -> str:
        """The sum of two products in each lane: those of the upper bytes of its halves, or after a shift of the lower.

        Drivers for CPUs call a function for each lane of ``dot_4x8packed_ss_int``; products of 16 bits that are added
        in pairs are one instruction for all lanes (``vpmaddwd``).
        """
        name = f"pairs{left}_int{count}" if signs == "ss" else f"pairs{left}_{signs}_int{count}"
        x, y = (self._halves(f"{'u' * (s == 'u')}short", v, count, left) for s, v in zip(signs, "ab", strict=True))
        self._texts.setdefault(
            name,
            f"inline int{count} {name}(int{count} a, int{count} b) {{\n"
            f"    const int{2 * count} p = {x}\n"
            f"        * {y};\n"
            f"    return p.even + p.odd; }}\n",
        )
        return f"{name}(a, b)"

    def _halves(self, kind: str, vector: str, count: int, left: int) -> str:
        """The bytes of each half of words as int: the upper ones, or after a shift of the lower."""
        widened = self.built_in("convert_int{n}", kind, "int", 2 * count)
        moved = f" << ({kind}){left}" if left else ""
        return f"{widened}(as_{kind}{2 * count}({vector}){moved} >> ({kind})8)"

    def subgroup(self, op: str, ctype: str, is_float: bool) -> str:
        """A function from what each item of a subgroup has to the sum, the least or the greatest of all."""
        word = "add" if op == "+" else op
        name, value = f"subgroup_{word}_{ctype}", f"sub_group_reduce_{word}(v)"
        if op == "+" and not is_float:  # wraps around, where C's signed arithmetic has no meaning
            value = f"({ctype})sub_group_reduce_add((u{ctype})v)"
        elif op != "+" and is_float:  # which leaves open what it gives where an item has NaN
            value = f"sub_group_any(v != v) ? NAN : {value}"
        self._texts.setdefault(name, f"inline {ctype} {name}({ctype} v) {{ return {value}; }}\n")
        return name

    def floor_division(self, op: str, ctype: str) -> str:
        """A function for ``//`` or ``%`` that rounds towards minus infinity."""
        name = f"floor_{'div' if op == '//' else 'mod'}_{ctype}"
        wrong = "(r != 0 && ((r < 0) != (d < 0)))"
        unsigned = {"char": "uchar", "short": "ushort", "int": "uint", "long": "ulong"}.get(ctype, ctype)
        negated = f"({ctype})(({unsigned})0 - ({unsigned})a)"
        quotient = f"b == ({ctype})-1 && d == 1 ? {negated} : {wrong} ? q - 1 : q"
        result = quotient if op == "//" else f"{wrong} ? r + d : r"
        # Division by 0, an error, and by -1, which may overflow, trap on some devices even where nobody asks for it.
        if ctype.startswith("u"):
            divided = f"a {'/' if op == '//' else '%'} (b == 0 ? ({ctype})1 : b)"
            self._texts.setdefault(name, f"inline {ctype} {name}({ctype} a, {ctype} b) {{ return {divided}; }}\n")
            return name
        divisor = "b == 0 || b == -1"
        self._texts.setdefault(
            name,
            f"inline {ctype} {name}({ctype} a, {ctype} b) {{ const {ctype} d = {divisor} ? 1 : b;\n"
            f"    const {ctype} q = a / d, r = a - q * d; return {result}; }}\n",
        )
        return name

    def truncated_division(self, name: str, ctype: str) -> str:
        """A function for ``truncdiv`` or ``truncmod`` of numbers with signs; ``truncdiv(a, -1)`` wraps around."""
        helper, unsigned = f"trunc_{name[-3:]}_{ctype}", f"u{ctype}"
        negated = f"({ctype})(({unsigned})0 - ({unsigned})a)"
        result = f"b == ({ctype})-1 ? {negated} : a / d" if name == "truncdiv" else "a % d"
        self._texts.setdefault(
            helper,
            f"inline {ctype} {helper}({ctype} a, {ctype} b) {{ const {ctype} d = b == 0 || b == -1 ? 1 : b;\n"
            f"    return {result}; }}\n",
        )
        return helper

    def shift(self, name: str, ctype: str, count: int) -> str:
        """A function for shifts by any number of bits, of which OpenCL C looks at those below the type's width."""
        kind, unsigned = (f"{base}{count if count > 1 else ''}" for base in (ctype, f"u{ctype.removeprefix('u')}"))
        helper, width = f"{name}_{kind}", 8 * nbytes(ctype)
        by, shifted = f"as_{unsigned}(b)", "a >> b"
        if name == "shift_left":
            shifted = f"as_{kind}(({unsigned})(as_{unsigned}(a) << {by}))"
        left = f"({kind})0" if name == "shift_left" or ctype.startswith("u") else f"({kind})(a >> ({kind}){width - 1})"
        text = f"({by} < ({unsigned}){width}) ? ({kind})({shifted}) : {left}"
        self._texts.setdefault(helper, f"inline {kind} {helper}({kind} a, {kind} b) {{ return {text}; }}\n")
        return helper

    def in_four_bits(self, ctype: str) -> str:
        """A function from a byte to the number that its lower half is."""
        name = f"in_four_{ctype}"
        text = "(uchar)(v & 15)" if ctype == "uchar" else "(char)((char)(v << 4) >> 4)"
        self._texts.setdefault(name, f"inline {ctype} {name}({ctype} v) {{ return {text}; }}\n")
        return name

    def view(self, ctype: str) -> str:
        """A type that may alias memory of any other type."""
        name = f"{ctype}_view"
        self._texts.setdefault(
            name,
            f"#ifdef __clang__\ntypedef {ctype} {name} __attribute__((may_alias));\n"
            f"#else\ntypedef {ctype} {name};\n#endif\n",
        )
        return name

    # ------------------------------------------------------------ floats of 16 and of 8 bits, held as float

    def load_narrow(self, dtype: str, space: str, pointer: str, place: str) -> str:
        """The float value of an element."""
        if dtype == "float16":
            return f"vload_half({place}, (const __{space} half*){pointer})"
        return f"{self.from_bits(dtype)}({pointer}[{place}])"

    def store_narrow(self, dtype: str, space: str, pointer: str, place: str, value: str) -> str:
        """The statement that rounds a float and stores it."""
        if dtype == "float16":
            return f"vstore_half_rte({value}, {place}, (__{space} half*){pointer});"
        return f"{pointer}[{place}] = {self.to_bits(dtype)}({value});"

    def round_narrow(self, dtype: str, value: str) -> str:
        """The nearest value of the type, ties to even, as a float."""
        name = f"round_{dtype}"
        if dtype == "float16":
            body = "ushort b; vstore_half_rte(v, 0, (half*)&b); return vload_half(0, (const half*)&b);"
        else:
            body = f"return {self.from_bits(dtype)}({self.to_bits(dtype)}(v));"
        self._texts.setdefault(name, f"inline float {name}(float v) {{ {body} }}\n")
        return f"{name}({value})"

    def odd_float(self) -> str:
        """A function from double to float, towards zero and odd where inexact, so that rounding once more is exact."""
        self._texts.setdefault(
            "odd_float",
            "inline float odd_float(double v) { const float t = convert_float_rtz(v);\n"
            "    return (double)t == v ? t : as_float(as_uint(t) | 1u); }\n",
        )
        return "odd_float"

    def from_bits(self, dtype: str) -> str:
        """A function from the bits of a float to the float of 32 bits of equal value."""
        bits, body = "ushort", "return as_float((uint)b << 16);"
        if dtype == "float16":
            body = "return vload_half(0, (const half*)&b);"
        elif dtype in FLOATS8:
            bits, (digits, bias, last) = "uchar", FLOATS8[dtype]
            fraction = (1 << digits) - 1
            body = (
                f"const int e = (b & 127) >> {digits}, m = b & {fraction};\n"
                f"    const float size = (b & 127) > {last} ? NAN : ldexp((float)(e ? m + {fraction + 1} : m), "
                f"(e ? e : 1) - {bias + digits});\n"
                f"    return copysign({f'(b & 127) == {last} ? INFINITY : size' if digits == 2 else 'size'}, "
                f"(b & 128) ? -1.0f : 1.0f);"
            )
        self._texts.setdefault(f"from_{dtype}", f"inline float from_{dtype}({bits} b) {{ {body} }}\n")
        return f"from_{dtype}"

    def to_bits(self, dtype: str) -> str:
        """A function from a float of 32 bits to the bits of the nearest one of the type, ties to even."""
        bits = "ushort"
        body = "return (ushort)(v != v ? (b >> 16) | 0x40u : (b + 0x7FFFu + ((b >> 16) & 1u)) >> 16);"
        if dtype == "float16":
            body = "ushort r; vstore_half_rte(v, 0, (half*)&r); return r;"
        elif dtype in FLOATS8:
            bits, (digits, bias, last) = "uchar", FLOATS8[dtype]
            last += digits == 3  # what is larger than the largest number is NaN
            dropped, near = 23 - digits, _float_bits(2.0 ** (24 - bias - digits))
            body = (
                "const uint size = b & 0x7FFFFFFFu;\n"
                f"    const uint above = size + ((size >> {dropped}) & 1u) + {(1 << dropped - 1) - 1}u;\n"
                f"    const int normal = (int)(above >> {dropped}) - {(127 - bias) << digits};\n"
                f"    const int small = (int)(as_uint(as_float(size) + as_float({near}u)) - {near}u);\n"
                f"    const int found = normal < {1 << digits} ? small : min(normal, {last});\n"
                f"    return (uchar)((v != v ? 127 : found) | ((b >> 24) & 0x80u));"
            )
        self._texts.setdefault(
            f"to_{dtype}", f"inline {bits} to_{dtype}(float v) {{ const uint b = as_uint(v);\n    {body} }}\n"
        )
        return f"to_{dtype}"


def _float_bits(value: float) -> int:
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return int(bits)
