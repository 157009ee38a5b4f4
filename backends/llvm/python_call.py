"""A call from Python in native code: arguments are checked and their addresses taken without a step of the interpreter.

A small kernel runs for one microsecond, and the interpreter needs longer for a few arguments.  `native_call` makes a
function of its own kind (``METH_FASTCALL``), which gets its arguments as pointers to objects, and compares what NumPy's
array structure says of them (``PyArrayObject_fields``, part of its stable ABI) with a *plan*: plain numbers that say
what each must be.  Whatever is not exactly so, right or wrong, is declined, and nothing has happened.

    plan    entry, threads, arguments, inputs among them, type, busy, begin of the record, begin of the arguments,
            number of sizes, begin of them
    record  an address for each parameter and workspace, as the kernel wants it
    args    for each argument: place in the record, dtype, flags, bytes, dimensions, their address, its own address,
            bytes of an element
    sizes   for each number that only extents give: its value in this call, the least and the largest one, a divisor

An extent is a number that the array must have, or -1 - 2k: the array gives the value of size k, or -2 - 2k: it must
have that value.  The record has the address of the value, which the kernel reads.

While the kernel runs the interpreter's lock is released, and the plan is marked as busy: a call from another thread is
declined.  `held` marks it for who uses the kernel's memory in another way.  Where a probe shows that arrays or the
interpreter are not as expected here, there is no native call.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...ir.target import Target
from .compile import LoadedObject, compile_object

C_CONTIGUOUS, ALIGNED, WRITEABLE = 0x0001, 0x0100, 0x0400  # bits of `ndarray.flags.num`
HEAD, ENTRY, SIZE = 10, 8, 4  # words before the record, of an argument and of a size
TYPE, DATA, NDIM, SHAPE, DTYPE, FLAGS = 8, 16, 24, 32, 56, 64  # offsets in the structure of an array
SYMBOL, CLAIM, RELEASE = "stridesmith_python_call", "stridesmith_claim", "stridesmith_release"
BUSY = 5  # the word of a plan
NAP_SECONDS = 2e-5  # between two looks whether a call has ended, a choice
METH_FASTCALL = 0x0080  # of CPython's methodobject.h

TEXT = """
define ptr @{SYMBOL}(ptr %self, ptr %args, i64 %count) nounwind {
entry:
  %self.data = getelementptr i8, ptr %self, i64 {DATA}
  %plan = load ptr, ptr %self.data
  %wanted.at = getelementptr i64, ptr %plan, i64 2
  %wanted = load i64, ptr %wanted.at
  %inputs.at = getelementptr i64, ptr %plan, i64 3
  %inputs = load i64, ptr %inputs.at
  %type.at = getelementptr i64, ptr %plan, i64 4
  %type = load i64, ptr %type.at
  %busy = getelementptr i64, ptr %plan, i64 5
  %record.at = getelementptr i64, ptr %plan, i64 6
  %record.word = load i64, ptr %record.at
  %record = getelementptr i64, ptr %plan, i64 %record.word
  %first.at = getelementptr i64, ptr %plan, i64 7
  %first.word = load i64, ptr %first.at
  %first = getelementptr i64, ptr %plan, i64 %first.word
  %sizes.count.at = getelementptr i64, ptr %plan, i64 8
  %sizes.count = load i64, ptr %sizes.count.at
  %sizes.at = getelementptr i64, ptr %plan, i64 9
  %sizes.word = load i64, ptr %sizes.at
  %sizes = getelementptr i64, ptr %plan, i64 %sizes.word
  %enough = icmp eq i64 %count, %wanted
  br i1 %enough, label %claim, label %declined
claim:
  %claimed = cmpxchg ptr %busy, i64 0, i64 1 acquire monotonic
  %free = extractvalue { i64, i1 } %claimed, 1
  br i1 %free, label %next, label %declined
next:
  %n = phi i64 [ 0, %claim ], [ %n.next, %accepted ]
  %done = icmp eq i64 %n, %count
  br i1 %done, label %size, label %check
check:
  %array.at = getelementptr ptr, ptr %args, i64 %n
  %array = load ptr, ptr %array.at
  %n.word = mul i64 %n, {ENTRY}
  %this = getelementptr i64, ptr %first, i64 %n.word
  %array.type.at = getelementptr i8, ptr %array, i64 {TYPE}
  %array.type = load i64, ptr %array.type.at
  %is.array = icmp eq i64 %array.type, %type
  br i1 %is.array, label %check.dtype, label %refused
check.dtype:
  %array.dtype.at = getelementptr i8, ptr %array, i64 {DTYPE}
  %array.dtype = load i64, ptr %array.dtype.at
  %dtype.at = getelementptr i64, ptr %this, i64 1
  %dtype = load i64, ptr %dtype.at
  %same.dtype = icmp eq i64 %array.dtype, %dtype
  %array.flags.at = getelementptr i8, ptr %array, i64 {FLAGS}
  %array.flags = load i32, ptr %array.flags.at
  %array.flags.wide = zext i32 %array.flags to i64
  %flags.at = getelementptr i64, ptr %this, i64 2
  %flags = load i64, ptr %flags.at
  %flags.had = and i64 %array.flags.wide, %flags
  %has.flags = icmp eq i64 %flags.had, %flags
  %array.ndim.at = getelementptr i8, ptr %array, i64 {NDIM}
  %array.ndim = load i32, ptr %array.ndim.at
  %array.ndim.wide = sext i32 %array.ndim to i64
  %ndim.at = getelementptr i64, ptr %this, i64 4
  %ndim = load i64, ptr %ndim.at
  %same.ndim = icmp eq i64 %array.ndim.wide, %ndim
  %ok.1 = and i1 %same.dtype, %has.flags
  %ok.2 = and i1 %ok.1, %same.ndim
  br i1 %ok.2, label %check.shape, label %refused
check.shape:
  %array.shape.at = getelementptr i8, ptr %array, i64 {SHAPE}
  %array.shape = load ptr, ptr %array.shape.at
  %shape.at = getelementptr i64, ptr %this, i64 5
  %shape = load ptr, ptr %shape.at
  %item.at = getelementptr i64, ptr %this, i64 7
  %item = load i64, ptr %item.at
  br label %dim
dim:
  %d = phi i64 [ 0, %check.shape ], [ %d.next, %dim.same ]
  %bytes = phi i64 [ %item, %check.shape ], [ %bytes.next, %dim.same ]
  %all.dims = icmp eq i64 %d, %ndim
  br i1 %all.dims, label %take, label %dim.check
dim.check:
  %array.extent.at = getelementptr i64, ptr %array.shape, i64 %d
  %array.extent = load i64, ptr %array.extent.at
  %extent.at = getelementptr i64, ptr %shape, i64 %d
  %extent = load i64, ptr %extent.at
  %is.size = icmp slt i64 %extent, 0
  br i1 %is.size, label %dim.size, label %dim.same
dim.size:
  %code = xor i64 %extent, -1
  %known = and i64 %code, 1
  %size.number = lshr i64 %code, 1
  %value.word = mul i64 %size.number, {SIZE}
  %value.at = getelementptr i64, ptr %sizes, i64 %value.word
  %value.before = load i64, ptr %value.at
  %gives = icmp eq i64 %known, 0
  %value = select i1 %gives, i64 %array.extent, i64 %value.before
  store i64 %value, ptr %value.at
  br label %dim.same
dim.same:
  %wanted.extent = phi i64 [ %extent, %dim.check ], [ %value, %dim.size ]
  %same.extent = icmp eq i64 %array.extent, %wanted.extent
  %bytes.next = mul i64 %bytes, %array.extent
  %d.next = add i64 %d, 1
  br i1 %same.extent, label %dim, label %refused
take:
  %array.data.at = getelementptr i8, ptr %array, i64 {DATA}
  %start = load i64, ptr %array.data.at
  %place = load i64, ptr %this
  %slot = getelementptr i64, ptr %record, i64 %place
  store i64 %start, ptr %slot
  %start.at = getelementptr i64, ptr %this, i64 6
  store i64 %start, ptr %start.at
  %bytes.at = getelementptr i64, ptr %this, i64 3
  store i64 %bytes, ptr %bytes.at
  %end = add i64 %start, %bytes
  %is.input = icmp ult i64 %n, %inputs
  br i1 %is.input, label %accepted, label %other
other:
  %k = phi i64 [ 0, %take ], [ %k.next, %apart ]
  %none.left = icmp eq i64 %k, %n
  br i1 %none.left, label %accepted, label %overlap
overlap:
  %k.word = mul i64 %k, {ENTRY}
  %that = getelementptr i64, ptr %first, i64 %k.word
  %that.start.at = getelementptr i64, ptr %that, i64 6
  %that.start = load i64, ptr %that.start.at
  %that.bytes.at = getelementptr i64, ptr %that, i64 3
  %that.bytes = load i64, ptr %that.bytes.at
  %that.end = add i64 %that.start, %that.bytes
  %begins.before = icmp ult i64 %that.start, %end
  %ends.after = icmp ult i64 %start, %that.end
  %meets = and i1 %begins.before, %ends.after
  br i1 %meets, label %refused, label %apart
apart:
  %k.next = add i64 %k, 1
  br label %other
accepted:
  %n.next = add i64 %n, 1
  br label %next
size:
  %s = phi i64 [ 0, %next ], [ %s.next, %size.check ]
  %all.sizes = icmp eq i64 %s, %sizes.count
  br i1 %all.sizes, label %run, label %size.check
size.check:
  %s.word = mul i64 %s, {SIZE}
  %its = getelementptr i64, ptr %sizes, i64 %s.word
  %its.value = load i64, ptr %its
  %low.at = getelementptr i64, ptr %its, i64 1
  %low = load i64, ptr %low.at
  %high.at = getelementptr i64, ptr %its, i64 2
  %high = load i64, ptr %high.at
  %divisor.at = getelementptr i64, ptr %its, i64 3
  %divisor = load i64, ptr %divisor.at
  %enough.of.it = icmp sge i64 %its.value, %low
  %not.too.much = icmp sle i64 %its.value, %high
  %rest = urem i64 %its.value, %divisor
  %divides = icmp eq i64 %rest, 0
  %within = and i1 %enough.of.it, %not.too.much
  %fits = and i1 %within, %divides
  %s.next = add i64 %s, 1
  br i1 %fits, label %size, label %refused
run:
  %entry.function = load ptr, ptr %plan
  %threads.at = getelementptr i64, ptr %plan, i64 1
  %threads = load i64, ptr %threads.at
  %state = call ptr inttoptr (i64 {SAVE} to ptr)()
  call void %entry.function(ptr %record, i64 %threads)
  call void inttoptr (i64 {RESTORE} to ptr)(ptr %state)
  store atomic i64 0, ptr %busy release, align 8
  call void inttoptr (i64 {INCREASE} to ptr)(ptr inttoptr (i64 {TRUE} to ptr))
  ret ptr inttoptr (i64 {TRUE} to ptr)
refused:
  store atomic i64 0, ptr %busy release, align 8
  br label %declined
declined:
  call void inttoptr (i64 {INCREASE} to ptr)(ptr inttoptr (i64 {FALSE} to ptr))
  ret ptr inttoptr (i64 {FALSE} to ptr)
}

