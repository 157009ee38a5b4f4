"""Drivers that are Python packages are offered to the loader beside the system's; devices of several are told apart."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

cl = pytest.importorskip("pyopencl")

from stridesmith.backends.opencl import calling_thread, devices, drivers, images, processor_name  # noqa: E402
from stridesmith.errors import DeviceMissing  # noqa: E402

POCL = "Portable Computing Language"
INTEL = "Intel(R) OpenCL"


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system with a driver by its path, one by its name, and files that name no library that is there."""
    folder = tmp_path / "vendors"
    folder.mkdir()
    (tmp_path / "libsystem.so").touch()
    (folder / "system.icd").write_text(f"{tmp_path}/libsystem.so\n")
    (folder / "named.icd").write_text("libnamed.so.1\n")
    (folder / "gone.icd").write_text("/opt/nowhere/libgone.so\n")
    (folder / "damaged.icd").write_bytes(b"/opt/\xff\xfe")
    (folder / "folder.icd").mkdir()
    monkeypatch.setenv(drivers.SYSTEM, str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(drivers.VENDORS, raising=False)
    return tmp_path


def installed(monkeypatch: pytest.MonkeyPatch, path: Path | None) -> None:
    monkeypatch.setattr(drivers, "library", lambda package: path)


def test_the_loader_sees_the_system_and_the_package(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder that the variable names has each driver whose library is there, and is the same next time."""
    installed(monkeypatch, system / "libwheel.so")
    drivers.offer()
    folder = Path(os.environ[drivers.VENDORS])
    assert {file.name: file.read_text().strip() for file in folder.iterdir()} == {
        "system.icd": f"{system}/libsystem.so", "named.icd": "libnamed.so.1", "libwheel.icd": f"{system}/libwheel.so",
    }  # fmt: skip
    monkeypatch.delenv(drivers.VENDORS)
    drivers.offer()
    assert os.environ[drivers.VENDORS] == str(folder)


def test_what_the_user_has_set_stays(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of the user's decides alone; that a driver is not in it is said, with what to do."""
    (system / "libwheel.so").touch()
    installed(monkeypatch, system / "libwheel.so")
    monkeypatch.setattr(drivers, "_installed", lambda name: True)
    monkeypatch.setenv(drivers.VENDORS, str(system / "vendors"))
    drivers.offer()
    assert os.environ[drivers.VENDORS] == str(system / "vendors")
    ((text, advice),) = drivers.problems()
    assert "names no file for" in text and str(system / "libwheel.so") in text and "unset OCL_ICD_VENDORS" in advice
    (system / "vendors" / "wheel.icd").write_text(f"{system}/libwheel.so")
    ((text, _),) = drivers.problems()
    assert "does not load" in text


def test_without_a_package_nothing_changes(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loader's own ways stay as they are, and nothing is written."""
    installed(monkeypatch, None)
    drivers.offer()
    assert drivers.VENDORS not in os.environ and not (system / "cache").exists()


@pytest.mark.parametrize(
    ("given", "allowed", "expected"), [(None, {0, 1, 2, 3}, "1"), (None, {2, 3}, None), ("0", {0, 1, 2, 3}, "0")]
)
def test_pocls_threads_have_processors_of_their_own(
    given: str | None, allowed: set[int], expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all of the machine is the process's own, and where the user has not decided."""
    monkeypatch.setattr(drivers.os, "cpu_count", lambda: 4)
    monkeypatch.setattr(drivers.os, "sched_getaffinity", lambda pid: allowed)
    monkeypatch.setenv(drivers.AFFINITY, given or "")
    if given is None:
        monkeypatch.delenv(drivers.AFFINITY)
    drivers.pin()
    assert os.environ.get(drivers.AFFINITY) == expected


def test_a_cache_that_cannot_be_written_leaves_the_system_as_it_is(
    system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No error where a folder cannot be made: `stridesmith doctor` tells of it."""
    installed(monkeypatch, system / "libwheel.so")
    (system / "cache").write_text("a file where the folder should be")
    drivers.offer()
    assert drivers.VENDORS not in os.environ


def test_a_package_without_those_that_it_needs(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is named, with the command that installs all of it."""
    installed(monkeypatch, system / "libsystem.so")
    monkeypatch.setattr(drivers, "_installed", lambda name: name != "tbb")
    ((text, advice),) = drivers.problems()
    assert text.endswith("installed without tbb") and "stridesmith[intel-opencl]" in advice


def test_intels_wheel_is_found_by_processes_that_we_start() -> None:
    """Where Intel's runtime is installed, a process without any file about it finds its device, beside PoCL's."""
    if drivers.library(drivers.INTEL) is None:
        pytest.skip("intel-opencl-rt is not installed")
    code = "from stridesmith.backends.devices import listing; print(*(d.selector for d in listing()))"
    env = {name: value for name, value in os.environ.items() if name != drivers.VENDORS}
    command = [sys.executable, "-P", "-c", code]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, check=True).stdout.split()
    assert {"cpu", "opencl:intel", "opencl:pocl"} <= set(found)


def platform(name: str, version: str, *names: str, native: int = 8, driver: str = "1", built_for: str = "") -> Any:
    """A platform with CPU devices of these names, as pyopencl shows them."""
    made = SimpleNamespace(name=name, version=version)
    found = [
        SimpleNamespace(
            name=each, platform=made, type=cl.device_type.CPU, native_vector_width_float=native, vendor="v",
            version=f"OpenCL 3.0 {built_for}", driver_version=driver, extensions="", max_compute_units=2,
            max_work_group_size=64, local_mem_size=1 << 15, opencl_c_version="OpenCL C 1.2",
            host_unified_memory=True, image_support=False, int_ptr=number,
        )
        for number, each in enumerate(names)
    ]  # fmt: skip
    made.get_devices = lambda: found
    return made


def have(monkeypatch: pytest.MonkeyPatch, *platforms: Any) -> None:
    monkeypatch.setattr(devices, "_platforms", lambda: list(platforms))
    monkeypatch.setattr(devices, "image_limits", lambda device: {})


def test_each_device_has_a_short_selector_that_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the driver's short name; by number where a name has several platforms, or a platform several devices."""
    have(monkeypatch, platform(INTEL, "OpenCL 3.1", "Xeon"), platform("Other (TM) CL", "1.2", "a", "b"),
         platform(POCL, "PoCL 3.0", "pthread-Xeon"), platform(POCL, "PoCL 6.0", "cpu-Xeon"))  # fmt: skip
    found = devices.selectors()
    assert [text for text, _, _ in found] == [
        "opencl:intel", "opencl:other:0", "opencl:other:1", "opencl:pocl", "opencl:3",
    ]  # fmt: skip
    for text, target, _ in found:
        assert devices.match_opencl(*text.split(":")[1:]) == target
    assert devices.match_opencl("pocl 6").name == "cpu-Xeon"
    with pytest.raises(DeviceMissing, match=r"no OpenCL platform `nvidia` on this machine, which has `intel` \(Intel"):
        devices.match_opencl("nvidia")


def test_pocl_is_what_opencl_means_where_there_are_only_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Installing another driver does not change the device of `opencl`, and with it the records that are found."""
    monkeypatch.delenv("PYOPENCL_CTX", raising=False)
    have(monkeypatch, platform(INTEL, "OpenCL 3.1", "Xeon"), platform(POCL, "PoCL 3.0", "pthread-Xeon"))
    assert devices.match_opencl().name == "pthread-Xeon"


def test_drivers_of_one_device_have_keys_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two versions of a driver that give platform and device one name are told apart by the version."""
    have(monkeypatch, platform(POCL, "PoCL 3.0", "cpu", driver="3.0"), platform(POCL, "PoCL 6.0", "cpu", driver="6.0"),
         platform(INTEL, "OpenCL 3.1", "cpu"))  # fmt: skip
    targets = [target for _, target, _ in devices.selectors()]
    assert len({target.key for target in targets}) == 3
    assert [target.name for target in targets] == ["cpu, driver 3.0", "cpu, driver 6.0", "cpu"]
    assert [devices.device_of(target).driver_version for target in targets] == ["3.0", "6.0", "1"]


def test_two_cards_of_one_kind_are_two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """They share their records, and each runs what is meant for it; one that is not there is said so."""
    have(monkeypatch, platform("NVIDIA CUDA", "OpenCL 3.0", "H100", "L4", "H100"))
    found = devices.selectors()
    targets = [target for _, target, _ in found]
    assert [text for text, _, _ in found] == ["opencl:nvidia:0", "opencl:nvidia:1", "opencl:nvidia:2"]
    assert [target.number for target in targets] == [0, 0, 1] and targets[0].key == targets[2].key
    here = devices._all_devices()
    assert [here.index(devices.device_of(target)) for target in targets] == [0, 1, 2]
    with pytest.raises(DeviceMissing, match="`H100` of `NVIDIA CUDA`, number 2, is not on this machine"):
        devices.device_of(replace(targets[2], number=2))


def test_a_device_that_gives_no_context_is_listed_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another program holds is a device without images for now, and hides no other one."""
    made = platform("NVIDIA CUDA", "OpenCL 3.0", "held", "free")
    for device in made.get_devices():
        device.image_support = device.name == "held"
    monkeypatch.setattr(devices, "_platforms", lambda: [made])

    def refuse(device: Any) -> Any:
        raise cl.MemoryError("clCreateContext failed: OUT_OF_HOST_MEMORY")

    monkeypatch.setattr(images, "context_to_ask", refuse)
    (_, held, reasons), (_, _, none) = devices.selectors()
    assert held.name == "held" and not held.images and none == []
    assert "does not answer: clCreateContext failed: OUT_OF_HOST_MEMORY" in reasons[0].text


def test_pocl_without_a_linker_is_refused_and_another_driver_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would end the process with the first kernel: the listing and the refusal say what to install."""
    monkeypatch.delenv("PYOPENCL_CTX", raising=False)
    monkeypatch.setattr(drivers, "has_linker", lambda: False)
    monkeypatch.setattr(calling_thread, "is_ours", lambda: True)
    have(monkeypatch, platform(POCL, "PoCL 3.0", "pthread-Xeon"))
    ((_, target, faults),) = devices.selectors()
    assert "apt install gcc" in faults[0].text and "stridesmith[intel-opencl]" in faults[0].text
    for ask in (devices.match_opencl, lambda: devices.match_opencl("pocl", "0"), lambda: devices.device_of(target)):
        with pytest.raises(DeviceMissing, match="no kernel runs on the OpenCL device `pthread-Xeon`: PoCL links"):
            ask()
    have(monkeypatch, platform(POCL, "PoCL 3.0", "pthread-Xeon"), platform(INTEL, "OpenCL 3.1", "Xeon"))
    assert devices.match_opencl().name == "Xeon"
    monkeypatch.setattr(drivers, "has_linker", lambda: True)
    assert devices.match_opencl().name == "pthread-Xeon"


def test_a_linker_comes_with_its_libraries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`ld` alone has no C library to link with."""
    for here, expected in (((), False), (("ld",), False), (("ld", "gcc"), True), (("cc",), False)):
        monkeypatch.setattr(drivers.shutil, "which", lambda name, here=here: name if name in here else None)
        monkeypatch.setattr(drivers, "Path", lambda text: tmp_path)
        assert drivers.has_linker() is expected


@pytest.mark.parametrize(("renamed", "bits"), [(False, 256), (True, 512)])
def test_a_known_fault_is_avoided_and_told(monkeypatch: pytest.MonkeyPatch, renamed: bool, bits: int) -> None:
    """PoCL 3.0 on a processor that it takes for another: the right name, else vectors of 256 bits, and why."""
    monkeypatch.setattr(processor_name, "_best_name", lambda: "skylake-avx512")
    monkeypatch.setattr(processor_name, "is_renamed", lambda device: renamed)
    monkeypatch.setattr(processor_name, "rename", lambda device: None)
    linux = "PoCL HSTR: pthread-x86_64-unknown-linux-gnu"
    have(monkeypatch, platform(POCL, "PoCL 3.0", "old", native=16, built_for=f"{linux}-znver3"),
         platform(POCL, "PoCL 6.0", "new", native=16, built_for=f"{linux}-znver4"))  # fmt: skip
    (_, old, faults), (_, new, none) = devices.selectors()
    assert (old.vector_bits, old.max_vector_bits == 256) == (bits, not renamed) and (renamed or old.registers <= 16)
    assert (new.vector_bits, new.max_vector_bits) == (512, 1024) and none == []
    assert len(faults) == 1 and "takes the processor for an older one" in faults[0].text
    assert faults[0].text.endswith(": worked around" if renamed else ": those of 256 bits are used")
    assert faults[0].is_avoided is renamed
