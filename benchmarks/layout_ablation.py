"""What agreement on layouts and padding is worth: a network tuned under several rules, with equal seconds for each.

    python benchmarks/models.py --models resnet50,mobilenet_v2 --seconds 600 --ablation agreed,alone,nhwc --out FOLDER
    python benchmarks/layout_ablation.py --file net.onnx --input x=1x3x224x224 --seconds 600 --only agreed,alone

Each rule tunes in a process of its own, from an empty database, or with ``--known FOLDER`` from a copy of
``FOLDER/NETWORK.db``: what `models.py` found in it under free layouts serves all rules, and the seconds are for what
each needs beside it.  Then all of them take turns in one process; a ratio is the median over the turns of what a rule
took over what `agreed` took in the same turn.

    agreed    each tensor as the operators that share it agree, with halos where they pay
    alone     each group of operators by itself: every tensor as ONNX has it
    apart     each operator of the file by itself, nothing fused: every tensor as ONNX has it
    nchw      as ONNX has it, or with a halo
    nhwc      channels last wherever that can be, or with a halo
    block8    channels in blocks of 8 wherever that can be, or with a halo; block16 with 16
    again     agreed, but without halos: each reader pads again what it reads
    branched  agreed, without halos: each reader tests its border
    converted agreed on layouts alone: with ``--precision bfloat16`` tensors stay float32, and each operator converts
    no_dot    agreed, on a processor that is taken for one without dot products of bfloat16 and of bytes by fours

Results go to ``FOLDER/layouts.jsonl``, a line for each network.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import stridesmith as ss
from stridesmith.backends.devices import discover
from stridesmith.commands.options import inputs_of
from stridesmith.errors import ProgramError, UsageError
from stridesmith.ir.layout.layout import Layout
from stridesmith.ir.target import Target
from stridesmith.models.agreement import Prefers
from stridesmith.models.alternatives import alternatives
from stridesmith.models.api import compiled, network_of
from stridesmith.models.borders import borders
from stridesmith.models.costs import Alternatives, Form
from stridesmith.models.fusion import fused
from stridesmith.models.network import Network, Operator
from stridesmith.models.onnx import read
from stridesmith.models.precision import WIDE, in_precision
from stridesmith.models.run.report import copied_share
from stridesmith.models.tuning import tune_network
from stridesmith.models.weights import without_subnormals
from stridesmith.models.winograd import with_winograd
from stridesmith.search.workers import host_lock

RULES = ("agreed", "alone", "apart", "nchw", "nhwc", "block8", "block16", "again", "branched", "converted", "no_dot")
DOTS = ("avx512vnni", "avxvnni", "avxvnniint8", "avx512bf16", "dotprod", "i8mm", "bf16")
"""Features of processors that have dot products of four bytes or of two bfloat16."""


@dataclass(frozen=True)
class Case:
    """A network, the processor it is for, the layouts that its tensors may have, and which of them a rule prefers."""

    network: Network
    target: Target
    layouts: Alternatives
    prefers: Prefers | None = None


def case_of(rule: str, source: Network, target: Target, precision: str = WIDE) -> Case:
    """A network, as it is read from a file, under a rule, in a precision.

    Raises UsageError for `apart`, whose operators have no other precision, in any but float32.
    """
    if rule == "no_dot":
        left = [name for name in target.features.split(",") if name.lstrip("+") not in DOTS]
        target = replace(target, features=",".join(left))
    if precision != WIDE:
        if rule == "apart":
            raise UsageError(f"the rule `apart` is one of float32, but got the precision {precision!r}")
        whole = without_subnormals(fused(source, target))
        network = in_precision(whole, precision, edges=rule != "converted")
    elif rule == "apart":
        network = without_subnormals(with_winograd(source, cache=target.l3_bytes))
    else:
        network = network_of(source, target)
    found = alternatives(network, target)
    if rule in ("agreed", "converted", "no_dot"):
        return Case(network, target, found)
    if rule in ("alone", "apart"):
        return Case(network, target, {name: some[:1] for name, some in found.items()})
    if rule in ("again", "branched"):
        layouts = {name: tuple(k for k in some if not k.has_halo) for name, some in found.items()}
        return Case(with_tests(network) if rule == "branched" else network, target, layouts)
    forms = {name: _form(rule, network.tensors[name].shape) for name in found}
    layouts = {name: some if len(some) < 2 else _under(forms[name], some) for name, some in found.items()}
    prefers = {
        name: [k for k, layout in enumerate(some) if layout.dims == forms[name]] or [0]
        for name, some in layouts.items()
        if len(some) > 1
    }
    return Case(network, target, layouts, prefers)


def _form(rule: str, shape: tuple[int, ...]) -> Form:
    """The form of an image under a rule, unless it has less channels than a block; all else stays as it is."""
    if len(shape) != 4 or rule == "nchw":
        return Layout.plain(shape).dims
    if rule == "nhwc":
        return Layout.ordered(shape, (0, 2, 3, 1)).dims
    size = int(rule.removeprefix("block"))
    return Layout.ordered(shape, block=(1, size)).dims if shape[1] >= size else Layout.plain(shape).dims


def _under(form: Form, some: tuple[Layout, ...]) -> tuple[Layout, ...]:
    """The layout as ONNX has it, and those of a form with the halos that there are among the alternatives."""
    plain = some[0]
    shape = plain.logical_shape
    bare = Layout.of_dims(shape, form)
    if bare.pads:
        pads = {layout.pad_value for layout in some if layout.pads and not layout.has_halo}
        bare = replace(bare, pad_value=pads.pop() if pads else 0.0)
    halos = dict.fromkeys((k.before, k.room, k.pad_value) for k in some if k.has_halo)
    found = [Layout.of_dims(shape, form, before, room, pad) for before, room, pad in halos]
    return tuple(dict.fromkeys((plain, bare, *found)))


def with_tests(network: Network) -> Network:
    """The network whose readers test their border instead of reading a padded copy."""
    nodes = []
    for node in network.nodes:
        if isinstance(node, Operator):
            schedule = ss.Schedule(node.func)
            for block in borders(node.func):
                after = schedule.copy()
                try:
                    after.compute_inline(block.name)
                except ProgramError:
                    continue
                schedule = after
            node = replace(node, func=schedule.func)
        nodes.append(node)
    return network.with_nodes(tuple(nodes))


def tune(rule: str, path: Path, arguments: argparse.Namespace) -> None:
    """Tune under a rule, in this process."""
    target = discover("cpu", arguments.threads or None)
    case = case_of(rule, read(path, inputs_of(arguments.input)), target, arguments.precision or WIDE)
    db = arguments.out / f"{path.stem}.{rule}.db"
    for file in (db, db.with_name(f"{db.name}-wal"), db.with_name(f"{db.name}-shm")):
        file.unlink(missing_ok=True)
    if arguments.known:
        shutil.copy(arguments.known / f"{path.stem}.db", db)
    found = tune_network(
        case.network, case.target, arguments.seconds, db=str(db), layouts=case.layouts, prefers=case.prefers
    )
    print(json.dumps({"trials": found.trials, "predicted_us": found.predicted_us, "wholes": found.wholes}))


def tuned(rule: str, path: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Tune under a rule, in a process of its own."""
    again = [sys.executable, __file__, "--file", str(path), "--tune", rule, "--seconds", str(arguments.seconds)]
    again += ["--out", str(arguments.out), "--threads", str(arguments.threads)]
    again += ["--known", str(arguments.known)] if arguments.known else []
    again += ["--precision", arguments.precision] if arguments.precision else []
    again += [word for shape in arguments.input for word in ("--input", shape)]
    done = subprocess.run(again, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        return {"problem": done.stderr[-500:]}
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def race(rules: list[str], path: Path, arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """What each rule takes, in turns, and the share of its time that goes to copies."""
    target = discover("cpu", arguments.threads or None)
    source = read(path, inputs_of(arguments.input))
    models = {}
    for rule in rules:
        case = case_of(rule, source, target, arguments.precision or WIDE)
        models[rule] = compiled(case.network, case.target, str(arguments.out / f"{path.stem}.{rule}.db"))
    samples: dict[str, list[float]] = {rule: [] for rule in rules}
    with host_lock.exclusive():
        for turn in range(arguments.rounds):
            for rule in [*rules[turn % len(rules) :], *rules[: turn % len(rules)]]:
                samples[rule].append(statistics.median(models[rule].measure(seconds=arguments.turn)))
        shares = {rule: copied_share(model.report()) for rule, model in models.items()}
    first = samples[rules[0]]
    return {
        rule: {
            "us": statistics.median(found) * 1e6,
            "ratio": statistics.median(mine / base for mine, base in zip(found, first, strict=True)),
            "moving": shares[rule],
            "operators": len(models[rule].network.nodes),
        }
        for rule, found in samples.items()
    }


def told(row: Mapping[str, Any]) -> str:
    """A network's results as lines."""
    known = " beside what was known" if row["known"] else ""
    lines = [f"{row['model']}, {row['seconds']:.0f} s for each rule{known}"]
    for rule, found in row["rules"].items():
        if "problem" in found:
            lines.append(f"  {rule:9} {found['problem']}")
            continue
        predicted = f"{found['predicted_us']:9.0f}" if found["predicted_us"] else "        -"
        lines.append(
            f"  {rule:9} {found['us']:9.0f} us, {found['ratio']:5.2f} of agreed; parts {predicted} us; moving alone "
            f"{found['moving']:.1%}; {found['operators']} operators, {found['trials']} trials"
        )
    return "\n".join(lines)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--file", type=Path, action="append", default=[], required=True)
    parser.add_argument("--input", action="append", default=[], help="X=1x3x320x320, for the files")
    parser.add_argument("--seconds", type=float, default=600, help="of tuning for each rule")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(RULES), help=", ".join(RULES))
    parser.add_argument("--threads", type=int, default=0, help="0 for all")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--turn", type=float, default=0.3, help="seconds of one turn")
    parser.add_argument("--again", action="store_true", help="race again what the folder has tuned")
    parser.add_argument("--precision", default="", help="bfloat16 or float16, of all rules")
    parser.add_argument("--known", type=Path, help="a folder of databases to begin with, NETWORK.db for each")
    parser.add_argument("--tune", choices=RULES, help="tune under this rule alone, and race nothing")
    parser.add_argument("--out", type=Path, default=Path("models"))
    return parser.parse_args()


def compare(path: Path, arguments: argparse.Namespace) -> None:
    """Tune a network under each rule, race what comes out, and tell it."""
    nothing = {"trials": 0, "predicted_us": None}
    rules = {rule: nothing if arguments.again else tuned(rule, path, arguments) for rule in arguments.only}
    raced = race([rule for rule, found in rules.items() if "problem" not in found], path, arguments)
    row = {
        "model": path.stem, "seconds": arguments.seconds, "known": bool(arguments.known),
        "rules": {rule: {**found, **raced.get(rule, {})} for rule, found in rules.items()},
    }  # fmt: skip
    with (arguments.out / "layouts.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(told(row), flush=True)


def main() -> None:
    arguments = options()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for path in arguments.file:
        if arguments.tune:
            tune(arguments.tune, path, arguments)
        else:
            compare(path, arguments)


if __name__ == "__main__":
    main()
