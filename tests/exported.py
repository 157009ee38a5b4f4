"""A scheduled convolution to export, and programs of C around what was exported."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from stridesmith.backends.devices import discover
from stridesmith.ir.target import Target
from stridesmith.search.calling.kernel import Kernel, build
from stridesmith.space.schedule import Schedule
from stridesmith.space.workloads import workload

CONSTANT = {"x": "fixed", "w": "constant", "y": "fixed"}
WORK = workload("conv2d", ci=5, h=9, w=9, co=20, k=3, pad=1)


def convolution(target: Target | None = None, interface: dict[str, str] | None = None) -> Kernel:
    """Weights in padded blocks of 16, parallel loops, and an intermediate in scratch memory."""
    schedule = Schedule(WORK.func)
    schedule.transform_layout("conv", "w", lambda o, i, r, c: [o // 16, i, r, c, o % 16], 0.0)
    if interface and interface["y"] == "free":
        schedule.transform_layout("conv", "y", lambda n, c, h, w: [n, h, w, c])
    schedule.parallel(schedule.fuse("pc", "ph"))
    schedule.parallel(schedule.fuse("co", "oh"))
    schedule.reorder("ci", "kh", "kw", "ow")
    return build(schedule.func, target or discover("cpu", 2), interface or CONSTANT)


def numbers(shape: tuple[int, ...]) -> np.ndarray:
    """What `CONVOLVE` computes with."""
    count = int(np.prod(shape))
    return ((np.arange(count) * 37 % 11 - 5) / np.float32(7)).astype(np.float32).reshape(shape)


def loader() -> dict[str, str]:
    """The environment with which a program finds the OpenCL library of this process, also one of pyopencl's wheel."""
    maps = os.fsdecode(Path("/proc/self/maps").read_bytes())  # names of files are bytes
    loaded = {line.split()[-1] for line in maps.splitlines() if "libOpenCL" in line}
    if not loaded:
        return dict(os.environ)
    library = Path(loaded.pop())
    places = f"{library.parent}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    vendors = {"OCL_ICD_VENDORS": str(library.parent)} if library.parent.name == ".libs" else {}
    return os.environ | vendors | {"OPENCL_LIBRARY": str(library), "LD_LIBRARY_PATH": places}


CONVOLVE = """
#include "conv.h"
#include <stdio.h>
#include <stdlib.h>

static float *array(size_t bytes) {
    float *data = aligned_alloc(64, (bytes + 63) / 64 * 64);
    for (size_t n = 0; n < bytes / 4; n++) data[n] = ((float)(n * 37 % 11) - 5) / 7;
    return data;
}

int main(void) {
    float *x = array(CONV_X_BYTES), *w = array(CONV_PACK_W_LOGICAL_BYTES);
    float *packed = array(CONV_W_BYTES), *y = array(CONV_Y_BYTES);
    int code = conv_pack_w(w, packed);
    if (!code) code = conv(x, packed, y);
    if (code) fprintf(stderr, "%s\\n", conv_message(code));
    else fwrite(y, 1, CONV_Y_BYTES, stdout);
    return code;
}
"""

# Four threads call two libraries at once, then a child does; every result is that of the first call.
CONCURRENT = """
#include "conv.h"
#include "other.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static float x[CONV_X_BYTES / 4], w[CONV_PACK_W_LOGICAL_BYTES / 4], packed[CONV_W_BYTES / 4], y[CONV_Y_BYTES / 4];
static float a[OTHER_A_BYTES / 4], b[OTHER_B_BYTES / 4];

static void *caller(void *calls) {
    float *mine = malloc(sizeof y), *too = malloc(sizeof b);
    long wrong = 0;
    for (long n = 0; n < (long)calls; n++) {
        memset(mine, 1, sizeof y);
        memset(too, 1, sizeof b);
        wrong += conv(x, packed, mine) || memcmp(mine, y, sizeof y);
        wrong += other(a, too) || memcmp(too, b, sizeof b);
    }
    free(mine);
    free(too);
    return (void *)wrong;
}

int main(int count, char **words) {
    long calls = count > 1 ? atol(words[1]) : 200, wrong = 0;
    pthread_t threads[4];
    for (size_t n = 0; n < sizeof x / 4; n++) x[n] = (float)(n % 13) - 6;
    for (size_t n = 0; n < sizeof w / 4; n++) w[n] = (float)(n % 5) - 2;
    for (size_t n = 0; n < sizeof a / 4; n++) a[n] = (float)n;
    if (conv_pack_w(w, packed) || conv(x, packed, y) || other(a, b)) return 9;
    for (int n = 0; n < 4; n++) pthread_create(&threads[n], NULL, caller, (void *)calls);
    for (int n = 0; n < 4; n++) {
        void *result;
        pthread_join(threads[n], &result);
        wrong += (long)result;
    }
    pid_t child = fork();
    if (!child) _exit(caller((void *)calls) ? 1 : 0);
    int status = 0;
    waitpid(child, &status, 0);
    conv_set_threads(1);
    wrong += (long)caller((void *)2) + (conv_threads() != 1);
    conv_set_threads(0);
    conv_release();
    wrong += (long)caller((void *)2) + (conv_threads() != CONV_THREADS);
    conv_release();
    printf("%ld wrong, child %d\\n", wrong, status);
    return wrong || status;
}
"""


def compiler() -> str:
    """A C compiler, or a skipped test."""
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if found is None:
        pytest.skip("there is no C compiler on this machine")
    return found


def compiled(source: str, folder: Path, *options: str) -> Path:
    """The program of a source text, made in `folder` with the files that are there."""
    (folder / "main.c").write_text(source)
    program = folder / "main"
    command = [compiler(), "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "main.c", "-I."]
    done = subprocess.run(
        [*command, *options, "-o", str(program), "-pthread"], cwd=folder, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return program


def in_another_root(program: Path, library: Path, root: Path) -> bytes:
    """What a program prints in a root that holds it, the exported library and the C library, and nothing else."""
    needs = subprocess.run(["ldd", program, library], capture_output=True, text=True, check=True).stdout
    files = {Path(path) for path in re.findall(r"(/\S+) \(0x", needs)}
    for path in files:
        copy = root / path.relative_to("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    shutil.copy(library, root / library.name)
    shutil.copy(program, root / "main")
    assert all(re.match(r"(libc|libm|libpthread|ld-linux.*)\.", path.name) for path in files), files
    places = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    chroot, unshare = shutil.which("chroot", path=places), shutil.which("unshare", path=places)
    if not chroot or not (os.geteuid() == 0 or unshare):
        pytest.skip("there is no chroot or no unshare on this machine")
    command = [chroot] if os.geteuid() == 0 else [str(unshare), "--user", "--map-root-user", chroot]
    allowed = subprocess.run([*command, "/", "/bin/true"], capture_output=True, timeout=20)
    if allowed.returncode:
        pytest.skip(f"no other root is allowed here: {allowed.stderr.decode().strip()}")
    found = {"LD_LIBRARY_PATH": ":".join(["/", *sorted({str(path.parent) for path in files})])}
    done = subprocess.run([*command, str(root), "/main"], capture_output=True, timeout=30, env=found)
    assert done.returncode == 0, done.stderr
    return done.stdout