define i64 @{CLAIM}(ptr %busy) nounwind {
  %claimed = cmpxchg ptr %busy, i64 0, i64 1 acquire monotonic
  %free = extractvalue { i64, i1 } %claimed, 1
  %answer = zext i1 %free to i64
  ret i64 %answer
}

define void @{RELEASE}(ptr %busy) nounwind {
  store atomic i64 0, ptr %busy release, align 8
  ret void
}
"""


class Size(NamedTuple):
    """A number that only extents give: its place in the record, and which values it may have, from 0 on."""

    place: int
    low: int
    high: int
    divisor: int


class Expected(NamedTuple):
    """An argument by position: its place in the record, and what its array must be.

    An extent is a number, or the number of a size counted from the end: -1 is size 0, -2 is size 1.
    """

    place: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_output: bool


def native_call(
    entry: int, threads: int, record: Sequence[int], arguments: Sequence[Expected], owner: object,
    sizes: Sequence[Size] = (),
) -> Callable[..., bool] | None:  # fmt: skip
    """``call(*arrays)`` that runs the kernel at `entry`, or returns False: then nothing has happened to the arrays.

    `arguments` are inputs, then outputs, which must share no memory with another argument; `record` has the
    addresses of all that is no argument.  `owner` keeps that memory and the code, and lives as long as the call, whose
    `__module__` it is, the one place of such a function for an object.  Each of the `sizes` is an extent of an input,
    and its values are the only ones for which arrays are taken.  None where arrays are not as expected.
    """
    if not _fits():
        return None
    plan = _plan(entry, threads, record, arguments, sizes)
    _plans[id(plan)] = weakref.ref(plan, partial(_forget, id(plan)))
    made: Callable[..., bool] = _new_function(ctypes.byref(_definition()), plan, owner)
    return made


_plans: dict[int, weakref.ref[NDArray[np.int64]]] = {}
"""Those of all calls that there are."""


def _forget(key: int, _: object) -> None:
    _plans.pop(key, None)


def _nothing_runs() -> None:
    """Mark all plans as free: in the child of a fork none of the threads that were in calls exists."""
    for known in list(_plans.values()):
        plan = known()
        if plan is not None:
            plan[BUSY] = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_nothing_runs)


@contextmanager
def held(call: Callable[..., bool] | None) -> Iterator[None]:
    """A context in which the native call does not run: a running one is waited for, new ones are declined."""
    if call is None:
        yield
        return
    claim, release = _claiming()
    plan: NDArray[np.int64] = call.__self__  # type: ignore[attr-defined]
    busy = plan.ctypes.data + BUSY * plan.itemsize
    while not claim(busy):
        time.sleep(NAP_SECONDS)
    try:
        yield
    finally:
        release(busy)


def _plan(
    entry: int, threads: int, record: Sequence[int], arguments: Sequence[Expected], sizes: Sequence[Size]
) -> NDArray[np.int64]:
    inputs = sum(not argument.is_output for argument in arguments)
    begin = HEAD + len(record)
    values = begin + ENTRY * len(arguments)
    shapes = values + SIZE * len(sizes)
    plan = np.zeros(shapes + sum(len(argument.shape) for argument in arguments), np.int64)
    plan[:HEAD] = (entry, threads, len(arguments), inputs, id(np.ndarray), 0, HEAD, begin, len(sizes), values)
    plan[HEAD:begin] = record
    for number, size in enumerate(sizes):
        here = values + SIZE * number
        plan[here : here + SIZE] = (-1, size.low, size.high, size.divisor)
        plan[HEAD + size.place] = plan.ctypes.data + 8 * here
    given: set[int] = set()
    for number, argument in enumerate(arguments):
        flags = C_CONTIGUOUS | ALIGNED | (WRITEABLE if argument.is_output else 0)
        for dim, extent in enumerate(argument.shape):
            plan[shapes + dim] = extent if extent >= 0 else 2 * extent + (extent not in given)
            given.add(extent)
        here, at = begin + ENTRY * number, plan.ctypes.data + 8 * shapes
        words = (argument.place, id(argument.dtype), flags, 0, len(argument.shape), at, 0, argument.dtype.itemsize)
        plan[here : here + ENTRY] = words
        shapes += len(argument.shape)
    return plan


class _MethodDefinition(ctypes.Structure):
    """``PyMethodDef``."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("method", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p),
    )  # fmt: skip


