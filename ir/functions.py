"""Functions that a `Call` may name, and what each computes."""

from __future__ import annotations

BIT_CALLS = ("bitwise_and", "bitwise_or", "bitwise_xor")
"""Of two integers of one type, bit by bit."""
SHIFT_CALLS = ("shift_left", "shift_right")
"""``f(a, n)`` of integers of one type: `a` times or divided by ``2**n``, in the bits that the type has.

`n` is read as a number without a sign.  Of as many bits as the type has, or more, nothing is left: 0, and to the right
of a negative number -1.  A shift to the right keeps the sign.
"""
TRUNCATED_CALLS = {"truncdiv": "//", "truncmod": "%"}
"""``f(a, b)`` of integers: the quotient rounded towards 0, and its rest, with the sign of `a`; each with its floor."""
INTEGER_CALLS = (*BIT_CALLS, *SHIFT_CALLS, *TRUNCATED_CALLS)
REINTERPRET = "reinterpret"
"""``f(a)``: the number of another type that has the bits of `a`; of a NaN it has those of some NaN."""
DOT_STEPS = 4
"""Products that a dot product of bytes adds up."""
DOT_CALLS = ("dot_4x8packed_uu", "dot_4x8packed_us", "dot_4x8packed_su", "dot_4x8packed_ss")
"""``f(a, b, c)``: `c` and the four products of the bytes of `a` with those of `b`, all int32, which wraps around.

The letters at the end say whether the bytes of `a` and of `b` are signed.  The names are those of OpenCL C, whose
functions give the sum of the products alone.
"""
PACK_4X8 = "pack_4x8"
"""``f(a, b, c, d)``: the int32 whose bytes are those of four numbers of one type of 8 bits, `a` in the lowest."""
PAIR_STEPS = 2
"""Products that a dot product of pairs of bfloat16 adds up."""
PAIR_CALLS = ("dot_2x16packed_bf",)
"""``f(a, b, c)``: `c`, a float32, and the two products of the bfloat16 halves of `a` with those of `b`, words of int32.

The upper halves are multiplied and added first, then the lower ones, each time rounded once, to the nearest float32, of
two the even one.  Subnormal numbers count as zeros of their sign, in `c`, in the halves and in both sums.  It is what
x86 does in `vdpbf16ps`.
"""
LIBRARY_CALLS = (
    "tan", "asin", "acos", "sinh", "cosh", "asinh", "acosh", "atanh", "exp2", "log2", "log10", "log1p", "atan2",
    "hypot",
)  # fmt: skip
"""Functions of floats that the C library computes."""
MATH_CALLS = (
    "exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "abs", "floor", "ceil", "nearbyint", "pow", "fma", "fmod",
    "sin", "cos", "atan", "round", "trunc", "copysign", *LIBRARY_CALLS,
)  # fmt: skip
"""Of floats, and `abs` of integers as well; `nearbyint` gives the nearest whole number, of two the even one.

`round` gives the nearest whole number as well, of two the one farther from 0, and `trunc` the next one towards 0.

`fmod` is the rest of a division whose quotient is rounded towards 0, which is exact, and has the sign of the dividend.
"""
TWO_ARGUMENTS = ("pow", "fmod", "atan2", "hypot", "copysign")
"""Those of `MATH_CALLS` that take two floats; `fma` takes three, and all others one."""
SUBGROUP_CALLS = {"+": "subgroup_add", "min": "subgroup_min", "max": "subgroup_max"}
"""``C[i] = C[i] op f(e)``, by operation: the work-items of a subgroup reduce `e`, and what they have is updated once.

Where items come one after the other each updates it by its own `e`, which is the value of the call.
"""
MULTIPLY_ACCUMULATE = "multiply_accumulate"
"""``f(a, b, c)``: ``a * b + c`` of floats, rounded once, written over `c`, which is what a register holds."""
TRUNC_TO_INT32, ROUND_TO_INT32 = "trunc_to_int32", "round_to_int32"
TO_INT_CALLS = (TRUNC_TO_INT32, ROUND_TO_INT32)
"""``f(a)``: the int32 that a float32 becomes, truncated or the nearest, of two the even one; undef where none fits."""
FUNCTIONS = (
    *MATH_CALLS, *INTEGER_CALLS, REINTERPRET, *DOT_CALLS, *PAIR_CALLS, *SUBGROUP_CALLS.values(), MULTIPLY_ACCUMULATE,
    *TO_INT_CALLS, PACK_4X8,
)  # fmt: skip
"""All that a call may name, but for the lazy ``if_then_else`` and those below."""
MASKED_LOAD = "masked_load"
"""``f(c, A[i], b)``: in the lanes where `c` holds what is loaded, in others, where nothing is read, those of `b`, or 0.

One condition may be that of all lanes.
"""
LOAD_WITHIN = "load_within"
"""``f(A[i])``: in the lanes where `i` lies in `A` what is loaded, in others, where nothing is read, 0."""
PREFETCH = "prefetch"
"""``f(A[i])``, as a statement: memory that is asked for ahead of time, also beyond the end of `A`; nothing is read."""

BARRIERS = ("barrier_shared", "barrier_global", "barrier_shared_global")
"""``f()``, as a statement: all work-items of a group come here before any goes on.

What they have written to memory of these scopes is seen by all.  Items that come one after the other wait for nobody.
"""
SIGNAL_FENCE = "signal_fence"
"""``f()``, as a statement: no instruction, but what was loaded before it is loaded again behind it."""
STATEMENT_CALLS = (*BARRIERS, SIGNAL_FENCE)
"""Calls without arguments that are statements."""
