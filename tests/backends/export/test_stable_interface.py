"""The C interface of a program is one, whatever schedule was found for it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from exported import CONSTANT, WORK, compiled, numbers

from stridesmith.backends.devices import discover
from stridesmith.backends.export.interface import INTERFACE
from stridesmith.search.calling.kernel import Kernel, build
from stridesmith.space.design.space import generate
from stridesmith.space.schedule import Schedule

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="shared objects are for Linux")

CALLER = """
#include "conv.h"
#include <stdio.h>
#include <stdlib.h>

static float *array(int64_t bytes) {
    float *data = aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64);
    for (int64_t n = 0; n < bytes / 4; n++) data[n] = ((float)(n * 37 % 11) - 5) / 7;
    return data;
}

int main(void) {
    if (conv_interface() != CONV_INTERFACE) return 99;
    float *x = array(conv_bytes_x()), *w = array(CONV_PACK_W_LOGICAL_BYTES), *y = array(conv_bytes_y());
    float *packed = array(conv_bytes_w());
    int code = conv_pack_w(w, packed);
    if (!code) code = conv(x, packed, y);
    if (!code) fwrite(y, 1, (size_t)conv_bytes_y(), stdout);
    fprintf(stderr, "%lld", (long long)conv_bytes_w());
    return code;
}
"""


def kernels(interface: dict[str, str]) -> dict[str, Kernel]:
    """Winners of one program: as it is written, and with weights in padded blocks, in an order of their own."""
    made = {}
    for name, blocks in (("plain", 0), ("sixteen", 16), ("seven", 7)):
        schedule = Schedule(WORK.func)
        if blocks:
            schedule.transform_layout("conv", "w", f"lambda o, i, r, c: [o // {blocks}, i, r, c, o % {blocks}]", 0.0)
        if blocks == 7 and interface["y"] == "free":
            schedule.transform_layout("conv", "y", lambda n, c, h, w: [n, h, w, c])
        made[name] = build(schedule.func, discover("cpu", 2), interface)
    return made


def candidates() -> dict[str, Kernel]:
    """What a search may end with: candidates of its design space, one for each way in which they pack the weights."""
    target, rng, made = discover("cpu", 2), np.random.default_rng(0), dict[str, Kernel]()
    for sketch in generate(WORK.func, target, CONSTANT).sketches:
        for row in sketch.draw(rng, 4).tolist():
            func = sketch.schedule(row).func
            layout = str(func.layout_of("w"))
            if layout not in made and len(made) < 4:
                made[layout] = build(func, target, CONSTANT)
    return dict(zip(("first", "second", "third", "fourth"), made.values(), strict=False))


@pytest.mark.parametrize("origin", ["by hand", "of a search"])
def test_one_caller_links_every_winner(origin: str, tmp_path: Path) -> None:
    """Compiled for one of them it computes the same with the others, whose packed weights have other sizes."""
    by_hand = kernels(CONSTANT)
    made = by_hand if origin == "by hand" else candidates()
    assert len(made) > 1
    for name, kernel in made.items():
        (tmp_path / name).mkdir()
        kernel.export(tmp_path / name / "libconv.so")
    program = compiled(CALLER, tmp_path / next(iter(made)), "-L.", "-lconv")
    right = by_hand["plain"](numbers((1, 5, 9, 9)), numbers((20, 5, 3, 3)))
    sizes = {}
    for name in made:
        done = subprocess.run(
            [program], env={"LD_LIBRARY_PATH": str(tmp_path / name)}, capture_output=True, timeout=60, check=False
        )
        assert done.returncode == 0, (name, done.returncode, done.stderr)
        np.testing.assert_allclose(np.frombuffer(done.stdout, np.float32).reshape(right.shape), right, 1e-4, 1e-5)
        sizes[name] = int(done.stderr)
    assert len(set(sizes.values())) > 1
    assert origin == "of a search" or sizes == {"plain": 3600, "sixteen": 5760, "seven": 3780}


@pytest.mark.parametrize("interface", [CONSTANT, {"x": "free", "w": "constant", "y": "free"}], ids=["fixed", "free"])
def test_declarations_do_not_depend_on_the_winner(interface: dict[str, str], tmp_path: Path) -> None:
    """The same functions with the same types; what may differ are sizes, in macros and in what the library tells."""
    found = {}
    for name, kernel in kernels(interface).items():
        (tmp_path / name).mkdir()
        kernel.export(tmp_path / name / "conv.c", "c")
        header = (tmp_path / name / "conv.h").read_text()
        found[name] = re.findall(r"^[\w ]+\*?\w+\([^)]*\);$", header, re.MULTILINE)
        assert f"#define CONV_INTERFACE {INTERFACE}" in header
    assert found["plain"] == found["sixteen"] == found["seven"]
    names = {re.findall(r"(\w+)\(", line)[0] for line in found["plain"]}
    wanted = {"conv", "conv_pack_w", "conv_interface", "conv_bytes_x", "conv_bytes_w", "conv_bytes_y"}
    assert names >= wanted | ({"conv_unpack_y", "conv_pack_x"} if interface["y"] == "free" else set())
