"""What the driver says of a built program's kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyopencl as cl

from .runtime import OpenCLExecutable, compile_opencl

if TYPE_CHECKING:
    from ...ir.target import Target
    from ..lower import Lowered


def built_kernels(lowered: Lowered, target: Target) -> list[dict[str, Any]]:
    """The kernels of `lowered`, built for its device, in the order in which a call launches them.

    ``global`` and ``local`` are work-items by axis, ``groups`` the number of work-groups; ``max_work_group``,
    ``multiple`` (the preferred one of a work-group's size), ``local_bytes`` of a group and
    ``private_bytes`` of a work-item are the driver's figures for the built kernel.
    """
    executable = OpenCLExecutable(compile_opencl(lowered, target))
    return [_facts(executable, number) for number in range(len(executable.launches))]


def _facts(executable: OpenCLExecutable, number: int) -> dict[str, Any]:
    launch = executable.launches[number]
    kernel = cl.Kernel(executable.program, launch.kernel)
    info = cl.kernel_work_group_info

    def asked(which: Any) -> int:
        return int(kernel.get_work_group_info(which, executable.device))

    return {
        "kernel": launch.kernel,
        "global": list(launch.global_size),
        "local": list(launch.local_size),
        "groups": launch.groups,
        "max_work_group": asked(info.WORK_GROUP_SIZE),
        "multiple": asked(info.PREFERRED_WORK_GROUP_SIZE_MULTIPLE),
        "local_bytes": asked(info.LOCAL_MEM_SIZE),
        "private_bytes": asked(info.PRIVATE_MEM_SIZE),
    }
