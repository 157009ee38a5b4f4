"""LLVM text to object bytes, and object bytes to callable addresses.

The text is born vectorised, unrolled and hoisted, and the code generator folds and selects by
itself.  One pass is left to the optimiser: scalar replacement brings register tiles from the stack
into registers.  More passes make no better code of such text, and compile time is search time.
"""

from __future__ import annotations

import ctypes
import threading
from functools import lru_cache
from typing import Any

from ...ir.target import Target

IDLE_PASSES = ("-disable-lsr", "-disable-cgp")  # loop strength reduction, and what prepares selection across blocks

_lock = threading.Lock()


@lru_cache(maxsize=1)
def binding() -> Any:
    """The llvmlite binding with the native target initialised."""
    import llvmlite.binding as llvm

    native = ("initialize_native_target", "initialize_native_asmprinter", "initialize_native_asmparser")
    for step in ("initialize", *native):
        if step != "initialize" or llvm.llvm_version_info[0] < 20:
            getattr(llvm, step)()
    llvm.load_library_permanently(_libm())
    return llvm


def _libm() -> str:
    """The C library's mathematics, which generated code may call."""
    import ctypes.util

    return ctypes.util.find_library("m") or "libm.so.6"


@lru_cache(maxsize=1)
def _leave_out_idle_passes() -> None:
    """LLVM's options belong to the process: only one that compiles for us asks for this."""
    for option in IDLE_PASSES:
        binding().set_option("stridesmith", option)


@lru_cache(maxsize=8)
def target_machine(cpu: str, features: str) -> Any:
    """A code generator for the instruction set; position independent, small code model."""
    _leave_out_idle_passes()
    native = binding().Target.from_default_triple()
    return native.create_target_machine(cpu=cpu, features=features, opt=2, reloc="pic", codemodel="small")


def machine(target: Target) -> Any:
    """The code generator for `target`; without a named CPU, for the host."""
    if target.cpu:
        return target_machine(target.cpu, target.features)
    llvm = binding()
    return target_machine(llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())


def optimised(text: str, target: Target) -> Any:
    """The parsed, checked and optimised module.  Raises RuntimeError with LLVM's words."""
    llvm = binding()
    module = llvm.parse_assembly(text)
    module.verify()
    builder = llvm.create_pass_builder(machine(target), llvm.create_pipeline_tuning_options(speed_level=1))
    passes = llvm.create_new_function_pass_manager()
    passes.add_sroa_pass()
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)
    return module


def compile_object(text: str, target: Target) -> bytes:
    """The relocatable object file of the module `text`."""
    with _lock:
        return bytes(machine(target).emit_object(optimised(text, target)))


def compile_assembly(text: str, target: Target) -> str:
    """The assembly of the module `text`, for reading: LLVM's comments tell loops, spills and reloads."""
    with _lock:
        printer = machine(target)
        printer.set_asm_verbosity(True)
        return str(printer.emit_assembly(optimised(text, target)))


class LoadedObject:
    """Machine code in this process; it stays as long as this value does."""

    def __init__(self, code: bytes) -> None:
        llvm = binding()
        with _lock:
            empty = llvm.parse_assembly("")
            native = llvm.Target.from_default_triple()
            loader = native.create_target_machine(opt=2, reloc="pic", codemodel="small", jit=True)
            self._engine = llvm.create_mcjit_compiler(empty, loader)
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
            self._engine.finalize_object()

    def address(self, symbol: str) -> int:
        """The address of a function.  Raises KeyError for an unknown one."""
        address = int(self._engine.get_function_address(symbol))
        if not address:
            raise KeyError(f"the object file has no symbol `{symbol}`")
        return address

    def function(self, symbol: str, *arguments: Any) -> Any:
        """A ctypes function without result; the interpreter lock is released during its calls."""
        return ctypes.CFUNCTYPE(None, *arguments)(self.address(symbol))

    def keep_forever(self) -> None:
        """Never unload: threads may still run this code when the interpreter ends.  Ask for addresses before."""
        self._engine.detach()


def provide_symbol(name: str, address: int) -> None:
    """Let objects that are loaded later call the function at `address` as `name`."""
    binding().add_symbol(name, address)
