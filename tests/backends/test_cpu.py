"""CPU artifacts: plain data, loaded elsewhere, run on guarded memory."""

import json
import subprocess
import sys

import numpy as np
import pytest
from cpu_programs import lowered, matmul_tile

from stridesmith.backends import cpu
from stridesmith.backends.kernel import compile_lowered, load_artifact
from stridesmith.ir.expr import Buffer, Var, const
from stridesmith.ir.stmt import For, Store
from stridesmith.ir.target import Target

i = Var("i")


def scale_program(dtype="float32", size=10, reach=10):
    a, w, out = Buffer("a", (size,), dtype), Buffer("w", (4,), dtype), Buffer("out", (size,), dtype)
    body = For(i, const(reach), Store(out, (i,), a[i % size] + a[i % size]))
    return lowered(body, a, out, workspaces=(w,))


def bound(program, threads=1, **options):
    return load_artifact(compile_lowered(program, Target(threads=threads))).bind(**options)


def test_artifact_is_json_and_runs_in_another_process():
    """What one process compiled, another one loads from JSON and runs."""
    artifact = compile_lowered(matmul_tile(6, 16, 8, 8), Target(threads=2))
    script = """if True:
        import json, sys
        import numpy as np
        from stridesmith.backends.kernel import load_artifact
        b = load_artifact(json.load(sys.stdin)).bind()
        for k in (0, 1):
            b.write(k, np.ones_like(b.read(k)))
        b.run()
        print(b.read(2).min(), b.read(2).max())
    """
    result = subprocess.run(
        [sys.executable, "-c", script], input=json.dumps(artifact), capture_output=True, text=True, timeout=60
    )
    assert result.stdout.split() == ["8.0", "8.0"], result.stderr


def test_names_and_shapes():
    """Parameters come first, then workspaces, each with its physical shape and type."""
    b = bound(scale_program("float16"))
    assert b.names == ("a", "out", "w")
    assert [b.read(k).shape for k in range(3)] == [(10,), (10,), (4,)]
    assert b.read(0).dtype == np.float16


def test_guards_are_intact_after_a_good_run_and_broken_after_a_bad_one():
    """A write one element behind a buffer is seen, one inside of it is not."""
    for reach, intact in ((10, True), (11, False)):
        b = bound(scale_program(reach=reach), guard_bytes=64)
        b.poison_guards(b"\x7f\x01\xfe")
        b.write(0, np.ones(10, np.float32))
        b.run()
        assert b.guards_intact() is intact
        np.testing.assert_array_equal(b.read(1), np.full(10, 2, np.float32))


def test_memory_is_aligned_with_and_without_guards():
    """Every buffer starts at a multiple of 64 bytes."""
    for guard in (0, 1, 100, 4096):
        b = bound(scale_program(), guard_bytes=guard)
        assert all(address % 64 == 0 for address in b._record)


def test_write_refuses_another_size():
    """An array of the wrong size is refused by name and sizes."""
    with pytest.raises(ValueError, match="`a` holds 40 bytes, but got 44"):
        bound(scale_program()).write(0, np.zeros(11, np.float32))


def test_call_on_the_callers_memory():
    """An executable runs on plain addresses, and counts them."""
    executable = load_artifact(compile_lowered(scale_program(), Target()))
    a, out, w = (np.arange(n, dtype=np.float32) for n in (10, 10, 4))
    executable.call([x.ctypes.data for x in (a, out, w)])
    np.testing.assert_array_equal(out, 2 * a)
    with pytest.raises(ValueError, match="takes 3 buffers, but got 2"):
        executable.call([a.ctypes.data, out.ctypes.data])


def test_time_makes_every_call():
    """`time` runs the kernel as often as it says, and gives seconds per call."""
    counter = Buffer("n", (1,), "int64")
    b = bound(lowered(Store(counter, (const(0),), counter[0] + 1), counter))
    b.write(0, np.zeros(1, np.int64))
    seconds = b.time(1000)
    assert b.read(0)[0] == 1000 and 0 < seconds < 1e-3
    b.time(1)
    assert b.read(0)[0] == 1001
    with pytest.raises(ValueError, match="at least 1"):
        b.time(0)


def test_time_is_the_kernels_and_not_pythons():
    """A kernel of a nanosecond or two takes less than a call from Python, also when it is called once."""
    counter = Buffer("n", (1,), "int64")
    b = bound(lowered(Store(counter, (const(0),), counter[0] + 1), counter))
    assert min(b.time(1) for _ in range(50)) < 100e-9
    assert min(b.time(100) for _ in range(20)) < 20e-9


def test_empty_buffer():
    """A buffer without elements is bound, read and written."""
    b = bound(lowered(Store(Buffer("n", (1,)), (const(0),), const(1.0)), Buffer("n", (1,)), Buffer("none", (0,))))
    assert b.read(1).size == 0
    b.write(1, np.zeros(0, np.float32))
    b.run()


def test_unknown_kinds_are_refused():
    """Neither a target nor an artifact of an unknown kind gets far."""
    with pytest.raises(ValueError, match="no code generator for a target of kind `fpga`"):
        compile_lowered(scale_program(), Target(kind="fpga"))
    artifact = compile_lowered(scale_program(), Target())
    with pytest.raises(ValueError, match="unknown kind `fpga`"):
        load_artifact({**artifact, "kind": "fpga"})


def test_assembly_is_text():
    """A person can read the machine code."""
    assert "kernel_program" in cpu.assembly(scale_program(), Target())
