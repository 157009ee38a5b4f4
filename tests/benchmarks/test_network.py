"""Nodes in network namespaces reach each other over a switch that is slow or cut on request; nothing is left behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from network import Net

pytestmark = [
    pytest.mark.skipif(
        sys.platform != "linux" or os.getuid() != 0 or not shutil.which("ip") or not os.path.exists("/dev/net/tun"),
        reason="network namespaces need root, iproute2 and tun devices",
    ),
    pytest.mark.timeout(60),
]

KNOCK = """
import socket, sys
knocking = socket.socket()
knocking.settimeout(float(sys.argv[2]))
try:
    knocking.connect((sys.argv[1], 9))
except OSError as error:
    print(type(error).__name__)
"""


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Net]:
    made = Net(tmp_path)
    try:
        made.add()
        made.add(fake_cpu=True)
    except subprocess.CalledProcessError:
        made.close()
        pytest.skip("this machine makes no namespaces")
    yield made
    made.close()


def knock(net: Net, patience: float = 20.0) -> str:
    """What the second node says to one who connects from the first: nobody listens there, or nothing comes back."""
    first, second = net.nodes
    command = [*net.prefix(first), sys.executable, "-S", "-c", KNOCK, net.address(second), str(patience)]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def test_links_are_slow_and_cut_as_they_are_set(net: Net) -> None:
    """A delay takes at least its time in both directions; a link that is cut lets nothing through until it is back."""
    first, second = net.nodes
    assert knock(net) == "ConnectionRefusedError"
    net.link(second).delay = 0.2
    start = time.monotonic()
    assert knock(net) == "ConnectionRefusedError" and time.monotonic() - start > 0.4
    net.link(second).delay, net.link(second).is_up = 0.0, False
    assert knock(net, 0.3) == "TimeoutError"
    net.link(second).is_up = True
    assert knock(net) == "ConnectionRefusedError"
    told = subprocess.run([*net.prefix(second), "cat", "/proc/cpuinfo"], capture_output=True, text=True).stdout
    assert "Another CPU" in told and "Another CPU" not in Path("/proc/cpuinfo").read_text()
    net.close()
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    assert first not in left and second not in left
