"""OpenCL devices of this machine as targets.

A device is found by platform and device, each by number or part of its name; a platform also by the short name of its
driver (`SHORT`) or by its version.  An empty text takes `PYOPENCL_CTX` if it is set, else the first GPU, else the first
accelerator, else PoCL's device, else the first one: what is installed besides does not change what `opencl` means.
Nothing ever prompts.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Sequence
from typing import Any

from ...errors import DeviceMissing
from ...invocation import COMMAND
from ...ir.target import AVX512_BUILTINS, HOST_MEMORY, POCL, SUBGROUPS, THREAD_POOL, Target
from ...numerals import count
from .. import cpu_topology
from . import calling_thread, drivers, processor_name
from .images import image_limits, refusal
from .known_faults import Fault, faults_of

SHORT = {
    POCL: "pocl",
    "Intel(R) OpenCL": "intel",
    "Intel(R) OpenCL Graphics": "intel-gpu",
    "NVIDIA CUDA": "nvidia",
    "AMD Accelerated Parallel Processing": "amd",
}
"""Short names of platforms; others go by the first word of their name."""
GPU_VECTOR_BITS, GPU_REGISTERS, GPU_LINE_BYTES = 128, 64, 128
"""A work-item of a GPU: the widest load, registers of that width, and bytes of a line of its caches."""
SOUND_CLOCK_NS = 1000
"""Nanoseconds of a tick of a clock that kernels of microseconds are timed by."""
WARP = 32
"""Work-items that a GPU runs in step whose driver does not tell."""
SUB_GROUP_SIZES, MOST_SIZES = 0x4108, 16
"""CL_DEVICE_SUB_GROUP_SIZES_INTEL, and more sizes than any device has."""


def selectors() -> list[tuple[str, Target, list[Fault]]]:
    """Every device in the drivers' order: the shortest text that names it, the target, and its known faults."""
    platforms, found = _platforms(), []
    for number, platform in enumerate(platforms):
        short = short_name(platform)
        text = short if _pick(platforms, short, "platform")[0] == platform else str(number)
        devices = _devices(platform)
        for position, device in enumerate(devices):
            selector = f"opencl:{text}" + (f":{position}" if len(devices) > 1 else "")
            target = describe_device(device)
            refused = [] if target.images or not device.image_support else refusal(device)
            more = [Fault(text, lambda _: True) for text in refused]
            found.append((selector, target, [*faults_of(device), *more]))
    return found


def short_name(platform: Any) -> str:
    """What people call the driver of a platform."""
    name = _text(platform.name)
    return SHORT.get(name) or re.sub(r"[^a-z0-9]+", "-", name.lower().split()[0] if name else "").strip("-")


def match_opencl(platform: str = "", device: str = "") -> Target:
    """The device that the two texts name.  Raises DeviceMissing with what there is."""
    return describe_device(find_device(platform, device))


def find_device(platform: str = "", device: str = "") -> Any:
    """The pyopencl device that the two texts name."""
    if not platform and not device and os.environ.get("PYOPENCL_CTX"):
        return _from_environment(os.environ["PYOPENCL_CTX"])
    platforms = _platforms()
    if not platforms:
        raise DeviceMissing(
            "no OpenCL platform was found; install a driver (on Linux x86-64, `pip install pocl-binary-distribution`)"
        )
    chosen = _pick(platforms, platform, "platform") if platform else platforms
    devices = [d for p in chosen for d in _devices(p)]
    if not devices:
        raise DeviceMissing(
            f"the OpenCL platform {_names(chosen)} has no device; `{COMMAND} doctor` tells what is wrong with the "
            f"driver, or install a driver for a device of this machine"
        )
    if device:
        return _usable(_pick(devices, device, "device")[0])
    return _usable(min(devices, key=lambda each: (bool(_refusals(each)), *_rank(each))))


