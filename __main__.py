"""``python -m stridesmith`` is the command `stridesmith`, and `tune`, of which this is the entry.

Ctrl-C, and a package that is not installed, end it as they should from here on, before anything else is loaded.
"""

from __future__ import annotations

import os
import sys

from .invocation import NAME


def open_streams() -> None:
    """Put the null device in the place of what the caller has closed of input, output and errors.

    The next file would have its number, a database perhaps, and what is printed would go there.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # which takes the lowest number that is free
    sys.stdin = sys.stdin or os.fdopen(os.open(os.devnull, os.O_RDONLY))
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    sys.stderr = sys.stderr or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


def main() -> int:
    """Run the command in this process, which ends with it."""
    open_streams()
    try:
        from .search.tuning.interruption import listen

        listen()
        from .commands.ending import ended, wants_json
    except KeyboardInterrupt:
        sys.stderr.write(f"{NAME}: interrupted; nothing had begun\n")
        return 130
    try:
        from .cli import main as run
        from .search.workers.threads import leave

        code = run()
        leave(code, at_once=True)
        return code
    except (KeyboardInterrupt, ImportError) as error:
        return ended(error, wants_json(sys.argv))


if __name__ == "__main__":
    sys.exit(main())
