"""Addresses of Ray clusters: what is one, and whether a cluster answers there.

`ray.init` tries for most of a minute where nobody does, so that this is asked before.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

from ...errors import TemporaryError, UsageError
from ...numerals import count
from . import guardian

CONNECT_SECONDS = 5.0  # to a head
CHECK_SECONDS = 8.0  # for a head to say who it is
HTTP2_SETTINGS = b"\x04"
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0" + HTTP2_SETTINGS + b"\0" * 5


def check_address(address: str) -> None:
    """Raise UsageError for what names no cluster."""
    host, _, port = str(address).rpartition(":")
    is_host = re.fullmatch(r"\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+", host)
    if address == "auto" or (is_host and 0 < (count(port) or 0) < 65536):
        return
    hint = "; a Ray client's address, `ray://...`, is none" if "://" in str(address) else ""
    raise UsageError(f"--address (or RAY_ADDRESS) is auto or HOST:PORT, as in 10.0.0.7:6379, but got {address!r}{hint}")


def answering_mode(address: str, named_by: str) -> str:
    """The authentication mode in which a cluster answers, empty for the one that is set.  Raises TemporaryError.

    A head that finds a token demands it, but Ray's clients send it only when told to, and one that does cannot work
    with a cluster without; Ray reads the mode when it is imported.  And `ray.init` waits for minutes where a server
    is no Ray, or says nothing.  So other processes ask, in each mode at once.
    """
    if address == "auto":
        _check_automatic(named_by)
        return ""
    _check_reachable(address)
    modes = ["disabled", "token"] if "RAY_AUTH_MODE" not in os.environ and _has_token() else [""]
    command = [sys.executable, "-P", "-m", "ray.scripts.scripts", "health-check", "--address", address]
    asking = {
        mode: subprocess.Popen(
            command, env={**os.environ, **({"RAY_AUTH_MODE": mode} if mode else {})},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )
        for mode in modes
    }  # fmt: skip
    deadline = time.monotonic() + CHECK_SECONDS
    try:
        for mode, process in asking.items():
            with contextlib.suppress(subprocess.TimeoutExpired):
                if process.wait(max(0.0, deadline - time.monotonic())) == 0:
                    return mode
    finally:
        for process in asking.values():
            process.kill()
            process.wait()
    raise _is_no_ray(address)


def _check_automatic(named_by: str) -> None:
    """Raise TemporaryError at once where ``auto`` names no cluster that answers: Ray would try for most of a minute.

    Ray takes a cluster that runs on this host, or else the one that `ray start` has last noted in a file, which stays
    when that has ended.
    """
    if sys.platform != "linux" or _has_cluster():
        return
    note = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster")
    noted = note.read_text().strip() if note.is_file() else ""
    try:
        check_address(noted)
        _check_reachable(noted)
    except (TemporaryError, UsageError, ValueError):
        found = f"no cluster answers at {noted or 'an empty address'}, which {note} names" if note.is_file() else (
            f"no cluster runs on this host, and there is no {note}"
        )  # fmt: skip
        raise TemporaryError(
            f"{named_by} is `auto`, but {found}; start a cluster with `ray start --head`, give the address of one as "
            f"HOST:PORT, or leave out {named_by} to use this machine alone"
        ) from None


def _has_cluster() -> bool:
    """Whether a Ray runs on this host."""
    return any(guardian.name_of(int(name)) == "gcs_server" for name in os.listdir("/proc") if name.isdigit())


def _check_reachable(address: str) -> None:
    """Raise TemporaryError at once where Ray would try for a minute: nobody is there, or no server of gRPC.

    A server of gRPC speaks HTTP/2, in which the first thing that either side sends is a SETTINGS frame (RFC 9113,
    section 3.4): three bytes of length, and 4 for its type.  Behind TLS this cannot be seen.
    """
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS) as connection:
            if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
                return
            try:
                connection.sendall(HTTP2_PREFACE)
                first = connection.recv(4, socket.MSG_WAITALL)
            except OSError:  # it closes the connection, or says nothing
                first = b""
    except OSError as error:
        raise TemporaryError(
            f"no Ray cluster answers at {address} ({error}); start one with `ray start --head`, "
            f"or leave out `--address` and RAY_ADDRESS to use this machine alone"
        ) from None
    if first[3:] != HTTP2_SETTINGS:
        raise _is_no_ray(address)


def _is_no_ray(address: str) -> TemporaryError:
    return TemporaryError(
        f"what listens at {address} does not answer as a Ray cluster does; give the address of its head's GCS, which "
        f"`ray start --head` prints (port 6379 by default), or leave out `--address` and RAY_ADDRESS"
    )


def _has_token() -> bool:
    """Whether the user has a token for Ray clusters, in any of the places where Ray looks."""
    named = any(name in os.environ for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    return named or (Path.home() / ".ray" / "auth_token").exists()