def device_of(target: Target) -> Any:
    """The pyopencl device that `target` was described from.  Raises DeviceMissing."""
    alike = _alike(target.platform, target.name)
    if target.number < len(alike):
        return _usable(alike[target.number])
    which = f", number {target.number}," if alike else ""
    raise DeviceMissing(f"the OpenCL device `{target.name}` of `{target.platform}`{which} is not on this machine")


def _refusals(device: Any) -> list[str]:
    """Why nothing runs on a device, if so."""
    return [fault.text for fault in faults_of(device) if fault.refuses]


def _usable(device: Any) -> Any:
    """The device.  Raises DeviceMissing where nothing runs on it."""
    for text in _refusals(device):
        raise DeviceMissing(f"no kernel runs on the OpenCL device `{_text(device.name)}`: {text}")
    return device


def describe_device(device: Any) -> Target:
    """The facts about a device that rules and code generators use."""
    import pyopencl as cl

    from ..host import host_cpu

    is_cpu = bool(device.type & cl.device_type.CPU)
    native = max(int(device.native_vector_width_float), 1)
    platform = device.platform
    on_pool = calling_thread.device_in_caller(device) is not None
    threads = cpu_topology.usable_threads() if on_pool else int(device.max_compute_units)
    ways, line = cpu_topology.first_cache() if is_cpu else (Target.l1_ways, GPU_LINE_BYTES)
    target = Target(
        kind="opencl",
        name=_name(device),
        platform=_text(platform.name),
        number=next((k for k, d in enumerate(_alike(_text(platform.name), _name(device))) if d == device), 0),
        vendor=_text(device.vendor),
        isa=_text(getattr(device, "opencl_c_version", "")),
        features=_features(device),
        vector_bits=32 * native if is_cpu else GPU_VECTOR_BITS,
        registers=host_cpu().registers if is_cpu else GPU_REGISTERS,
        threads=threads,
        units=threads,
        l1_bytes=_cache(1, Target.l1_bytes) if is_cpu else 32 << 10,
        l1_ways=ways,
        line_bytes=line,
        l2_bytes=_cache(2, Target.l2_bytes) if is_cpu else int(device.global_mem_cache_size) or 1 << 20,
        l3_bytes=_cache(3, Target.l3_bytes) if is_cpu else int(device.global_mem_cache_size) or 1 << 20,
        max_work_group=int(device.max_work_group_size),
        local_bytes=int(device.local_mem_size),
        **image_limits(device),
        subgroups=_subgroup_sizes(device),
        is_cpu_device=is_cpu,
        warp=1 if is_cpu else _warp(device),
        clock="host" if is_cpu or int(device.profiling_timer_resolution) > SOUND_CLOCK_NS else "device",
        versions=f"{_text(platform.version)}; driver {_text(device.driver_version)}; pyopencl {cl.VERSION_TEXT}",
    )
    for fault in faults_of(device):
        target = fault.avoid(target)
    return target


def _warp(device: Any) -> int:
    """Work-items that a GPU runs in step, by the extension of its maker."""
    import pyopencl as cl

    for name in ("warp_size_nv", "wavefront_width_amd"):
        try:
            return int(getattr(device, name))
        except (cl.Error, AttributeError):
            continue
    return WARP


def _features(device: Any) -> str:
    """The device's extensions, and what else it has that targets know by a word."""
    found = [_text(device.extensions)]
    if processor_name.has_avx512(device):
        found.append(AVX512_BUILTINS)
    if calling_thread.device_in_caller(device) is not None:
        found.append(THREAD_POOL)
    if device.host_unified_memory:
        found.append(HOST_MEMORY)
    return " ".join(found)


