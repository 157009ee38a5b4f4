"""A library for a CPU as one LLVM module: kernels, thread pool, check of the CPU, and the C interface.

Kernels are compiled as they are for a call from Python, one by one and with the same passes, so that their results are
the same bit for bit; what runs before the CPU was checked is compiled for any CPU of the architecture.
"""

from __future__ import annotations

import platform
import re
from dataclasses import replace
from pathlib import Path

from ...errors import UsageError
from ...ir.target import Target
from ..host import host_cpu
from ..llvm.compile import LinkedModule
from ..llvm.pool import SYMBOL, pool_text
from ..render.llvm_module import entry_name, generate
from .cpu_check import BASELINE, architecture, check_text
from .interface import exported, interface_text
from .library import Library
from .linker import link

_TRIPLES = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}


def triple_of(target: Target) -> str:
    """LLVM's name of the machine that `target` is one of; empty for machines like this one."""
    machine = architecture(target)
    return "" if architecture(host_cpu()) == machine else _TRIPLES[machine]


def linked(library: Library) -> LinkedModule:
    """The module of a library.  Raises UsageError for an architecture without one, CodegenError as `generate` does."""
    target = library.target
    machine = architecture(target)
    if not target.cpu:
        raise UsageError(f"the target `{target.name}` names no CPU to compile for, as in cpu = 'x86-64-v3'")
    triple = triple_of(target)
    system = "Linux" if triple else platform.system()
    kernels, entries = _kernels(library)
    texts = [_attributed(text, _cpu(library)) for text in kernels]
    has_pool = any(f"@{SYMBOL}(" in text for text in kernels)
    own = [interface_text(library, entries, has_pool, system) + check_text(target, system)]
    own += [pool_text(system, machine)] if has_pool else []
    texts += [_attributed(text, BASELINE[machine]) for text in own]
    return LinkedModule(texts, exported(library), target, triple)


def shared_object(library: Library, path: Path) -> None:
    """Link the library into the file `path`.  Raises ToolMissing without a linker."""
    link(linked(library).object(), path, library.target, triple_of(library.target))


def _kernels(library: Library) -> tuple[list[str], dict[tuple[str, int], str]]:
    """The modules of all programs, and the symbol of each step; a program that several steps share is there once."""
    texts: list[str] = []
    known: dict[int, str] = {}
    entries: dict[tuple[str, int], str] = {}
    for function in library.functions:
        for number, step in enumerate(function.steps):
            if id(step.program) not in known:
                program = replace(step.program, name=f"{function.name}.{number}.{step.program.name}")
                texts.append(generate(program, library.target))
                known[id(step.program)] = entry_name(program.name)
            entries[function.name, number] = known[id(step.program)]
    return texts, entries


def _cpu(library: Library) -> str:
    target = library.target
    return f'"target-cpu"="{target.cpu}" "target-features"="{target.features}"'


def _attributed(text: str, attributes: str) -> str:
    """The module text with these attributes on each function that it defines."""
    return re.sub(r"^(define [^\n]*) \{$", rf"\1 {attributes} {{", text, flags=re.MULTILINE)
