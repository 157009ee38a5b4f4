"""CLBlast on an OpenCL driver: products of matrices with all arguments on the device, and its own tuners.

CLBlast comes as a C library (`apt-get install libclblast1 clblast-utils` on Debian), which `ctypes` calls here with
pyopencl's handles.  `tuned` runs its tuners for a device once; what they find is given to the library before it is
timed, as its makers ask of everybody whose device is not in its tables.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from peer_forms import Call, Forms, Job, arrays

ROW_MAJOR, PLAIN, TRANSPOSED, SINGLE = 101, 111, 112, 32
TUNERS = ("copy_fast", "copy_pad", "transpose_fast", "transpose_pad", "xgemv", "xgemm_direct", "xgemm", "routine_xgemm")
FAMILIES = {
    "copy": "Copy", "pad": "Pad", "transpose": "Transpose", "padtranspose": "Padtranspose", "xgemm": "Xgemm",
    "xgemm_direct": "XgemmDirect", "xgemv": "Xgemv", "xgemv_fast": "XgemvFast", "xgemv_fast_rot": "XgemvFastRot",
    "gemm_routine": "GemmRoutine",
}  # fmt: skip
"""What a tuner calls a kernel, without the number of its search, and what the library does."""
PARAMETERS = "CLBLAST_PARAMETERS"  # an environment variable: the file that `tuned` has written


def device_of(driver: str) -> Any:
    """The first device of a driver, by a part of its platform's name."""
    from stridesmith.backends.opencl.drivers import offer

    offer()
    import pyopencl as cl

    names = {"pocl": "portable computing language"}
    for platform in cl.get_platforms():
        if names.get(driver, driver) in platform.name.lower():
            return platform.get_devices()[0]
    raise RuntimeError(f"no OpenCL platform is called {driver}")


def clblast_forms(job: Job, driver: str) -> Forms:
    """Products of matrices, one or many; nothing for other programs."""
    import pyopencl as cl

    kind, p = job["workload"], job["params"]
    found = ctypes.util.find_library("clblast")
    if kind not in ("matmul", "batch_matmul"):
        return Forms()
    if found is None:
        return Forms(missing={"gemm": "CLBlast is not installed"})
    library, device = ctypes.CDLL(found), device_of(driver)
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    _override(library, device)
    data, handle = arrays(job), ctypes.c_void_p(queue.int_ptr)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    memory = {name: cl.Buffer(context, flags, hostbuf=array) for name, array in data.items()}
    m, n, k, count = (ctypes.c_size_t(p.get(name, 1)) for name in ("m", "n", "k", "b"))
    zero, size = ctypes.c_size_t(0), ctypes.c_size_t
    a_flips, b_flips = bool(p.get("transpose_a")), bool(p.get("transpose_b"))
    a, b, c = (ctypes.c_void_p(memory[name].int_ptr) for name in ("a", "b", "c"))
    rows = [size(p["m" if a_flips else "k"]), size(p["k" if b_flips else "n"]), size(p["n"])]
    one, none = ctypes.c_float(1.0), ctypes.c_float(0.0)
    shape = (ROW_MAJOR, TRANSPOSED if a_flips else PLAIN, TRANSPOSED if b_flips else PLAIN, m, n, k)

    def read() -> np.ndarray:
        result = np.empty_like(data["c"])
        cl.enqueue_copy(queue, result, memory["c"])
        return result

    def call(name: str, *arguments: Any) -> Callable[[], Call]:
        routine = getattr(library, name)

        def run() -> Any:
            if status := routine(*arguments, ctypes.byref(handle), None):
                raise RuntimeError(f"{name} returned {status}")
            queue.finish()
            return Result(read)

        return lambda: run

    forms = Forms()
    if kind == "batch_matmul":
        steps = [size(p["m"] * p["k"]), size(p["k"] * p["n"]), size(p["m"] * p["n"])]
        (ra, rb, rc), (sa, sb, sc) = rows, steps
        forms.attempt("gemm", call("CLBlastSgemmStridedBatched", *shape, one, a, zero, ra, sa, b, zero, rb, sb, none,
                                   c, zero, rc, sc, count))  # fmt: skip
        return forms
    ra, rb, rc = rows
    forms.attempt("gemm", call("CLBlastSgemm", *shape, one, a, zero, ra, b, zero, rb, none, c, zero, rc))
    if p["m"] == 1 and not b_flips:
        forms.attempt("gemv", call("CLBlastSgemv", ROW_MAJOR, TRANSPOSED, k, n, one, b, zero, rb, a, zero, size(1),
                                   none, c, zero, size(1)))  # fmt: skip
    return forms


class Result:
    """What lies on the device, read when somebody asks for it."""

    def __init__(self, read: Callable[[], np.ndarray]) -> None:
        self.numpy = read


def _override(library: ctypes.CDLL, device: Any) -> None:
    """Give the library what its tuners have found."""
    path = os.environ.get(PARAMETERS, "")
    for name, values in (json.loads(Path(path).read_text()) if path else {}).items():
        names = (ctypes.c_char_p * len(values))(*(key.encode() for key in values))
        numbers = (ctypes.c_size_t * len(values))(*values.values())
        status = library.CLBlastOverrideParameters(
            ctypes.c_void_p(device.int_ptr), name.encode(), SINGLE, ctypes.c_size_t(len(values)), names, numbers
        )
        if status:
            raise RuntimeError(f"CLBlast refuses the parameters of {name}: {status}")


def tuned(driver: str, path: Path) -> None:
    """Run the tuners for a driver's device into a file that `PARAMETERS` may name; nothing where it is there."""
    if path.exists() or shutil.which("clblast_tuner_xgemm") is None:
        return
    best: dict[str, tuple[float, dict[str, int]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        environment = _only(driver, Path(folder))
        for tuner in TUNERS:
            command = [f"clblast_tuner_{tuner}", "-platform", "0", "-device", "0", "-precision", str(SINGLE)]
            subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=False)
        for file in Path(folder).glob("clblast_*.json"):
            told = json.loads(file.read_text())
            family = told["kernel_family"].rstrip("0123456789").rstrip("_")
            words = (word.partition("=") for word in told["best_parameters"].split())
            values = {name: int(value) for name, _, value in words if name != "PRECISION"}
            seconds = float(told["best_time"])
            if family in FAMILIES and seconds < best.get(FAMILIES[family], (np.inf, {}))[0]:
                best[FAMILIES[family]] = seconds, values
    path.write_text(json.dumps({name: values for name, (_, values) in best.items()}, indent=1))


def _only(driver: str, folder: Path) -> dict[str, str]:
    """An environment in which the system's loader sees this driver alone."""
    from stridesmith.backends.opencl.drivers import INTEL, library

    if driver == "intel":
        text = str(library(INTEL))
    else:
        import pyopencl

        text = str(next(Path(pyopencl.__path__[0]).rglob("libpocl*.so*")))  # where its wheel puts it
    (folder / "vendors").mkdir()
    (folder / "vendors" / "driver.icd").write_text(text)
    return {**os.environ, "OCL_ICD_VENDORS": str(folder / "vendors")}
