"""How a process ends whose libraries have threads that nobody can end."""

import subprocess
import sys

import pytest

BODY = """
import atexit, sys
from stridesmith.search.workers.threads import cannot_end, leave

class Late:
    def __del__(self):
        print("taken down")

late = Late()
atexit.register(print, "registered")
{stuck}
sys.stdout.write("told ")
leave(3)
print("went on ", end="")
"""


@pytest.mark.parametrize(
    ("stuck", "code", "printed"),
    [("", 0, "told went on registered\ntaken down\n"), ("cannot_end.set()", 3, "told registered\n")],
)
def test_only_a_process_with_threads_that_cannot_end_is_left_at_once(stuck: str, code: int, printed: str) -> None:
    """What was registered has run and what was written is out; nothing is taken down under a running thread."""
    run = subprocess.run([sys.executable, "-c", BODY.format(stuck=stuck)], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout, run.stderr) == (code, printed, "")


def test_what_waits_at_the_exit_does_not_hold_up_the_end() -> None:
    """What a library has registered may wait for the very threads that cannot end."""
    stuck = "cannot_end.set()\nimport threading\natexit.register(threading.Event().wait)"
    run = subprocess.run([sys.executable, "-c", BODY.format(stuck=stuck)], capture_output=True, text=True, timeout=20)
    assert (run.returncode, run.stdout) == (3, "told ")
