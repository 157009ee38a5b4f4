"""The house: which package may import which, one home for each outside library, and what is shipped."""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import stridesmith
from stridesmith import ir

ROOT = Path(stridesmith.__file__).resolve().parent
CHECKOUT = Path(__file__).resolve().parents[1]
PACKAGES = {
    "ir": {"ir"},
    "space": {"ir", "space"},
    "backends": {"ir", "backends"},
    "cost_model": {"ir", "space", "cost_model"},
    "configs": {"ir", "space", "configs"},
    "search": {"ir", "space", "backends", "cost_model", "search"},
    "models": {"ir", "space", "backends", "cost_model", "search", "models"},
    "report": {"ir", "space", "backends", "cost_model", "search", "models", "report"},
    "commands": {"ir", "space", "backends", "cost_model", "configs", "search", "models", "report", "commands"},
    "pytorch": {"ir", "space", "backends", "cost_model", "search", "models", "commands", "pytorch"},
}
INSIDE_SEARCH = {
    "tasks": {"tasks"},
    "records": {"tasks", "records"},
    "candidates": {"tasks", "records", "candidates"},
    "workers": {"tasks", "records", "candidates", "workers"},
    "tuning": {"tasks", "records", "candidates", "workers", "tuning"},
    "calling": {"tasks", "records", "candidates", "workers", "tuning", "calling"},
}
HOMES = {
    "islpy": ("ir/",),
    "llvmlite": ("backends/",),
    "pyopencl": ("backends/",),
    "xgboost": ("cost_model/",),
    "scipy": ("report/interval.py",),
    "optuna": ("search/tuning/",),
    "ray": ("search/workers/",),
    "sqlalchemy": tuple(f"search/records/{name}.py" for name in ("database", "engine", "rows", "tables")),
    "onnx": ("models/",),
    "torch": ("pytorch/",),
    "click": ("cli.py", "commands/mistaken.py"),
    "rich": ("commands/",),
    "jinja2": ("report/page.py",),
    "vl_convert": ("report/page.py",),
}
HEAVY = (*HOMES, "pocl", "pydantic", "numpy.testing", "matplotlib")
AT_ROOT = {"errors", "figures", "files", "forks", "invocation", "numerals", "version"}
MOST_ONCE = 350
"""Of private functions of at most six lines, those that may be called once."""
MANY = {
    "backends/render/opencl/masks.py:chosen",
    "backends/render/opencl/masks.py:write_under",
    "commands/calls.py:compile",
    "commands/calls.py:tune",
    "models/operators/products.py:product_of",
    "models/operators/reductions.py:add_reduction",
    "models/operators/resizing.py:_along",
    "models/tuning.py:tune_network",
    "pytorch/tuning.py:tune",
    "pytorch/whole.py:compile",
    "space/design/decision.py:add",
    "space/design/rules.py:_sketches",
    "space/primitives/compute.py:_nest_over",
    "space/primitives/layout.py:transform_layout",
    "space/primitives/reindex_cache.py:reindex_cache_read",
    "space/primitives/reindex_cache.py:reindex_cache_write",
    "space/primitives/sharing.py:transform_layout_everywhere",
}
"""Functions that may have more than six parameters."""
METAPHORS = re.compile(
    r"(?i)(?<![a-z])(rivals?|twins?|faces?|last[ _]words?|aside|mend(s|ed|ing)?|doubt(s|ful)?|hopeless)(?![a-z])"
)
NOT_SHIPPED = {"tests", "benchmarks", "docs", "build", "dist"}


