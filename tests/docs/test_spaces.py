"""The page about design spaces counts those of every suite, and names every kind of decision."""

from __future__ import annotations

import os
from pathlib import Path

from stridesmith import configs
from stridesmith.search.tasks.interface import interface_of
from stridesmith.space.design.decision import KINDS
from stridesmith.space.design.space import generate

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spaces.md"
START, END = "<!-- spaces -->\n", "<!-- end of spaces -->"
TARGETS = ("cpu-avx2", "opencl-cpu")


def table(target: str) -> str:
    """A row for every workload of the suites."""
    kinds = [kind for kind in KINDS if kind != "choice"]
    rows = [
        f"| {target} | sketches | {' | '.join(k.replace('_', ' ') for k in kinds)} | candidates |",
        f"|---|{'---:|' * (len(kinds) + 2)}",
    ]
    for name in configs.suites():
        for entry in configs.suite(name).entries:
            interface = interface_of(entry.work, entry.interface)
            facts = generate(entry.work.func, configs.target(target), interface).describe()
            counts = [str(facts["decisions_by_kind"].get(kind, "")) for kind in kinds]
            figures = [str(facts["sketch_count"]), *counts, f"{facts['size']:.1e}"]
            rows.append(f"| {name}: {entry.name} | {' | '.join(figures)} |")
    return "\n".join(rows)


def test_the_page_counts_the_spaces_of_the_suites() -> None:
    """Each workload and target is there with the counts of now.  STRIDESMITH_UPDATE_PAGES=1 writes them."""
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(START)
    wanted = f"{before}{START}\n{chr(10).join(table(t) + chr(10) for t in TARGETS)}\n{END}{rest.split(END)[1]}"
    if os.environ.get("STRIDESMITH_UPDATE_PAGES"):
        PAGE.write_text(wanted, encoding="utf-8")
        return
    assert page == wanted, "run this test with STRIDESMITH_UPDATE_PAGES=1"


def test_the_page_names_every_kind_of_decision() -> None:
    """Whoever adds a kind of decision says there what is chosen."""
    page = PAGE.read_text(encoding="utf-8")
    assert [kind for kind in KINDS if f"\n| `{kind}` | " not in page] == []
