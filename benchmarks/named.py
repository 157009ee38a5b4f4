"""Operators that somebody names, against PyTorch, ONNX Runtime and OpenBLAS: one, or all of a list.

    python benchmarks/named.py 'matmul(m=128,n=768,k=3072,transpose_b=1)' --constant b --seconds 20
    python benchmarks/named.py 'cumulative_sum(rows=128,cols=4096,axis=1)' 'softmax(rows=49,cols=768)'
    python benchmarks/named.py --list benchmarks/named.toml --only grouped_nchw_7x7

An operator is a workload (`stridesmith workloads`) or one of `league_programs.py`, written as `league.py`
prints it; a shape reads ``8x197x768``, several of them ``1x64x56x56+64x1x1``.  `--constant` says which inputs are
weights, by default those that the library calls so.  A list is a TOML file with a table for each operator,

    [[matmul]]
    name = "ffn"
    m = 128
    ...
    constant = ["b"]

and without operator and list it is `named.toml` beside this file.  Each operator is tuned from an empty database and
raced as in `league.py`, whose settings these are; rows append to ``FOLDER/named.jsonl``, and those that are there with
the same settings are skipped.  ``--again`` races without tuning what the folder has.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from league import Row, asked, has_failed, is_due, measured
from league_draw import Operator
from racing import add_race_options, geometric_mean, line_of, read

LIST = Path(__file__).resolve().parent / "named.toml"
SUITE = "named"
SHAPES, LISTS_OF_SHAPES = ("shape", "axes"), ("shapes",)
"""Parameters that are tuples, and tuples of tuples, however short."""


@dataclass(frozen=True)
class Named:
    """An operator by its name."""

    name: str
    operator: Operator


def operator_of(kind: str, params: Mapping[str, Any], constants: Sequence[str] | None) -> Operator:
    """The operator; without `constants` the weights are those that the library calls so.  Raises ValueError."""
    from stridesmith.errors import StridesmithError

    plain = Operator(SUITE, kind, dict(params))
    try:
        weights = plain.work.constants if constants is None else constants
    except (StridesmithError, TypeError) as error:
        raise ValueError(f"{plain.label}: {error}") from None
    return Operator(SUITE, kind, dict(params), tuple(weights))


def parsed(text: str, constants: Sequence[str] | None) -> Named:
    """``kind(name=value,...)``, as a league prints it.  Raises ValueError."""
    match = re.fullmatch(r"\s*(\w+)\s*\((.*)\)\s*", text)
    items = [item.partition("=") for item in match[2].split(",") if item.strip()] if match else []
    if match is None or not all(equals and name.strip() and word.strip() for name, equals, word in items):
        raise ValueError(f"an operator reads `kind(name=value,...)`, as in `softmax(rows=49,cols=768)`, not {text!r}")
    params = {name.strip(): value_of(name.strip(), word.strip()) for name, _, word in items}
    return Named(re.sub(r"[^\w=.+-]+", "_", text).strip("_"), operator_of(match[1], params, constants))


def value_of(name: str, word: str) -> Any:
    """A number, a word, a shape, or several shapes."""
    if not re.fullmatch(r"\d+([x+]\d+)*", word):
        return word
    shapes = tuple(tuple(map(int, shape.split("x"))) for shape in word.split("+"))
    if name in LISTS_OF_SHAPES or "+" in word:
        return shapes
    return shapes[0] if name in SHAPES or "x" in word else int(word)


def listed(path: Path) -> Iterator[Named]:
    """The operators of a list.  Raises ValueError."""
    for kind, tables in tomllib.loads(path.read_text(encoding="utf-8")).items():
        for table in tables:
            params = {name: tuple_of(value) for name, value in table.items() if name not in ("name", "constant")}
            if not isinstance(table.get("name"), str):
                raise ValueError(f"{path}: an entry of `{kind}` has no name: {params}")
            yield Named(table["name"], operator_of(kind, params, table.get("constant")))


def tuple_of(value: Any) -> Any:
    return tuple(map(tuple_of, value)) if isinstance(value, list) else value


def rows(entries: Sequence[Named], arguments: argparse.Namespace, newest: dict[str, Row], isa: str) -> Iterator[Row]:
    """The rows that are still to be measured, or measured again, each when it is."""
    for entry in entries:
        before = newest.get(f"{SUITE}/{entry.name}/-/{arguments.threads}")
        if is_due(before, arguments, isa):
            row = measured(entry.operator, SUITE, entry.name, before, arguments)
            yield row | {"name": entry.name, "isa": isa, "asked": asked(arguments)}


def table(results: Sequence[Row]) -> str:
    """The rows as Markdown."""
    lines = ["| name | operator | us | GFLOP/s | best peer | its (us) | ratio | trials |",
             "|---|---|---:|---:|---|---:|---:|---:|"]  # fmt: skip
    for r in results:
        its = r["times"].get(r["best_peer"], [math.nan])[0]
        ratio = f"failed: {r['problem']}" if has_failed(r) else f"{r['ratio']:.2f}"
        lines.append(
            f"| {r['name']} | {r['operator']} | {r['ours_us']:.1f} | {r['gflops']:.1f} | {r['best_peer'] or '-'} "
            f"| {its:.1f} | {ratio} | {r['tune'].get('trials', 0)} |"
        )
    good = [r["ratio"] for r in results if not has_failed(r) and r["ratio"] == r["ratio"]]
    if len(results) > 1 and good:
        lines.append(
            f"\n{len(results)} operators: geometric mean {geometric_mean(good):.2f} of {len(good)}, least "
            f"{min(good):.2f}, {sum(map(has_failed, results))} failed"
        )
    return "\n".join(lines)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operator", nargs="*", help="such as 'softmax(rows=49,cols=768)'")
    parser.add_argument("--list", type=Path, help=f"a TOML file of operators; {LIST.name} where none is named")
    parser.add_argument("--only", type=lambda text: text.split(","), help="names of the list")
    parser.add_argument("--constant", type=lambda text: text.split(","), help="inputs that are weights, such as b,bias")
    parser.add_argument("--seconds", type=float, default=20, help="of tuning for an operator, from process start")
    parser.add_argument("--threads", type=int, default=0, help="0 for all")
    add_race_options(parser)
    parser.add_argument("--again", action="store_true", help="race again, without tuning, what the folder has")
    parser.add_argument("--out", type=Path, default=Path("named"))
    return parser.parse_args()


def chosen(arguments: argparse.Namespace) -> list[Named]:
    """The operators that the options name.  Raises ValueError."""
    found = [parsed(text, arguments.constant) for text in arguments.operator]
    if arguments.list or not found:
        found += listed(arguments.list or LIST)
    names = [entry.name for entry in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"several operators have the name {', '.join(twice)}")
    if unknown := sorted(set(arguments.only or ()) - set(names)):
        raise ValueError(f"there is no {', '.join(unknown)}; there are {', '.join(names)}")
    return [entry for entry in found if arguments.only is None or entry.name in arguments.only]


def main() -> None:
    from stridesmith.backends.host import host_cpu

    arguments = options()
    host = host_cpu()
    arguments.threads = arguments.threads or host.threads
    try:
        entries = chosen(arguments)
    except ValueError as error:
        raise SystemExit(f"named.py: {error}") from None
    print(f"{host.name}, {host.isa}, threads: {arguments.threads}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    log = arguments.out / "named.jsonl"
    newest = {line["key"]: line for line in read(log) if line["isa"] == host.isa}
    for row in rows(entries, arguments, newest, host.isa):
        newest[row["key"]] = row
        with log.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(line_of(row), flush=True)
    keys = [f"{SUITE}/{entry.name}/-/{arguments.threads}" for entry in entries]
    print(table([newest[key] for key in keys if key in newest]))


if __name__ == "__main__":
    main()