def sources() -> list[Path]:
    """Every module of the package, where it is installed."""
    found = (p for p in ROOT.rglob("*.py") if not NOT_SHIPPED & set(p.relative_to(ROOT).parts))
    return sorted(p for p in found if not any(part.startswith(".") for part in p.relative_to(ROOT).parts))


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """``(level, dotted name)`` of each import statement, nested ones included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.module:
                yield node.level, node.module
            else:
                yield from ((node.level, alias.name) for alias in node.names)


def package_of(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return parts[0] if len(parts) > 1 else ""


def imported_package(path: Path, level: int, name: str) -> str | None:
    """The first part of what a relative import reaches, seen from the package; None if it is outside."""
    if level == 0:
        return None
    folder = path.relative_to(ROOT).parent.parts
    base = folder[: len(folder) - (level - 1)]
    return (*base, *name.split("."))[0]


def names(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", sources(), ids=names)
def test_imports_point_one_way(path: Path) -> None:
    """A package imports only the packages below it, always relatively, and never the command."""
    package = package_of(path)
    for level, name in imports(path):
        assert level > 0 or name.split(".")[0] != "stridesmith", f"{names(path)} imports {name} absolutely"
        reached = imported_package(path, level, name)
        if package and reached and reached not in AT_ROOT:
            known = sorted(PACKAGES[package])
            assert reached in known, f"{names(path)} imports {reached}, but {package} may use {known}"


@pytest.mark.parametrize("path", sorted((ROOT / "search").glob("*/*.py")), ids=names)
def test_packages_inside_search_import_without_a_circle(path: Path) -> None:
    """tasks <- records <- candidates <- workers <- tuning <- calling, also for types alone and inside of functions."""
    package = path.parent.name
    for level, name in imports(path):
        folder = path.relative_to(ROOT).parent.parts
        reached = (*folder[: len(folder) - (level - 1)], *name.split(".")) if level else ()
        if reached[:1] == ("search",):
            assert reached[1] in INSIDE_SEARCH[package], f"{names(path)} imports {reached[1]}"


@pytest.mark.parametrize("path", sources(), ids=names)
def test_each_outside_library_has_one_home(path: Path) -> None:
    """Only the home of a library imports it."""
    for level, name in imports(path):
        home = HOMES.get(name.split(".")[0]) if level == 0 else None
        assert home is None or names(path).startswith(home), f"{names(path)} imports {name}, whose home is {home}"


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported_modules(path: Path, modules: set[str]) -> set[str]:
    """The modules of the package that one imports anywhere, also where only types are checked."""
    folder, found = path.relative_to(ROOT).parent.parts, set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = ".".join((*folder[: len(folder) - (node.level - 1)], *filter(None, [node.module])))
            inside = {f"{base}.{alias.name}" for alias in node.names} & modules
            found |= inside or ({base} & modules)
    return found - {dotted(path)}


@functools.cache
def arrows() -> dict[str, set[str]]:
    """The modules that each module imports, also inside of functions and for types alone."""
    paths = {dotted(path): path for path in sources()}
    return {name: imported_modules(path, set(paths)) for name, path in paths.items()}


def in_circles(arrows: Mapping[str, set[str]]) -> list[str]:
    """What imports itself by way of others, or leads to what does."""
    left = {name: reached - {name} for name, reached in arrows.items()}
    while ready := {name for name, reached in left.items() if not reached & left.keys()}:
        left = {name: reached for name, reached in left.items() if name not in ready}
    return sorted(left)


def test_no_module_is_part_of_a_circle() -> None:
    """Whoever reads a module reads what it imports first, and comes to an end."""
    assert in_circles(arrows()) == []


@pytest.mark.parametrize("folder", sorted({path.parent for path in sources()}), ids=names)
def test_no_arrow_goes_up(folder: Path) -> None:
    """The modules and folders inside of a folder have an order in which each imports those before it alone."""
    prefix = "".join(f"{part}." for part in folder.relative_to(ROOT).parts)
    inside: dict[str, set[str]] = {}
    for name, reached in arrows().items():
        if name.startswith(prefix):
            own = inside.setdefault(name.removeprefix(prefix).split(".")[0], set())
            own |= {one.removeprefix(prefix).split(".")[0] for one in reached if one.startswith(prefix)}
    assert in_circles(inside) == []


def test_ir_imports_in_the_order_that_it_tells() -> None:
    """The docstring of `ir` lists its modules so that each imports only those of its own line and of lines before."""
    listed = [line.strip().split("  ")[0] for line in (ir.__doc__ or "").splitlines() if line.startswith("    ")]
    floors = {name.strip(): floor for floor, line in enumerate(listed) for name in line.split(",")}
    for name, reached in arrows().items():
        own = floors.get(name.split(".")[1], 0) if name.startswith("ir.") else -1
        above = [one for one in reached if one.startswith("ir.") and 0 <= own < floors.get(one.split(".")[1], 0)]
        assert not above, f"{name} imports {above}, which the docstring of `ir` lists behind it"
    assert {path.stem for path in (ROOT / "ir").iterdir()} - {"__init__", "__pycache__"} == floors.keys()


def test_package_list_is_the_disk() -> None:
    """pyproject names every folder with modules, and no other."""
    if not (CHECKOUT / "pyproject.toml").exists():
        pytest.skip("the tests run without their checkout")
    config = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = set(config["tool"]["setuptools"]["packages"])
    tracked = (p.relative_to(CHECKOUT) for p in CHECKOUT.rglob("*.py"))
    folders = {p.parent.parts for p in tracked if not NOT_SHIPPED & set(p.parts) and not p.parts[0].startswith(".")}
    assert listed == {".".join(("stridesmith", *parts)) for parts in folders}


def test_what_is_tested_is_what_was_installed() -> None:
    """Where CI says which environment it made, the package comes from there and not from the checkout."""
    expected = os.environ.get("STRIDESMITH_EXPECT")
    if not expected:
        pytest.skip("STRIDESMITH_EXPECT names no environment")
    assert ROOT.is_relative_to(Path(expected).resolve())
    assert not ROOT.is_relative_to(CHECKOUT) or Path(expected).resolve().is_relative_to(CHECKOUT)


def test_the_quick_tier_has_every_package() -> None:
    """`quick.txt` names tests that exist, and one at least for each folder of tests that mirrors a package."""
    if not (CHECKOUT / "tests").exists():
        pytest.skip("the tests run without their checkout")
    tests = CHECKOUT / "tests"
    lines = [line for line in (tests / "quick.txt").read_text().splitlines() if line and not line.startswith("#")]
    for line in lines:
        file, _, name = line.partition("::")
        assert f"def {name}" in (tests / file).read_text(encoding="utf-8"), f"tests/quick.txt: there is no {line}"
    mirrored = {path.parent.relative_to(ROOT).as_posix() for path in sources()} - {"."}
    folders = {path.parent.relative_to(tests).as_posix() for path in tests.rglob("test_*.py")}
    assert mirrored & folders <= {str(Path(line.partition("::")[0]).parent) for line in lines}


def test_every_package_is_a_package() -> None:
    """Each folder of modules has an ``__init__.py``, so that no namespace package hides a missing file."""
    assert all((p.parent / "__init__.py").exists() for p in sources())


def test_data_files_are_shipped() -> None:
    """The installed package has its type marker and its TOML files."""
    assert (ROOT / "py.typed").exists()
    assert len(list((ROOT / "configs").rglob("*.toml"))) >= 10


def test_import_loads_nothing_heavy() -> None:
    """``import stridesmith`` and the command's help load no outside library that they do not need."""
    code = (
        "import sys, stridesmith; print([m for m in sys.argv[1:] if m in sys.modules]);"
        "import stridesmith.cli; print([m for m in sys.argv[1:] if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code, *HEAVY], capture_output=True, text=True, check=True, timeout=60)
    first, second = map(ast.literal_eval, run.stdout.splitlines())
    assert first == []
    assert second == ["click"]


def test_processes_that_only_hand_jobs_on_load_nothing_heavy() -> None:
    """Ray's actors, and a worker before its first job, start without NumPy, isl and pydantic: a run waits for them."""
    code = (
        "import sys, stridesmith.worker, stridesmith.search.workers.actors;"
        "print([m for m in sys.argv[1:] if m in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, *HEAVY, "numpy"], capture_output=True, text=True, check=True, timeout=60
    )
    assert ast.literal_eval(run.stdout) == []


def test_public_names_exist() -> None:
    """Everything in ``__all__`` can be imported."""
    for name in stridesmith.__all__:
        assert getattr(stridesmith, name) is not None


@pytest.mark.parametrize("path", sources(), ids=names)
def test_modules_are_described_and_of_readable_size(path: Path) -> None:
    """Each module says what it is for, and none has grown into the file that everything passes through."""
    text = path.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(text)), f"{names(path)} has no docstring"
    assert text.count("\n") <= 600, f"{names(path)} has {text.count(chr(10))} lines"


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function of a module, methods and nested ones included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node


