"""Objects become code in this process, wherever in memory there is room."""

from __future__ import annotations

import subprocess
import sys

import pytest

from stridesmith.backends.llvm.chain import chain_text
from stridesmith.backends.llvm.compile import LoadedObject, compile_object
from stridesmith.ir.target import Target

# All holes of 128 KiB above 3 GiB that nobody may touch are taken, and one page is given back: the pool's code fits
# into that page, and its data do not fit above.
FAR = """
import ctypes
from stridesmith.backends.llvm.pool import ensure_pool, pool_text
from stridesmith.backends.llvm.compile import binding
binding()
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_size_t
libc.mmap.argtypes = [ctypes.c_size_t, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_size_t]
libc.munmap.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
taken = lambda size: libc.mmap(0, size, 0, 0x4022, -1, 0)  # private, anonymous, without reserve
size = 3 << 30
base = taken(size)
while taken(1 << 17) > base:
    pass
libc.munmap(base + size - 4096, 4096)
ensure_pool()
print("loaded")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux's way to choose addresses is expected")
def test_memory_may_be_in_pieces() -> None:
    """Code and data of an object lie together even where the next free memory is further away than code can reach."""
    done = subprocess.run([sys.executable, "-c", FAR], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "loaded\n"), done.stderr


def test_an_unknown_symbol_is_named() -> None:
    """What an object does not have is an error, and what it has is there before and after."""
    loaded = LoadedObject(compile_object(chain_text(), Target()))
    run = loaded.address("run")
    with pytest.raises(KeyError, match="no symbol `walk`"):
        loaded.address("walk")
    assert loaded.address("run") == run
