"""``python -m stridesmith`` is the command `stridesmith`, and `tune`, of which this is the entry.

Ctrl-C, and a package that is not installed, end it as they should from here on, before anything else is loaded.
"""

from __future__ import annotations

import sys

from .invocation import NAME


def main() -> int:
    """Run the command in this process, which ends with it."""
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