_new_function = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.py_object)(
    ("PyCFunction_NewEx", ctypes.pythonapi)
)


@lru_cache(maxsize=1)
def _definition() -> _MethodDefinition:
    """The definition of the native function, one for the process: Python refers to it as long as a call exists."""
    return _MethodDefinition(b"call", _code()[SYMBOL], METH_FASTCALL, None)


@lru_cache(maxsize=1)
def _claiming() -> tuple[Callable[[int], int], Callable[[int], None]]:
    """Marks a plan as busy, and returns whether it was free; ends that."""
    claim = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(_code()[CLAIM])
    release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_code()[RELEASE])
    return claim, release


@lru_cache(maxsize=1)
def _code() -> dict[str, int]:
    """The addresses of what is compiled, which stays as long as the process."""
    values = {
        "SYMBOL": SYMBOL, "CLAIM": CLAIM, "RELEASE": RELEASE,
        "DATA": DATA, "TYPE": TYPE, "NDIM": NDIM, "SHAPE": SHAPE, "DTYPE": DTYPE, "FLAGS": FLAGS,
        "ENTRY": ENTRY, "SIZE": SIZE,
        "SAVE": _function("PyEval_SaveThread"), "RESTORE": _function("PyEval_RestoreThread"),
        "INCREASE": _function("Py_IncRef"), "TRUE": id(True), "FALSE": id(False),
    }  # fmt: skip
    text = TEXT
    for name, value in values.items():
        text = text.replace("{" + name + "}", str(value))
    loaded = LoadedObject(compile_object(text, Target()))
    addresses = {symbol: loaded.address(symbol) for symbol in (SYMBOL, CLAIM, RELEASE)}
    loaded.keep_forever()
    return addresses


