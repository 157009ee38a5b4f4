"""What a device can do at most: multiply-adds a second, of each type, and bytes a second, measured.

A roofline needs bounds that no kernel exceeds, so each figure is the best of several bursts, and
the bursts do nothing else: independent chains of fused multiply-adds in registers, and streams over
memory much larger than the caches.  A burst is clocked in slices and its best one counts: where the
machine has other work, no burst as a whole runs undisturbed, but a kernel's few milliseconds do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np

from ..ir import dtypes
from ..ir.isa import PAIRS, SIGNS, DotProduct, dot_product, dot_steps
from ..ir.target import Target
from .llvm.compile import LoadedObject, compile_object
from .llvm.dots import function_of
from .llvm.pool import run_parallel
from .llvm.types import STRICT, literal, value_type

BURSTS = 6  # at least, a choice
MAX_BURSTS = 30  # a choice: where they still improve, the machine has other work
BURST_SECONDS = 0.05  # a choice
SLICES = 25  # of a burst, of 2 ms each
RESIDENT_BYTES = 64 << 20
"""Bytes that a thread reads of a cache in one burst, a choice: a millisecond or so."""
_UNROLL = 4  # multiply-adds of each chain between two tests of the loop's end
_STREAM_BYTES = (64 << 20, 256 << 20)  # least and most memory of a bandwidth measurement


def measure_peak(target: Target, dtype: str = "float32") -> float:
    """GFLOP/s of multiply-adds (two operations each) on the target's threads, of integers as many operations.

    An OpenCL device that is the host's CPU is measured as that CPU; any other through a kernel.
    """
    if target.kind == "opencl" and not target.execution.runs_on_the_host:
        from .peak_kernel import device_peak

        alike = {"bfloat16": "float32", "int8": "int32", "uint8": "int32"}
        return device_peak(target, alike.get(dtype, dtype), BURSTS, BURST_SECONDS)
    host, threads = _host(target), _threads(target)
    burst = Burst(host, dtype)
    rounds = burst.rounds(BURST_SECONDS / SLICES, threads)
    return _best(lambda: max(burst.run(rounds, threads) for _ in range(SLICES)))


def measure_bandwidth(target: Target) -> float:
    """Bytes a second read from memory on the target's threads, the best of several passes."""
    if target.kind == "opencl" and not target.execution.runs_on_the_host:
        from .peak_kernel import device_bandwidth

        return device_bandwidth(target, _STREAM_BYTES[1], BURSTS)
    host, threads = _host(target), _threads(target)
    least, most = _STREAM_BYTES
    stream = _Stream(host, min(max(4 * host.l3_bytes, least), most))
    return _best(lambda: stream.run(threads))