def _subgroup_sizes(device: Any) -> str:
    """The sizes that a kernel may ask for, which pyopencl does not know by name; none where the loader cannot tell."""
    import pyopencl as cl

    if not {SUBGROUPS, "cl_intel_subgroups"} <= set(_text(device.extensions).split()):
        return ""
    found, length = (ctypes.c_size_t * MOST_SIZES)(), ctypes.c_size_t()
    try:
        ask = ctypes.CDLL(cl._cl.__file__).clGetDeviceInfo
    except (OSError, AttributeError):
        return ""
    failed = ask(ctypes.c_void_p(device.int_ptr), SUB_GROUP_SIZES, ctypes.sizeof(found), found, ctypes.byref(length))
    return "" if failed else " ".join(map(str, found[: length.value // ctypes.sizeof(ctypes.c_size_t)]))


def _name(device: Any) -> str:
    """The device's name; with its driver's version where several drivers of one platform's name call one so."""
    name, platform = _text(device.name), _text(device.platform.name)
    versions = {_text(d.driver_version) for d in _all_devices()
             if _text(d.name) == name and _text(d.platform.name) == platform}  # fmt: skip
    return name if len(versions) < 2 else f"{name}, driver {_text(device.driver_version)}"


def _alike(platform: str, name: str) -> list[Any]:
    """The devices of a platform that are called so, in the drivers' order."""
    return [d for d in _all_devices() if _text(d.platform.name) == platform and _name(d) == name]


def _all_devices() -> list[Any]:
    return [device for platform in _platforms() for device in _devices(platform)]


def _cache(level: int, default: int) -> int:
    return cpu_topology.caches().get(level, default)


def _platforms() -> list[Any]:
    import pyopencl as cl

    try:
        return calling_thread.platforms()
    except cl.Error:  # the loader's way of saying that there is none
        return []


def _devices(platform: Any) -> list[Any]:
    import pyopencl as cl

    try:
        devices = list(platform.get_devices())
    except cl.Error:
        return []
    for device in devices:
        processor_name.rename(device)
        second = calling_thread.device_in_caller(device)
        if second not in (None, device):
            processor_name.rename(second)
    return devices


def _from_environment(text: str) -> Any:
    import pyopencl as cl

    _platforms()  # PoCL tells of its devices once
    try:
        return cl.create_some_context(interactive=False, answers=None).devices[0]
    except (cl.Error, RuntimeError, ValueError, IndexError) as error:
        raise DeviceMissing(f"PYOPENCL_CTX is `{text}`, which names no OpenCL device here: {error}") from error


def _pick(items: Sequence[Any], text: str, what: str) -> list[Any]:
    if (number := count(text)) is not None:
        if number < len(items):
            return [items[number]]
    else:
        known = [_words(item) for item in items]
        exact = [item for item, words in zip(items, known, strict=True) if text.lower() in words[:2]]
        found = exact or [item for item, words in zip(items, known, strict=True) if text.lower() in " ".join(words)]
        if found:
            return found[:1]
    more = ""
    if what == "platform" and text:
        drivers_of = [package for package in drivers.available() if text.lower() in package.name]
        more = "".join(f"; `pip install '{package.extra}'` brings a driver of that name" for package in drivers_of)
    raise DeviceMissing(f"there is no OpenCL {what} `{text}` on this machine, which has {_names(items)}{more}")


def _words(item: Any) -> tuple[str, str, str]:
    """What a platform is found by, or a device: short name, name as in its target, version."""
    if hasattr(item, "get_devices"):
        return short_name(item), _text(item.name).lower(), _text(item.version).lower()
    return "", _name(item).lower(), ""


def _names(items: Sequence[Any]) -> str:
    """Each by what selects it: a platform by its short name, a device by its number."""
    told = [
        f"`{short_name(item) if hasattr(item, 'get_devices') else number}` ({_text(item.name)})"
        for number, item in enumerate(items)
    ]
    return ", ".join(told) or "none"


def _rank(device: Any) -> tuple[int, bool]:
    import pyopencl as cl

    order = (cl.device_type.GPU, cl.device_type.ACCELERATOR, cl.device_type.CPU)
    kind = next((k for k, kind in enumerate(order) if device.type & kind), len(order))
    return kind, _text(device.platform.name) != POCL


def _text(value: Any) -> str:
    return " ".join(str(value).split())
