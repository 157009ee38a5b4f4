"""OpenCL devices are found by number or name, never by asking, and missing ones are said so."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
from opencl_programs import device, needs_device

from stridesmith.errors import DeviceMissing

pytestmark = needs_device


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYOPENCL_CTX", raising=False)


def test_facts_of_a_device() -> None:
    """A target says what rules and code generators ask: sizes are positive, the key names the hardware."""
    target = device()
    assert target is not None and target.kind == "opencl"
    assert target.name and target.platform and target.versions
    assert target.units >= 1 and target.max_work_group >= 1 and target.local_bytes > 0
    assert target.vector_lanes("float32") >= 1 and target.registers >= 16
    assert target.name in target.key and target.versions not in target.key


def test_by_number_and_by_part_of_the_name() -> None:
    """Platform and device are found by number, or by part of their name in any case."""
    from stridesmith.backends.opencl.devices import device_of, match_opencl, selectors

    _, first, _ = selectors()[0]
    assert match_opencl("0", "0") == first
    assert match_opencl(first.platform[:6].upper(), first.name[1:].lower()) == first
    assert match_opencl("", first.name).name == first.name
    assert device_of(first).name.split() == first.name.split()


def test_a_whole_name_is_no_part_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a record calls its device names that one, also where another whose name is longer comes first."""
    from stridesmith.backends.opencl import devices

    monkeypatch.setattr(devices, "_name", lambda device: device.name)
    cards = [SimpleNamespace(name="RTX 3080 Ti"), SimpleNamespace(name="RTX 3080")]
    assert devices._pick(cards, "RTX 3080", "device") == cards[1:]
    assert devices._pick(cards, "RTX", "device") == cards[:1]
    names = ("Intel(R) OpenCL Graphics", "Intel(R) OpenCL")
    platforms = [SimpleNamespace(name=name, version="OpenCL 3.0", get_devices=list) for name in names]
    assert devices._pick(platforms, "Intel(R) OpenCL", "platform") == platforms[1:]


@pytest.mark.parametrize(
    ("platform", "name"), [("no such platform", ""), ("0", "no such device"), ("77", ""), ("0", "77")]
)
def test_missing_devices_are_listed(platform: str, name: str) -> None:
    """The refusal shows what was asked and what there is."""
    from stridesmith.backends.opencl.devices import match_opencl

    with pytest.raises(DeviceMissing, match=f"`{name or platform}` on this machine, which has `"):
        match_opencl(platform, name)


def test_the_environment_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    """`PYOPENCL_CTX` decides when nothing else is said, and a wrong one is an error, not a prompt."""
    from stridesmith.backends.opencl.devices import match_opencl

    monkeypatch.setenv("PYOPENCL_CTX", "0:0")
    assert match_opencl() == match_opencl("0", "0")
    monkeypatch.setenv("PYOPENCL_CTX", "99")
    with pytest.raises(DeviceMissing, match="PYOPENCL_CTX is `99`"):
        match_opencl()
    assert match_opencl("0").kind == "opencl"


def test_without_a_driver_the_error_says_what_to_install() -> None:
    """A machine without any platform gets one clear sentence."""
    code = (
        "import pyopencl as cl\n"
        "cl.get_platforms = lambda: []\n"
        "from stridesmith.backends.devices import discover\n"
        "from stridesmith.errors import DeviceMissing\n"
        "try:\n    discover('opencl')\n"
        "except DeviceMissing as error:\n    print('missing:', error)\n"
    )
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert result.stdout.startswith("missing: no OpenCL platform") and "install" in result.stdout


class Gpu:
    """A device as pyopencl has it; questions that its maker's extension does not know are errors."""

    def __init__(self, **facts: int) -> None:
        self.facts = {"profiling_timer_resolution": 1000, "host_unified_memory": 0, **facts}

    def __getattr__(self, name: str) -> int:
        import pyopencl as cl

        if name in self.__dict__["facts"]:
            return self.__dict__["facts"][name]
        if name in ("warp_size_nv", "wavefront_width_amd"):
            raise cl.LogicError.__new__(cl.LogicError)
        raise AttributeError(name)


@pytest.mark.parametrize(
    ("facts", "warp"), [({"warp_size_nv": 32}, 32), ({"wavefront_width_amd": 64}, 64), ({}, 32)], ids=str
)
def test_how_many_items_run_in_step(facts: dict[str, int], warp: int) -> None:
    """NVIDIA's and AMD's drivers tell; of others it is taken for 32."""
    from stridesmith.backends.opencl import devices

    assert devices._warp(Gpu(**facts)) == warp


def test_a_device_of_the_cpu_runs_no_items_in_step_and_is_timed_by_the_host() -> None:
    """So that nothing that is stored of it changes its meaning, and builds wait while it measures."""
    target = device()
    assert target is not None and target.is_cpu_device
    assert (target.warp, target.clock) == (1, "host") and not target.is_apart
    assert "host_memory" in target.features.split() and target.key.endswith(f"units={target.units}")
