"""Finding devices, and saying clearly what is not there."""

import os
from pathlib import Path

import pytest

from stridesmith.backends import cpu_topology as topology
from stridesmith.backends import devices, host
from stridesmith.errors import UnknownTarget, UsageError
from stridesmith.ir.isa import vectors_of
from stridesmith.ir.target import Target


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_host_is_described():
    """The CPU has a model, a vector width that fits its registers, caches that grow, and threads."""
    target = devices.discover("cpu")
    assert target.kind == "cpu" and target.name and target.vendor and target.cpu
    assert (target.isa, target.vector_bits) in {
        ("avx512", 512),
        ("avx2", 256),
        ("avx", 256),
        ("sse2", 128),
        ("neon", 128),
    }
    assert target.l1_bytes < target.l2_bytes <= target.l3_bytes
    assert 1 <= target.threads <= len(topology.affinity())
    assert "LLVM" in target.versions


def test_threads_can_be_chosen():
    """A number of threads overrides the default, and is part of the key."""
    assert devices.discover("cpu", threads=3).key.endswith("|threads=3")
    with pytest.raises(UnknownTarget, match="at least 1, but got 0"):
        devices.discover("cpu", threads=0)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("cuda", "unknown target `cuda`; known are `cpu` and `opencl"),
        ("opncl", "did you mean 'opencl'"),
        ("cpu:0", "a CPU has no platform or device; use `cpu`"),
        ("", "unknown target ``"),
    ],
)
def test_unknown_targets(text, sentence):
    """A wrong name is told what exists, with exit code 2."""
    with pytest.raises(UnknownTarget, match=sentence) as error:
        devices.discover(text)
    assert error.value.exit_code == 2


def test_threads_are_a_cpus():
    """An OpenCL device runs on all that it has; a number of threads for it is refused, not ignored."""
    with pytest.raises(UsageError, match="leave out the number of threads"):
        devices.discover("opencl", threads=1)


def test_list_starts_with_the_cpu():
    """The CPU is always there."""
    assert devices.list_devices()[0] == host.host_cpu()


@pytest.mark.parametrize(
    ("machine", "features", "expected"),
    [
        ("x86_64", ("avx", "avx2", "fma"), ("avx2", 256, 16)),
        ("x86_64", ("avx", "avx2", "fma", "avx512f", "avx512vl", "avx512bw", "avx512dq"), ("avx512", 512, 32)),
        ("x86_64", ("avx", "avx2", "fma", "avx512f"), ("avx2", 256, 16)),
        ("x86_64", ("avx",), ("avx", 256, 16)),
        ("amd64", (), ("sse2", 128, 16)),
        ("arm64", (), ("neon", 128, 32)),
        ("riscv64", (), ("riscv64", 128, 16)),
    ],
)
def test_instruction_sets(machine, features, expected):
    """The widest complete instruction set decides width and number of registers."""
    found = vectors_of(machine, features)
    assert (found.name, found.bits, found.registers) == expected


@pytest.mark.parametrize(
    ("files", "membership", "expected"),
    [
        ({"cpu.max": "150000 100000"}, "0::/", 1.5),
        ({"cpu.max": "max 100000"}, "0::/", None),
        ({"a/b/cpu.max": "max 100000", "a/cpu.max": "400000 100000", "cpu.max": "800000 100000"}, "0::/a/b", 4.0),
        ({"cpu.max": "200000 100000"}, "0::/../../host/only", 2.0),
        (
            {"cpu,cpuacct/g/cpu.cfs_quota_us": "50000", "cpu,cpuacct/g/cpu.cfs_period_us": "100000"},
            "4:cpu,cpuacct:/g",
            0.5,
        ),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, "4:cpu:/", None),
        ({}, "", None),
    ],
)
def test_control_group_quota(tmp_path, files, membership, expected):
    """The smallest quota of the group and those above it counts, in both versions of control groups."""
    for name, text in files.items():
        write(tmp_path / "cgroup" / name, text + "\n")
    write(tmp_path / "membership", membership + "\n")
    assert topology.cgroup_quota(tmp_path / "cgroup", tmp_path / "membership") == expected


def test_two_threads_of_a_core_count_once(tmp_path, monkeypatch):
    """Physical cores among the usable CPUs, not hardware threads."""
    monkeypatch.setattr(topology, "affinity", lambda: {0, 1, 2, 4})
    for cpu, siblings in {0: "0,4", 4: "0,4", 1: "1,5", 2: "2,6"}.items():
        write(tmp_path / f"cpu{cpu}/topology/thread_siblings_list", siblings)
    assert topology.physical_cores(tmp_path) == 3


def test_the_least_limit_sets_the_threads(monkeypatch):
    """Affinity, quota and cores: whichever is smallest, and never below one."""
    monkeypatch.setattr(topology, "affinity", lambda: set(range(8)))
    monkeypatch.setattr(topology, "physical_cores", lambda: 6)
    for quota, expected in ((None, 6), (2.5, 2), (0.3, 1), (64.0, 6)):
        monkeypatch.setattr(topology, "cgroup_quota", lambda q=quota: q)
        assert topology.usable_threads() == expected


def test_caches_are_read_by_level(tmp_path, monkeypatch):
    """Data and unified caches count, the instruction cache does not."""
    monkeypatch.setattr(topology, "affinity", lambda: {3})
    entries = [("1", "Data", "48K"), ("1", "Instruction", "64K"), ("2", "Unified", "2M"), ("3", "Unified", "1G")]
    for number, (level, kind, size) in enumerate(entries):
        for name, text in (("level", level), ("type", kind), ("size", size)):
            write(tmp_path / f"cpu3/cache/index{number}/{name}", text)
    assert topology.caches(tmp_path) == {1: 48 << 10, 2: 2 << 20, 3: 1 << 30}


def test_ways_and_lines_of_the_first_data_cache(tmp_path, monkeypatch):
    """A way is what addresses are apart that compete: 48 KiB in 12 ways are 4 KiB, as 32 KiB in 8 are."""
    monkeypatch.setattr(topology, "affinity", lambda: {0})
    assert topology.first_cache(tmp_path) == (8, 64)
    for number, (kind, ways) in enumerate((("Instruction", "4"), ("Data", "12"))):
        named = {"level": "1", "type": kind, "ways_of_associativity": ways, "coherency_line_size": "128"}
        for name, text in named.items():
            write(tmp_path / f"cpu0/cache/index{number}/{name}", text)
    assert topology.first_cache(tmp_path) == (12, 128)
    assert Target(l1_bytes=48 << 10, l1_ways=12).way_bytes == Target().way_bytes == 4096


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs affinity masks")
def test_affinity_is_respected():
    """A process that is pinned to one CPU has one thread."""
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert topology.usable_threads() == 1
    finally:
        os.sched_setaffinity(0, before)