def _function(name: str) -> int:
    address = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
    assert address is not None
    return address


@lru_cache(maxsize=1)
def _fits() -> bool:
    """Whether this is CPython with a lock, in words of 64 bits, and arrays of several kinds look as expected."""
    locked = getattr(sys, "_is_gil_enabled", lambda: True)()
    if sys.implementation.name != "cpython" or not locked or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    base = np.zeros((3, 5), np.float32)
    frozen = base.copy()
    frozen.setflags(write=False)
    probes = (base, base[1:], base[:, 2:], base.T, frozen, np.zeros(0), np.zeros(()), base.view(np.uint8))
    return object.__basicsize__ == DATA and all(_looks(array) for array in probes)


def _looks(array: NDArray[Any]) -> bool:
    def word(offset: int) -> int:
        return ctypes.c_int64.from_address(id(array) + offset).value

    def half(offset: int) -> int:
        return ctypes.c_int32.from_address(id(array) + offset).value

    if (word(TYPE), word(DATA)) != (id(np.ndarray), array.__array_interface__["data"][0]) or half(NDIM) != array.ndim:
        return False
    extents = (ctypes.c_int64 * array.ndim).from_address(word(SHAPE)) if array.ndim else ()
    return tuple(extents) == array.shape and word(DTYPE) == id(array.dtype) and half(FLAGS) == array.flags.num
