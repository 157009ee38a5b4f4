"""Kernels that leave the process: everything that is needed to run them where there is no Python.

`library.py` says what a library is: functions of C, each a sequence of lowered programs over the caller's arrays,
constants and scratch memory.  For a CPU the whole is one LLVM module (`module.py`, with `interface.py`, `cpu_check.py`
and the thread pool), which leaves as text, assembly, C or a shared object (`linker.py`) with a header (`header.py`), or
as a Python package (`wheel.py`, `loaded.py`); for OpenCL as source with a host program (`opencl_host.py`).
`formats.py` has them all.
"""
