"""Programs at the edges of types and of what is known, for `simplify` and `remove_no_op`."""

PROGRAMS = {
    "A:float32 B:float32": {
        "a zero over a negative zero": """
            B[0] = T.float32(-0.0)
            B[0] = T.float32(0)
            for i in range(1, 8):
                B[i] = A[i]
        """,
        "a negative zero plus zero": """
            for i in range(8):
                B[i] = T.float32(-0.0)
            for i in range(8):
                B[i] = B[i] + T.float32(0)
            for i in range(8):
                B[i] = T.float32(1) / B[i]
        """,
        "a difference with itself": """
            for i in range(8):
                B[i] = A[i] - A[i]
        """,
        "a product with zero": """
            for i in range(8):
                B[i] = A[i] * T.float32(0)
        """,
        "equal to itself": """
            for i in range(8):
                if A[i] == A[i]:
                    B[i] = T.float32(1)
                else:
                    B[i] = T.float32(2)
        """,
        "not less": """
            for i in range(8):
                if not (A[i] < T.float32(1)):
                    B[i] = T.float32(1)
                else:
                    B[i] = T.float32(2)
        """,
        "less or not": """
            for i in range(8):
                if A[i] < T.float32(1) or A[i] >= T.float32(1):
                    B[i] = T.float32(1)
                else:
                    B[i] = T.float32(2)
        """,
        "not less, then at least": """
            for i in range(8):
                B[i] = T.float32(0)
                if not (A[i] < T.float32(1)):
                    if A[i] >= T.float32(1):
                        B[i] = T.float32(1)
                    else:
                        B[i] = T.float32(3)
        """,
        "less, else at least": """
            for i in range(8):
                B[i] = T.float32(0)
                if A[i] < T.float32(1):
                    B[i] = T.float32(4)
                else:
                    if A[i] >= T.float32(1):
                        B[i] = T.float32(1)
        """,
        "minimum of one": """
            for i in range(8):
                B[i] = T.min(A[i], A[i])
            for i in range(8):
                B[i] = T.max(B[i], T.min(B[i], T.float32(1)))
        """,
        "a zero stored where it is equal to zero": """
            for i in range(8):
                B[i] = A[i]
            for i in range(8):
                if B[i] == T.float32(0):
                    B[i] = T.float32(0)
            for i in range(8):
                B[i] = T.float32(1) / B[i]
        """,
        "a one stored where it is equal to one": """
            for i in range(8):
                B[i] = A[i]
            for i in range(8):
                if B[i] == T.float32(1):
                    B[i] = T.float32(1)
        """,
        "NaN is not equal": """
            for i in range(8):
                B[i] = T.float32('nan')
            for i in range(8):
                if B[i] == B[i]:
                    B[i] = T.float32(5)
        """,
        "NaN stored twice": """
            for i in range(8):
                B[i] = T.float32('nan')
            for i in range(8):
                B[i] = T.float32('nan')
        """,
        "infinity minus itself": """
            for i in range(8):
                B[i] = T.float32('inf')
            for i in range(8):
                B[i] = B[i] - B[i]
        """,
        "a product that is a negative zero": """
            for i in range(8):
                B[i] = T.float32(0) * T.float32(-1)
            for i in range(8):
                B[i] = T.float32(1) / B[i]
        """,
        "a float16 in between": """
            for i in range(8):
                B[i] = T.Cast('float32', T.Cast('float16', A[i]))
        """,
        "a float that has no odd number": """
            for i in range(8):
                B[i] = T.float32(16777217) + T.float32(0)
            for i in range(8):
                if B[i] == T.float32(16777216):
                    B[i] = T.Cast('float32', T.int32(16777217))
        """,
    },
    "A:int32 B:int32": {
        "a successor that is not larger": """
            for i in range(8):
                if A[i] + T.int32(1) > A[i]:
                    B[i] = T.int32(1)
                else:
                    B[i] = T.int32(2)
        """,
        "twice and half": """
            for i in range(8):
                B[i] = A[i] * T.int32(2) // T.int32(2)
        """,
        "a negative that is its own": """
            for i in range(8):
                if T.int32(0) - A[i] < T.int32(0):
                    B[i] = T.int32(1)
                else:
                    B[i] = T.int32(0)
        """,
        "an absolute value below zero": """
            for i in range(8):
                if T.abs(A[i]) >= T.int32(0):
                    B[i] = T.int32(1)
                else:
                    B[i] = T.int32(0)
        """,
        "a quotient by -1": """
            for i in range(8):
                B[i] = A[i] // T.int32(-1)
            for i in range(8):
                B[i] = B[i] % T.int32(-3)
        """,
        "a remainder of a negative divisor": """
            for i in range(8):
                if A[i] % T.int32(-4) <= T.int32(0):
                    B[i] = A[i] % T.int32(-4)
                else:
                    B[i] = T.int32(77)
        """,
        "truncated quotients of negative divisors": """
            for i in range(8):
                B[i] = T.truncdiv(A[i], T.int32(-2)) + T.truncmod(A[i], T.int32(-3))
        """,
        "shifted out": """
            for i in range(8):
                B[i] = T.shift_right(T.shift_left(A[i], T.int32(4)), T.int32(4))
        """,
        "a cast that loses digits": """
            for i in range(8):
                B[i] = T.Cast('int32', T.Cast('int8', A[i]))
        """,
        "a narrow comparison": """
            for i in range(8):
                if T.Cast('int8', A[i]) < T.int8(100):
                    B[i] = T.int32(1)
                else:
                    B[i] = T.int32(2)
        """,
        "a successor in 64 bits": """
            for i in range(8):
                if T.Cast('int64', A[i]) + 1 > T.Cast('int64', A[i]):
                    B[i] = T.int32(1)
                else:
                    B[i] = T.int32(2)
        """,
        "loops of no iteration": """
            for i in range(8):
                B[i] = A[i]
            for i in range(0):
                B[i] = T.int32(5)
            for i in range(A[0] % T.int32(1)):
                B[i] = T.int32(6)
        """,
        "an extent from memory": """
            for i in range(8):
                B[i] = A[i]
            for i in T.serial(T.Cast('int64', A[0] % T.int32(9))):
                B[i] = T.int32(6)
            for i in range(8):
                B[i] = B[i] + T.int32(1)
        """,
        "an extent from memory, at the end": """
            for i in range(8):
                B[i] = A[i]
            for i in T.serial(T.Cast('int64', A[0] % T.int32(9))):
                B[i] = T.int32(6)
        """,
        "each element from the one before": """
            for i in range(8):
                B[i] = A[i]
            for i in range(7):
                B[i + 1] = B[i]
        """,
        "each element from one that is overwritten": """
            for i in range(8):
                B[i] = A[i]
            for i in range(7):
                B[i + 1] = B[i] + T.int32(1)
                B[i] = T.int32(0)
        """,
        "nested bindings": """
            for i in range(8):
                with T.LetStmt(A[i]) as x:
                    with T.LetStmt(x + T.int32(1)) as y:
                        B[i] = y - x
        """,
        "a bound element is stored back": """
            for i in range(8):
                B[i] = A[i]
            for i in range(8):
                x = B[i]
                B[i] = T.int32(3)
                B[i] = x
        """,
        "a bound element is compared": """
            for i in range(8):
                B[i] = A[i]
            x = B[0]
            B[0] = T.int32(3)
            if x == T.int32(3):
                B[0] = T.int32(3)
            else:
                B[0] = x
        """,
        "a bound comparison of what changes": """
            for i in range(8):
                B[i] = A[i]
            x: T.bool = B[0] < T.int32(2)
            B[0] = T.int32(5)
            if x:
                B[1] = T.int32(1)
            if B[0] < T.int32(2):
                B[2] = T.int32(1)
        """,
        "a view of another shape": """
            for i in range(8):
                B[i] = A[i]
            V = T.decl_buffer((2, 4), 'int32', data=B.data)
            V[0, 1] = T.int32(9)
            B[1] = T.int32(4)
            V[1, 0] = B[4]
            B[5] = V[1, 1]
            if V[0, 1] == T.int32(4):
                B[6] = T.int32(1)
        """,
        "a view of another type": """
            for i in range(8):
                B[i] = A[i]
            V = T.decl_buffer((8,), 'float32', data=B.data)
            B[0] = T.int32(0)
            V[0] = T.float32(1)
            if B[0] == T.int32(0):
                B[1] = T.int32(5)
        """,
        "a view of bytes": """
            for i in range(8):
                B[i] = A[i]
            V = T.decl_buffer((32,), 'int8', data=B.data)
            B[0] = T.int32(0)
            V[1] = T.int8(1)
            if B[0] == T.int32(0):
                B[1] = T.int32(5)
            B[2] = B[0]
        """,
        "a condition that its branch changes": """
            for i in range(8):
                B[i] = A[i]
            for i in range(8):
                if B[0] < T.int32(3):
                    B[0] = T.int32(7)
                    if B[0] < T.int32(3):
                        B[1] = T.int32(1)
                    B[2] = T.int32(4)
        """,
        "a condition that its branch may change": """
            for i in range(8):
                B[i] = A[i]
            for i in range(8):
                if B[i] < T.int32(3):
                    B[(i + 1) % 8] = T.int32(7)
                    if B[i] < T.int32(3):
                        B[i] = T.int32(1)
        """,
        "scattered, and written back": """
            for i in range(8):
                B[i] = T.int32(0)
            for i in range(8):
                B[T.Cast('int64', A[i] % T.int32(3))] = T.Cast('int32', i)
            for i in range(8):
                B[T.Cast('int64', A[i] % T.int32(3))] = B[T.Cast('int64', A[i] % T.int32(3))]
        """,
        "one of all elements changes": """
            for i in range(8):
                B[i] = T.int32(2)
            B[T.Cast('int64', A[0] % T.int32(8))] = T.int32(3)
            for i in range(8):
                if B[i] == T.int32(2):
                    B[i] = T.int32(2)
                else:
                    B[i] = T.int32(9)
        """,
        "scattered contents are known": """
            for i in range(8):
                B[i] = T.int32(2)
            for i in range(8):
                B[T.Cast('int64', A[i] % T.int32(8))] = T.int32(2)
            for i in range(8):
                B[i] = B[i] + T.int32(1)
        """,
        "after a while": """
            for i in range(8):
                B[i] = T.int32(0)
            while B[0] < T.int32(5):
                B[1] = B[0]
                B[0] = B[0] + T.int32(1)
            if B[0] < T.int32(5):
                B[2] = T.int32(1)
            B[1] = B[1]
        """,
        "a while that never runs": """
            for i in range(8):
                B[i] = T.int32(0)
            while B[0] < T.int32(0):
                B[1] = T.int32(3)
                B[0] = B[0] + T.int32(1)
            if B[1] == T.int32(3):
                B[2] = T.int32(1)
        """,
        "a while that reads what is stored": """
            for i in range(8):
                B[i] = A[i] % T.int32(3)
            B[0] = T.int32(7)
            while B[1] < T.int32(4):
                B[1] = B[1] + T.int32(1)
                B[2] = B[0]
                B[0] = T.int32(8)
            B[0] = T.int32(9)
        """,
        "a reduction onto what is there": """
            for i in range(8):
                B[i] = T.int32(0)
            for i, k in T.grid(8, 4):
                with T.block('s'):
                    vi, vk = T.axis.remap('SR', [i, k])
                    B[vi] = B[vi] + A[(vi + vk) % 8]
        """,
        "an init where a predicate holds": """
            for i in range(8):
                B[i] = T.int32(4)
            for i, k in T.grid(8, 4):
                with T.block('s'):
                    vi, vk = T.axis.remap('SR', [i, k])
                    T.where(i < 5)
                    with T.init():
                        B[vi] = T.int32(0)
                    B[vi] = B[vi] + A[(vi + vk) % 8]
        """,
        "a reduction of zeros": """
            for i, k in T.grid(8, 4):
                with T.block('s'):
                    vi, vk = T.axis.remap('SR', [i, k])
                    with T.init():
                        B[vi] = T.int32(3)
                    B[vi] = B[vi] + A[vi] * T.int32(0)
        """,
        "predicates of data": """
            for i in range(8):
                B[i] = T.int32(1)
            for i in range(8):
                with T.block('s'):
                    vi = T.axis.spatial(8, i)
                    T.where(A[0] < T.int32(3))
                    B[vi] = T.int32(1)
            for i in range(8):
                with T.block('t'):
                    vi = T.axis.spatial(8, i)
                    T.where(B[0] == T.int32(1))
                    B[vi] = T.int32(2)
        """,
        "a predicate that the block changes": """
            for i in range(8):
                B[i] = A[i]
            for i in range(8):
                with T.block('t'):
                    vi = T.axis.spatial(8, i)
                    T.where(B[0] < T.int32(2))
                    B[0] = B[0] + T.int32(1)
                    B[vi] = B[vi] + T.int32(0)
        """,
        "ramps that overlap": """
            B[0:8] = A[0:8]
            B[0:4] = T.Broadcast(T.int32(3), 4)
            B[T.Ramp(3, -1, 4)] = B[T.Ramp(0, 1, 4)]
            if B[0] == T.int32(3):
                B[4] = T.int32(3)
            B[T.Ramp(4, 1, 4)] = B[T.Ramp(7, -1, 4)]
            if B[5] == T.int32(3):
                B[6] = T.int32(0)
        """,
        "lanes with one index": """
            B[0:8] = A[0:8]
            B[T.Broadcast(T.int64(2), 4)] = T.Ramp(T.int32(1), T.int32(1), 4)
            if B[2] == T.int32(4):
                B[3] = T.int32(4)
            if B[2] == T.int32(1):
                B[3] = T.int32(1)
        """,
        "at the end of the type": """
            for i in range(8):
                B[i] = T.int32(2147483647) + A[i] % T.int32(2)
            for i in range(8):
                if B[i] >= T.int32(2147483647):
                    B[i] = T.int32(1)
                else:
                    B[i] = T.int32(0)
        """,
        "whole logarithms": """
            for i in range(1, 8):
                if T.Cast('int32', T.ceil(T.log2(T.Cast('float32', i)))) <= T.int32(3):
                    B[i] = T.int32(1)
                else:
                    B[i] = T.int32(0)
            B[0] = T.int32(0)
        """,
        "a quotient behind its condition": """
            for i in range(8):
                B[i] = T.if_then_else(A[i] == T.int32(0), T.int32(0), T.int32(8) // A[i])
            for i in range(8):
                if A[i] == T.int32(0):
                    B[i] = T.int32(0)
        """,
        "an allocation in a block": """
            for i in range(8):
                B[i] = A[i]
            for i in range(8):
                with T.block('b'):
                    vi = T.axis.spatial(8, i)
                    S = T.alloc_buffer((2,), 'int32')
                    S[0] = B[vi]
                    S[1] = T.int32(0)
                    B[vi] = T.int32(7)
                    B[vi] = S[0] + S[1]
        """,
        "lanes and threads": """
            for i in T.parallel(8):
                B[i] = A[i]
            for i in T.vectorized(8):
                B[i] = B[i] + T.int32(1)
            for i in T.vectorized(8):
                B[7 - i] = B[i]
        """,
    },
    "A:uint8 B:uint8": {
        "a byte below zero": """
            for i in range(8):
                if A[i] - T.uint8(1) < A[i]:
                    B[i] = T.uint8(1)
                else:
                    B[i] = T.uint8(2)
        """,
        "a byte is at least zero": """
            for i in range(8):
                if A[i] - T.uint8(5) >= T.uint8(0):
                    B[i] = A[i] - T.uint8(5)
                else:
                    B[i] = T.uint8(2)
        """,
        "a sum of bytes that wraps around": """
            for i in range(8):
                B[i] = (A[i] + T.uint8(200)) // T.uint8(2)
        """,
    },
    "n:int32 m:int32 A:int32 B:int32": {
        "less and at most the predecessor": """
            for i in range(8):
                if n < m and n <= m - T.int32(1):
                    B[i] = T.int32(1)
                else:
                    B[i] = T.int32(0)
        """,
        "at most the predecessor": """
            for i in range(8):
                B[i] = T.int32(0)
                if n <= m - T.int32(1):
                    if n < m:
                        B[i] = T.int32(1)
        """,
        "a successor at most": """
            for i in range(8):
                B[i] = T.int32(0)
                if n + T.int32(1) <= m:
                    if n <= m:
                        B[i] = T.int32(1)
        """,
    },
    "n:int64 m:int64 A:int32 B:int32": {
        "a successor at most, in 64 bits": """
            for i in range(8):
                B[i] = T.int32(0)
                if n + 1 <= m:
                    if n <= m:
                        B[i] = T.int32(1)
        """,
        "equal doubles": """
            for i in range(8):
                B[i] = T.int32(0)
                if n * 2 == m * 2:
                    if n == m:
                        B[i] = T.int32(1)
        """,
        "congruences of negative divisors": """
            for i in range(8):
                B[i] = T.int32(0)
                if n % 4 == 3:
                    if n % -4 == -1:
                        B[i] = T.int32(1)
                    if n % 2 == 1:
                        B[i] = B[i] + T.int32(2)
                    if (n + 1) // -4 == 0 - (n + 1) // 4:
                        B[i] = B[i] + T.int32(4)
        """,
    },
    "A:bool B:bool": {
        "bools": """
            for i in range(8):
                B[i] = A[i] and not A[i]
            for i in range(8):
                B[i] = B[i] or (A[i] and (A[i] or B[i]))
        """,
        "bools that are compared": """
            for i in range(8):
                if A[i] == T.bool(True):
                    B[i] = A[i] != T.bool(True)
                else:
                    B[i] = A[i] < T.bool(True)
        """,
    },
    "A:bool B:int32": {
        "bools as numbers": """
            for i in range(8):
                B[i] = T.Cast('int32', A[i]) + T.Cast('int32', A[i])
            for i in range(8):
                if B[i] < T.int32(2) and T.Cast('bool', B[i]):
                    B[i] = T.int32(7)
        """,
    },
    "A:float16 B:float16": {
        "a sum that float16 rounds": """
            for i in range(8):
                B[i] = (A[i] + T.float16(1000)) - T.float16(1000)
        """,
    },
}  # fmt: skip
"""By parameters and what each is about."""
