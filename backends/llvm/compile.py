"""LLVM text to object bytes, and object bytes to callable addresses.

The text is born vectorised, unrolled and hoisted, and the code generator folds and selects by
itself.  One pass is left to the optimiser: scalar replacement brings register tiles from the stack
into registers.  More passes make no better code of such text, and compile time is search time.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any

from ...forks import held_at_forks
from ...ir.target import Target
from ..errors import CodegenError

_HALF_CALLS = (b"__extendhfsf2", b"__truncsfhf2", b"__truncdfhf2", b"__gnu_h2f_ieee", b"__gnu_f2h_ieee")
"""What code calls of a compiler's runtime, which a process does not have, to convert float16 without instructions."""
IDLE_PASSES = (
    "-disable-lsr",  # loop strength reduction
    "-disable-cgp",  # what prepares selection across blocks
    # The scheduler after registers are allocated: instructions of a tile are in the program's order, and it takes more
    # time than all the rest of code generation, since it compares each access to memory with each other.
    "-disable-post-ra",
    "-dag-maps-huge-region=200",  # so does the one before, for as many; with this limit it finds the same order
)

_lock = held_at_forks(threading.RLock())
_numbers = itertools.count()
_provided: dict[str, int] = {}


@lru_cache(maxsize=1)
def binding() -> Any:
    """The llvmlite binding with the native target initialised."""
    import ctypes.util

    import llvmlite.binding as llvm

    native = ("initialize_native_target", "initialize_native_asmprinter", "initialize_native_asmparser")
    for step in ("initialize", *native):
        if step != "initialize" or llvm.llvm_version_info[0] < 20:
            getattr(llvm, step)()
    # Generated code may call the C library's mathematics.
    llvm.load_library_permanently(ctypes.util.find_library("m") or "libm.so.6")
    return llvm


@lru_cache(maxsize=1)
def _leave_out_idle_passes() -> None:
    """LLVM's options belong to the process: only one that compiles for us asks for this."""
    for option in IDLE_PASSES:
        binding().set_option("stridesmith", option)


@lru_cache(maxsize=8)
def target_machine(cpu: str, features: str, triple: str = "") -> Any:
    """A code generator for the instruction set; position independent, small code model.

    `triple` names another architecture or system than this machine's.
    """
    _leave_out_idle_passes()
    llvm = binding()
    if triple:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    kind = llvm.Target.from_triple(triple) if triple else llvm.Target.from_default_triple()
    return kind.create_target_machine(cpu=cpu, features=features, opt=2, reloc="pic", codemodel="small")


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
    return _scalarised(module, machine(target))


def _scalarised(module: Any, generator: Any) -> Any:
    """The module with register tiles in registers."""
    llvm = binding()
    builder = llvm.create_pass_builder(generator, llvm.create_pipeline_tuning_options(speed_level=1))
    passes = llvm.create_new_function_pass_manager()
    passes.add_sroa_pass()
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)
    return module


def compile_object(text: str, target: Target) -> bytes:
    """The relocatable object file of the module `text`.  Raises CodegenError for what the processor cannot convert."""
    with _lock:
        return _without_runtime(bytes(machine(target).emit_object(optimised(text, target))), target)


def _without_runtime(code: bytes, target: Target) -> bytes:
    if any(name in code for name in _HALF_CALLS):
        raise CodegenError(
            f"the program converts float16, for which `{target.cpu or target.name}` has no instructions (an x86 needs "
            f"F16C); compute in float32"
        )
    return code


def compile_assembly(text: str, target: Target) -> str:
    """The assembly of the module `text`, for reading: LLVM's comments tell loops, spills and reloads."""
    with _lock:
        printer = machine(target)
        printer.set_asm_verbosity(True)
        return str(printer.emit_assembly(optimised(text, target)))


class LinkedModule:
    """Several modules as one, of which callers see only the functions `exported`; what these do not need is gone.

    `triple` names another architecture or system than this machine's, as LLVM does.
    """

    def __init__(self, texts: Sequence[str], exported: Collection[str], target: Target, triple: str = "") -> None:
        llvm = binding()
        self._target = target
        with _lock:
            self._machine = target_machine(target.cpu, target.features, triple) if triple else machine(target)
            module = llvm.parse_assembly(texts[0])
            for text in texts[1:]:
                module.link_in(llvm.parse_assembly(text))
            module.triple, module.data_layout = self._machine.triple, str(self._machine.target_data)
            module.verify()
            for function in module.functions:
                if not function.is_declaration and function.name not in exported:
                    function.linkage = "internal"
            passes = llvm.create_new_module_pass_manager()
            passes.add_global_dead_code_eliminate_pass()
            options = llvm.create_pipeline_tuning_options(speed_level=1)
            passes.run(module, llvm.create_pass_builder(self._machine, options))
            self._module = _scalarised(module, self._machine)

    @property
    def text(self) -> str:
        """LLVM IR."""
        return str(self._module)

    @property
    def needs(self) -> tuple[str, ...]:
        """Functions of other libraries that must be there, intrinsics of LLVM left out."""
        declared = [f for f in self._module.functions if f.is_declaration and f.linkage.name != "external_weak"]
        return tuple(sorted(f.name for f in declared if not f.name.startswith("llvm.")))

    def assembly(self) -> str:
        """Assembly without comments."""
        with _lock:
            self._machine.set_asm_verbosity(False)
            return str(self._machine.emit_assembly(self._module))

    def object(self) -> bytes:
        """A relocatable object file."""
        with _lock:
            return _without_runtime(bytes(self._machine.emit_object(self._module)), self._target)


class LoadedObject:
    """Machine code in this process; it stays as long as this value does.

    JITLink puts all sections of an object into one piece of memory.  LLVM's other linker asks for a piece for each, and
    ends the process where two are more than 2 GiB apart, as they are beside libraries as large as PyTorch's for GPUs.
    """

    def __init__(self, code: bytes) -> None:
        with _lock:
            self._name = f"object{next(_numbers)}"
            builder = binding().JITLibraryBuilder().add_object_img(code).add_current_process()
            for symbol, address in _provided.items():
                builder.import_symbol(symbol, address)
            self._trackers = [builder.link(_jit(), self._name)]

    def address(self, symbol: str) -> int:
        """The address of a function.  Raises KeyError for one that is unknown, or that needs another that is."""
        with _lock:
            try:
                found = _jit().lookup(self._name, symbol)
            except RuntimeError as error:
                raise KeyError(f"the object file has no symbol `{symbol}`: {error}") from None
            self._trackers.append(found)
        return int(found[symbol])

    def function(self, symbol: str, *arguments: Any) -> Any:
        """A ctypes function without result; the interpreter lock is released during its calls."""
        return ctypes.CFUNCTYPE(None, *arguments)(self.address(symbol))

    def keep_forever(self) -> None:
        """Never unload: threads may still run this code when the interpreter ends."""
        _immortal(self)


@lru_cache(maxsize=1)
def _jit() -> Any:
    """What loads objects; it outlives the interpreter, as some of them do."""
    llvm = binding()
    native = llvm.Target.from_default_triple()
    loader = native.create_target_machine(opt=2, reloc="pic", codemodel="small", jit=True)
    made = llvm.create_lljit_compiler(loader, use_jit_link=True)
    _immortal(made)
    return made


def _immortal(value: object) -> None:
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


def provide_symbol(name: str, address: int) -> None:
    """Let objects that are loaded later call the function at `address` as `name`."""
    _provided[name] = address
