"""Whole networks against ONNX Runtime, OpenVINO and PyTorch, side by side.

    python benchmarks/models.py --seconds 600 --out FOLDER [--models resnet50,bert]
    python benchmarks/models.py --file net.onnx --input x=1x3x320x320 --seconds 600 --out FOLDER

Each network (by default all ten of `networks.py`) is tuned from an empty database by ``stridesmith --model``, in at
most ``--seconds`` from the start of its process.  Then ours and every form of every peer take turns, each library in a
process of its own, stopped (SIGSTOP) while another is timed; the ratio is the median over the rounds of what a peer
took over what ours took in the same round.  A peer that is not installed, or cannot do a network, is named with its
reason, and so is one whose result differs from ours.  With each result stands where its time goes: what ``stridesmith
show --model`` says of every operator, with its shape, GFLOP/s, GB/s and how near it is to the roof.

``--models resnet50:int8`` is a network after ONNX Runtime's quantiser (see `networks.py`), and ``--precision bfloat16``
computes all in it.  What has fewer bits is rounded elsewhere by each library: then the error of each against float32 is
told, and who has more than one and a half times the least does not race.

``--ablation agreed,alone,nhwc`` tunes and races the networks under rules for layouts instead (`layout_ablation.py`).

What is finished is in ``FOLDER/models.jsonl``, a line each, and is not done again: an interrupted run goes on with
the network that it was at.  ``--again`` races what the folder has tuned already, without tuning, and ``--table`` only
tells what the folder has.  The table is in ``FOLDER/models.md``, too.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from layout_ablation import RULES, compare
from network_race import made, rows, told
from networks import NETWORKS
from racing import PATIENCE_SECONDS, read

PEERS = ("onnxruntime", "openvino", "torch")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", default="", help=f"of {','.join(NETWORKS)}; all of them unless a file is given")
    parser.add_argument("--file", type=Path, action="append", default=[])
    parser.add_argument("--input", action="append", default=[], help="X=1x3x320x320, for the files")
    parser.add_argument("--seconds", type=float, default=600, help="of tuning for a network, from process start")
    parser.add_argument("--threads", type=int, default=0, help="0 for all")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--turn", type=float, default=0.3, help="seconds of one turn")
    parser.add_argument("--patience", type=float, default=PATIENCE_SECONDS, help="seconds to wait for an idle machine")
    parser.add_argument("--peers", type=lambda text: [n for n in text.split(",") if n], default=list(PEERS))
    parser.add_argument("--peer-python", default=sys.executable, help="the Python that has the peers")
    parser.add_argument("--precision", default="", help="bfloat16 or float16: ours in it, OpenVINO as it comes")
    parser.add_argument("--again", action="store_true", help="race again what the folder has tuned")
    parser.add_argument("--ablation", default="", help=f"race rules for layouts instead of peers, of {','.join(RULES)}")
    parser.add_argument("--known", type=Path, help="for an ablation, a folder of databases to begin with")
    parser.add_argument("--table", action="store_true", help="only tell what the folder has")
    parser.add_argument("--out", type=Path, default=Path("models"))
    return parser.parse_args()


def cases_of(arguments: argparse.Namespace) -> Iterator[tuple[Path, list[str]]]:
    """The networks that were asked for, each with the shapes of its inputs."""
    named = [name for name in arguments.models.split(",") if name] or ([] if arguments.file else list(NETWORKS))
    yield from made(named, arguments.out)
    yield from ((path, arguments.input) for path in arguments.file)


def main() -> None:
    from stridesmith.backends.host import host_cpu

    arguments = options()
    arguments.threads = arguments.threads or host_cpu().threads
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.ablation:
        only = arguments.ablation.split(",")
        for path, shapes in cases_of(arguments):
            compare(path, argparse.Namespace(**{**vars(arguments), "input": shapes, "only": only}))
        return
    log = arguments.out / "models.jsonl"
    newest = {row["model"]: row for row in read(log)}
    if not arguments.table:
        for row in rows(cases_of(arguments), arguments, newest):
            newest[row["model"]] = row
            with log.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(told([row]), flush=True)
    text = told(list(newest.values()))
    (arguments.out / "models.md").write_text(text + "\n")
    print(f"\n{text}")


if __name__ == "__main__":
    main()
