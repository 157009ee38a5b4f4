"""Chains of CPU kernels: their functions and argument records in one table, which one native call works off."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .cpu import CpuExecutable
from .executable import Call, Chain, Place
from .llvm.chain import LENT_HEAD, chain_code
from .llvm.python_call import Expected, native_call
from .memory import zeros

if TYPE_CHECKING:
    from numpy.typing import NDArray


class CpuChain(Chain):
    """Kernels of one number of threads, called in one native call.

    A block of no bytes lies in the caller's memory: `lend` says where, before a run.
    """

    def __init__(self, calls: Sequence[Call], blocks: Sequence[int]) -> None:
        self._loaded: dict[str, CpuExecutable] = {}
        executables = [self._load(call) for call in calls]
        self.threads = executables[0].target.threads if executables else 1
        if any(e.target.threads != self.threads for e in executables):
            raise ValueError("the kernels of a chain run on one number of threads")
        self.blocks = [zeros(size) if size else np.zeros(0, np.uint8) for size in blocks]
        self._size = len(calls)
        self._records = [
            executable.pack([self._address(place) for place in call.places])
            for call, executable in zip(calls, executables, strict=True)
        ]
        pairs = zip(executables, self._records, strict=True)
        entries = [word for e, record in pairs for word in (e.entry_address, ctypes.addressof(record))]
        self._table = (ctypes.c_void_p * len(entries))(*entries)
        self._stamps = (ctypes.c_int64 * (self._size + 1))()
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self._run = chain_code().function("run", pointer, number, number)
        self._profile = chain_code().function("profile", pointer, number, number, pointer)
        self._lent: dict[int, list[tuple[Any, int, int]]] = {}
        for call, record in zip(calls, self._records, strict=True):
            for index, place in enumerate(call.places):
                if not blocks[place.block]:
                    self._lent.setdefault(place.block, []).append((record, index, place.offset))

    def lend(self, block: int, address: int) -> None:
        """Let a block of no bytes lie at this address."""
        for record, index, offset in self._lent.get(block, ()):
            record[index] = address + offset

    def lent(self, block: int) -> list[tuple[Any, int, int]]:
        """The (argument record, index, offset) that `lend` writes, for who does that by himself."""
        return self._lent.get(block, [])

    def native_call(self, arguments: Sequence[tuple[int, Expected]]) -> Callable[..., bool] | None:
        """`run` as a function of arrays, inputs and then outputs, where there is one (see `llvm.python_call`).

        Each argument is lent as the block before it; its own place is not looked at.
        """
        moves = [(number, slot) for number, (block, _) in enumerate(arguments) for slot in self.lent(block)]
        begin = LENT_HEAD + 3 * len(moves)
        words = [ctypes.addressof(self._table), self._size, len(moves)]
        for number, (record, index, offset) in moves:
            words += [begin + number, offset, ctypes.addressof(record) + index * ctypes.sizeof(ctypes.c_void_p)]
        expected = [argument._replace(place=begin + number) for number, (_, argument) in enumerate(arguments)]
        record = [*words, *(0 for _ in arguments)]
        return native_call(chain_code().address("lent"), self.threads, record, expected, self)

    def attach(self, block: int, array: NDArray[Any] | None) -> None:
        """Let `view`, `read` and `write` find a block of no bytes in this array of the caller; None ends that."""
        self.blocks[block] = np.zeros(0, np.uint8) if array is None else array.reshape(-1).view(np.uint8)

    def view(self, place: Place, nbytes: int) -> NDArray[np.uint8]:
        """The bytes themselves."""
        return self.blocks[place.block][place.offset : place.offset + nbytes]

    def write(self, place: Place, data: NDArray[Any]) -> None:
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        self.view(place, raw.size)[:] = raw

    def read(self, place: Place, nbytes: int) -> NDArray[np.uint8]:
        return self.view(place, nbytes).copy()

    def run(self, first: int = 0, last: int | None = None) -> None:
        self.runner(first, last)()

    def runner(self, first: int = 0, last: int | None = None) -> Callable[[], None]:
        """`run` as a function of no arguments."""
        address, count = self._slice(first, last)
        return partial(self._run, address, count, self.threads)

    def profile(self, first: int = 0, last: int | None = None) -> list[float]:
        address, count = self._slice(first, last)
        self._profile(address, count, self.threads, self._stamps)
        return [float(value) * 1e-9 for value in np.diff(np.asarray(self._stamps[: count + 1]))]

    def _slice(self, first: int, last: int | None) -> tuple[int, int]:
        end = self._size if last is None else last
        return ctypes.addressof(self._table) + 2 * first * ctypes.sizeof(ctypes.c_void_p), end - first

    def _load(self, call: Call) -> CpuExecutable:
        """Equal code is loaded once."""
        code = call.artifact["code"]
        if code not in self._loaded:
            self._loaded[code] = CpuExecutable(call.artifact)
        executable = self._loaded[code]
        if len(call.places) != len(executable.params) + len(executable.workspaces):
            raise ValueError(f"`{call.artifact['entry']}` takes other buffers than {len(call.places)} places")
        return executable

    def _address(self, place: Place) -> int:
        block = self.blocks[place.block]
        return int(block.ctypes.data) + place.offset if block.size else 0