def measure_caches(target: Target) -> list[tuple[int, float]]:
    """What the caches of all threads hold, the smallest first, and bytes a second that are read from there.

    Each thread reads data of its own that fills half of its part of a cache, again and again.  Nothing is known of
    devices that are not the host's CPU.
    """
    if target.kind == "opencl" and not target.execution.runs_on_the_host:
        return []
    host, threads = _host(target), _threads(target)
    levels = ((host.l1_bytes, host.l1_bytes * threads), (host.l2_bytes, host.l2_bytes * threads),
              (host.l3_bytes // threads, host.l3_bytes))  # fmt: skip
    found: list[tuple[int, float]] = []
    for part, whole in levels:
        if found and whole <= found[-1][0]:
            continue
        resident = _Resident(host, part // 2)
        found.append((whole, _best(partial(resident.run, threads))))
    return found


def _host(target: Target) -> Target:
    if target.kind == "cpu":
        return target
    from .host import host_cpu

    return host_cpu()


def _threads(target: Target) -> int:
    """A CPU kernel runs on the target's threads, PoCL on all of the device's compute units."""
    return max(1, target.threads if target.kind == "cpu" else max(target.threads, target.units))


def _best(burst: Callable[[], float]) -> float:
    """The best of at least BURSTS bursts; more while other work on the machine may have spoilt them all."""
    best, since = burst(), 1
    for _ in range(MAX_BURSTS - 1):
        value = burst()
        since = 1 if value > best * 1.01 else since + 1
        best = max(best, value)
        if since >= BURSTS:
            break
    return best


class Burst:
    """Chains of ``x = x * a + b`` in registers, enough of them to hide the latency; dot products where there are any.

    Written as a product and a sum that may be contracted, as in kernels: a CPU without fused multiply-adds has two
    instructions for them, where LLVM's intrinsic would be a call.
    """

    def __init__(self, target: Target, dtype: str) -> None:
        dot = dot_of(dtype, target)
        dtype = {"bfloat16": "float32", "int8": "int32", "uint8": "int32"}.get(dtype, dtype)
        lanes = target.vector_lanes(dtype)
        self._chains = 12 if target.registers <= 16 else 24
        self._products = lanes * (1 if dot is None else 2 if dot.in_pairs else dot_steps(dot.signs[0]))
        self._code = _load(_burst_text(dtype, lanes, self._chains, dot), target)
        self._task = self._code.address("burst")
        self._results = np.zeros(4096 * 8, np.int64)

    def rounds(self, seconds: float, threads: int) -> int:
        """The number of rounds that takes about so many seconds, by the fastest of a few short trials."""
        rounds, best = 1000, 0.0
        trials = 0
        while trials < 3:
            start = time.perf_counter()
            self.run(rounds, threads)
            elapsed = time.perf_counter() - start
            best = max(best, rounds / elapsed)
            if elapsed < BURST_SECONDS / 10:
                rounds *= 4
            else:
                trials += 1
        return max(1, int(best * seconds))

    def run(self, rounds: int, threads: int) -> float:
        """GFLOP/s of one burst in which each thread makes `rounds` rounds."""
        record = np.array([rounds, self._results.ctypes.data], np.int64)
        start = time.perf_counter_ns()
        run_parallel(self._task, record.ctypes.data, threads, threads, chunk=1)
        nanoseconds = time.perf_counter_ns() - start
        return 2.0 * rounds * _UNROLL * self._chains * self._products * threads / nanoseconds


class _Resident:
    """Sums over memory that stays in a cache: each thread reads its own again and again."""

    def __init__(self, target: Target, nbytes: int) -> None:
        self._lanes, self._ways = target.vector_lanes("float32"), 8
        group = 4 * self._ways * self._lanes  # bytes of one iteration
        self._groups = 1 << max(0, (nbytes // group).bit_length() - 1)
        self._bytes = self._groups * group
        self._code = _load(_resident_text(self._lanes, self._ways, self._groups), target)
        self._task = self._code.address("resident")
        self._rounds = max(1, int(RESIDENT_BYTES // self._bytes)) * self._groups
        self._memory: np.ndarray[tuple[int], np.dtype[np.float32]] | None = None
        self._results = np.zeros(4096, np.float32)

    def run(self, threads: int) -> float:
        """Bytes a second of all threads together."""
        if self._memory is None or self._memory.nbytes < self._bytes * threads:
            self._memory = np.ones(self._bytes * threads // 4, np.float32)
        record = np.array([self._memory.ctypes.data, self._results.ctypes.data, self._rounds], np.int64)
        start = time.perf_counter_ns()
        run_parallel(self._task, record.ctypes.data, threads, threads, chunk=1)
        nanoseconds = time.perf_counter_ns() - start
        return self._rounds * 4.0 * self._ways * self._lanes * threads / nanoseconds * 1e9


class _Stream:
    """Sums over memory that no cache holds."""

    def __init__(self, target: Target, nbytes: int) -> None:
        self._lanes = target.vector_lanes("float32")
        self._block = 4096 * self._lanes
        self._blocks = nbytes // (4 * self._block)
        self._code = _load(_stream_text(self._lanes), target)
        self._task = self._code.address("stream")
        self._memory = np.ones(self._blocks * self._block, np.float32)
        self._results = np.zeros(self._blocks, np.float32)

    def run(self, threads: int) -> float:
        """Bytes a second of one pass."""
        record = np.array([self._memory.ctypes.data, self._results.ctypes.data], np.int64)
        start = time.perf_counter_ns()
        run_parallel(self._task, record.ctypes.data, self._blocks, threads)
        return self._memory.nbytes / (time.perf_counter_ns() - start) * 1e9


def dot_of(dtype: str, target: Target) -> DotProduct | None:
    """The dot product that sums of such products are made of on a CPU, the one of most products for bytes."""
    signs = {"bfloat16": (PAIRS,), "int8": SIGNS, "uint8": SIGNS}.get(dtype, ())
    rows = [row for sign in signs if (row := dot_product(sign, target.cpu_features)) is not None]
    return min(rows, key=lambda row: (row.in_pairs, -row.bits[0]), default=None)


@lru_cache(maxsize=8)
def _load(text: str, target: Target) -> LoadedObject:
    return LoadedObject(compile_object(text, target))


_TASK = """
define void @{name}(ptr %record, i64 %begin, i64 %end) nounwind "min-legal-vector-width"="512" {{
entry:
  %first = load i64, ptr %record
  %slot = getelementptr i64, ptr %record, i64 1
  %results = load ptr, ptr %slot
{prologue}
  br label %outer
outer:
  %n = phi i64 [ %begin, %entry ], [ %n1, %last ]
{setup}
  br label %loop
loop:
  %i = phi i64 [ 0, %outer ], [ %i1, %loop ]
{body}
  %i1 = add nuw nsw i64 %i, 1
  %more = icmp slt i64 %i1, %rounds
  br i1 %more, label %loop, label %last
last:
{epilogue}
  %n1 = add nuw nsw i64 %n, 1
  %again = icmp slt i64 %n1, %end
  br i1 %again, label %outer, label %done
done:
  ret void
}}
"""


def _reduced(names: list[str], kind: str, lines: list[str]) -> str:
    """Append the sum of vectors to `lines`, so that none of them is dead; returns its name."""
    total = names[0]
    for number, name in enumerate(names[1:]):
        lines.append(f"  %sum{number} = {'add' if 'i' in kind else 'fadd'} {kind} {total}, {name}")
        total = f"%sum{number}"
    return total


def _burst_text(dtype: str, lanes: int, chains: int, dot: DotProduct | None = None) -> str:
    """The text of a burst; with a dot product its sums are added to what they are computed from, so that none is kept.

    Products of a number with itself cannot be made before the loop.
    """
    kind = value_type(f"{dtype}x{lanes}") if lanes > 1 else value_type(dtype)
    vector = f"{dtype}x{lanes}" if lanes > 1 else dtype
    is_float = dtypes.is_float(dtype)
    factor, addend = (literal(n, vector) for n in ((0.999, 0.001) if is_float else (3, 1)))
    body = []
    for chain in range(chains):
        start = literal(float(chain + 1) if is_float else chain + 1, vector)
        body.append(f"  %x{chain}.0 = phi {kind} [ {start}, %outer ], [ %x{chain}.{_UNROLL}, %loop ]")
    declared = ""
    if dot is not None:
        function, taken = function_of(dot, lanes)
        declared = f"declare {kind} @{function}({', '.join([kind] * (not dot.in_pairs) + [taken] * 2)})\n"
        # Two bfloat16 of 1, or bytes; in a vector of the type that the instruction takes.
        ones = literal(0x3F803F80 if is_float else 0x01010101, dtypes.with_lanes("int32", lanes))
    for step in range(_UNROLL):
        for chain in range(chains):
            before, after = f"%x{chain}.{step}", f"%x{chain}.{step + 1}"
            if dot is not None:
                held = f"%b{chain}.{step}"
                cast = f"bitcast (<{lanes} x i32> {ones} to {taken})"
                if dot.in_pairs:  # which adds to nothing, so that what it multiplies has to change
                    body.append(f"  {held} = bitcast {kind} {before} to {taken}")
                    body.append(f"  %p{chain}.{step} = call {kind} @{function}({taken} {held}, {taken} {cast})")
                    body.append(f"  {after} = add {kind} {before}, %p{chain}.{step}")
                else:
                    body.append(f"  {after} = call {kind} @{function}({kind} {before}, {taken} {cast}, {taken} {cast})")
                continue
            multiply, plus, flags = ("fmul", "fadd", f"{STRICT} ") if is_float else ("mul", "add", "")
            body.append(f"  %p{chain}.{step} = {multiply} {flags}{kind} {before}, {factor}")
            body.append(f"  {after} = {plus} {flags}{kind} %p{chain}.{step}, {addend}")
    epilogue: list[str] = []
    total = _reduced([f"%x{chain}.{_UNROLL}" for chain in range(chains)], kind, epilogue)
    epilogue.append("  %place = getelementptr i64, ptr %results, i64 0")
    epilogue.append(f"  store volatile {kind} {total}, ptr %place, align 8")
    text = _TASK.format(
        name="burst",
        prologue="  %rounds = add i64 %first, 0",
        setup="",
        body="\n".join(body),
        epilogue="\n".join(epilogue),
    )
    return declared + text


def _added(body: list[str], lanes: int, ways: int) -> list[str]:
    """Append to a loop's `body` a sum of the vectors of ``%group`` for each way; gives what stores their total."""
    kind = f"<{lanes} x float>"
    for way in range(ways):
        body.append(f"  %p{way} = getelementptr float, ptr %group, i64 {way * lanes}")
        body.append(f"  %l{way} = load {kind}, ptr %p{way}, align 4")
        body.append(f"  %y{way} = fadd {kind} %x{way}, %l{way}")
    epilogue: list[str] = []
    total = _reduced([f"%y{way}" for way in range(ways)], kind, epilogue)
    epilogue.append(f"  %one = extractelement {kind} {total}, i64 0")
    epilogue.append("  %place = getelementptr float, ptr %results, i64 %n")
    epilogue.append("  store float %one, ptr %place, align 4")
    return epilogue


def _resident_text(lanes: int, ways: int, groups: int) -> str:
    """A task reads its own `groups` of vectors, a power of two of them, in turns; each way has its own sum."""
    kind, vectors = f"<{lanes} x float>", f"[{ways * lanes} x float]"
    body = [f"  %x{w} = phi {kind} [ zeroinitializer, %outer ], [ %y{w}, %loop ]" for w in range(ways)]
    body.append(f"  %at = and i64 %i, {groups - 1}")
    body.append(f"  %group = getelementptr {vectors}, ptr %own, i64 %at")
    epilogue = _added(body, lanes, ways)
    return _TASK.format(
        name="resident",
        prologue="  %memory = inttoptr i64 %first to ptr\n  %third = getelementptr i64, ptr %record, i64 2\n"
        "  %rounds = load i64, ptr %third",
        setup=f"  %offset = mul i64 %n, {groups}\n  %own = getelementptr {vectors}, ptr %memory, i64 %offset",
        body="\n".join(body),
        epilogue="\n".join(epilogue),
    )


def _stream_text(lanes: int) -> str:
    """Each iteration of the task sums a block of 4096 vectors, eight at a time."""
    kind, ways = f"<{lanes} x float>", 8
    zero = "zeroinitializer"
    body = [f"  %x{w} = phi {kind} [ {zero}, %outer ], [ %y{w}, %loop ]" for w in range(ways)]
    body.append(f"  %group = getelementptr [{ways * lanes} x float], ptr %block, i64 %i")
    epilogue = _added(body, lanes, ways)
    return _TASK.format(
        name="stream",
        prologue=f"  %memory = inttoptr i64 %first to ptr\n  %rounds = add i64 0, {4096 // ways}",
        setup=f"  %block = getelementptr [{4096 * lanes} x float], ptr %memory, i64 %n",
        body="\n".join(body),
        epilogue="\n".join(epilogue),
    )