def test_functions_fit_a_screen() -> None:
    """Nine functions in ten are at most 30 lines long, and none is longer than 90."""
    lengths = {}
    for path in sources():
        for node in functions(path):
            lengths[f"{names(path)}:{node.name}"] = (node.end_lineno or 0) - node.lineno + 1
    ordered = sorted(lengths.values())
    assert ordered[len(ordered) * 9 // 10] <= 30
    longest = max(lengths, key=lambda name: lengths[name])
    assert lengths[longest] <= 90, f"{longest} has {lengths[longest]} lines"


def test_steps_that_are_used_once_stand_where_they_are_used() -> None:
    """Few private functions of at most six lines are called once and named nowhere else: those with telling names."""
    once = []
    for path in sources():
        text = path.read_text(encoding="utf-8")
        words, calls = Counter(re.findall(r"\b_\w+", text)), Counter(re.findall(r"\b(_\w+)\(", text))
        for node in functions(path):
            is_private = node.name.startswith("_") and not node.name.startswith("__")
            if is_private and (node.end_lineno or 0) - node.lineno < 6 and words[node.name] == calls[node.name] == 2:
                once.append(f"{names(path)}:{node.name}")
    assert len(once) <= MOST_ONCE, f"{len(once)} are called once; write the newest where they are used"


def test_functions_take_few_parameters() -> None:
    """At most six, but for those in `MANY`: what belongs together is an object."""
    many = set()
    for path in sources():
        for node in functions(path):
            own = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            if len(own) - (own[:1] in (["self"], ["cls"])) > 6:
                many.add(f"{names(path)}:{node.name}")
    assert many <= MANY


def test_things_are_called_by_the_names_of_the_field() -> None:
    """No module and no page has a metaphor in the place of a name."""
    pages = [*(CHECKOUT / "docs").rglob("*.md"), CHECKOUT / "README.md", CHECKOUT / "CONTRIBUTING.md"]
    found = []
    for path in [*sources(), *(page for page in pages if page.exists())]:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if METAPHORS.search(line.replace("in the face of uncertainty", "")):
                found.append(f"{path.name}:{number}: {line.strip()}")
    assert found == []


def test_no_merge_is_half_done() -> None:
    """No module and no page has the marks that a merge leaves where two changes meet."""
    pages = [*(CHECKOUT / "docs").rglob("*.md"), *CHECKOUT.glob("*.md")]
    marks = ("<<<<<<< ", ">>>>>>> ")
    assert not [p.name for p in pages for line in p.read_text(encoding="utf-8").splitlines() if line.startswith(marks)]
