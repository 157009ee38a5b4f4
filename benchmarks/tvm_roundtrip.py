"""What apache-tvm prints of its own programs, read and printed here: does apache-tvm find it structurally equal?

``python benchmarks/tvm_roundtrip.py --python tvm-venv/bin/python tvm/tests/python/s_tir`` takes an environment with
apache-tvm and files or folders of its tests.  Every function under ``@T.prim_func`` and every module is built there
alone, with the imports and constants of its file; those that build are printed, read here (plain integers are int32
there), printed back, and compared there.  It tells how many of each, and the first differences with ``--show``.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import stridesmith as ss

PRINT = """
import json, sys
import tvm
from tvm.script import ir as I, tirx as T
found = {}
for key, name, path in json.load(open(sys.argv[1])):
    place = {"__name__": "program", "__file__": path}
    try:
        exec(compile(open(path).read(), path, "exec"), place)
        built = place[name]
        functions = [built] if isinstance(built, tvm.tirx.PrimFunc) else list(built.functions.values())
        for number, function in enumerate(functions):
            if isinstance(function, tvm.tirx.PrimFunc):
                found[f"{key}:{number}"] = function.script()
    except Exception:
        pass
json.dump(found, open(sys.argv[2], "w"))
"""
COMPARE = """
import json, sys
import tvm
from tvm_ffi import structural_equal
found = {}
for key, (given, back) in json.load(open(sys.argv[1])).items():
    try:
        one = tvm.script.from_source(given)
    except Exception:
        continue
    try:
        found[key] = "equal" if structural_equal(one, tvm.script.from_source(back)) else "different"
    except Exception:
        found[key] = "not parsed"
json.dump(found, open(sys.argv[2], "w"))
"""


def definitions(body: Sequence[ast.stmt]) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    """The functions and modules of the script in a file, wherever they stand."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            marks = " ".join(ast.unparse(d) for d in node.decorator_list)
            if "prim_func" in marks or "ir_module" in marks:
                yield node
            else:
                yield from definitions(node.body)
        elif isinstance(node, (ast.With, ast.If)):
            yield from definitions(node.body)


def programs(path: Path, folder: Path) -> list[tuple[str, str, str]]:
    """Each program of a file in a file of its own: a key, its name, and where it is."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    head = [ast.unparse(n) for n in tree.body if isinstance(n, (ast.Import, ast.ImportFrom, ast.Assign))]
    found = []
    for node in definitions(tree.body):
        target = folder / f"{path.stem}_{node.lineno}.py"
        target.write_text("\n".join([*head, ast.unparse(node), ""]), encoding="utf-8")
        found.append((f"{path.stem}:{node.name}:{node.lineno}", node.name, str(target)))
    return found


def there(python: str, text: str, given: object, folder: Path) -> dict[str, str]:
    """What a script makes of JSON in the environment of apache-tvm."""
    source, result = folder / "given.json", folder / "result.json"
    source.write_text(json.dumps(given), encoding="utf-8")
    subprocess.run([python, "-c", text, str(source), str(result)], check=True, stderr=subprocess.DEVNULL)
    found: dict[str, str] = json.loads(result.read_text(encoding="utf-8"))
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--python", required=True, help="of an environment with apache-tvm")
    options.add_argument("--show", type=int, default=0, help="how many programs to name that are not equal")
    options.add_argument("tests", type=Path, nargs="+")
    chosen = options.parse_args()
    files = sorted(f for t in chosen.tests for f in (t.rglob("*.py") if t.is_dir() else (t,)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        printed = there(chosen.python, PRINT, [p for f in files for p in programs(f, folder)], folder)
        back: dict[str, tuple[str, str]] = {}
        for key, text in printed.items():
            try:
                program = ss.parse(text, integers="int32")
                ss.verify(program)
            except (ss.ScriptError, ss.VerifyError):
                continue
            back[key] = text, program.script("tvm")
        found = there(chosen.python, COMPARE, back, folder)
    counts = Counter(found.values())
    print(f"{len(printed)} programs printed, {len(back)} read here, {len(found)} read by apache-tvm itself: "
          f"{counts['equal']} equal, {counts['different']} different, {counts['not parsed']} not parsed")  # fmt: skip
    for key in [k for k, what in found.items() if what != "equal"][: chosen.show]:
        print(key, found[key])


if __name__ == "__main__":
    main()
