"""The entry of a disposable worker process: `python -m stridesmith.worker PARENT MEMORY`, see `search.workers.main`."""

from __future__ import annotations

from .search.workers.main import main

if __name__ == "__main__":
    main()
