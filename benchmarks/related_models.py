"""What a database that knows one model is worth for the next one.

    python benchmarks/related_models.py --first ppocr_det --second ppocr_cls --seconds 600 --out FOLDER

Tunes the second model from an empty database, and once more from a copy of the database in which the first was tuned
before, for as long each.  Compares the seconds until the predicted time of the second model has come to 90 % of the
speed that the same run ends with: layers that both models have are known at once, and so is what the cost model has
learned.  Processes start, models are read and workers come up in these seconds.  One JSON line per pair in
``FOLDER/related.jsonl``; what a database of the folder holds already is not tuned again.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from network_race import made, run
from networks import NETWORKS

NEAR = 0.9
"""The share of the last speed that a run has to come to."""


def tuned(path: Path, shapes: list[str], db: Path, asked: argparse.Namespace) -> list[dict[str, Any]]:
    """The events of tuning a model with a database."""
    words = [word for shape in shapes for word in ("--input", shape)]
    on = ["--threads", str(asked.threads)] if asked.threads else []
    events = run(["--model", str(path), "--seconds", str(asked.seconds), "--db", str(db), *on, *words])
    if events[-1]["event"] != "model":
        raise SystemExit(f"{path.stem} cannot be tuned: {events[-1].get('message', '')}")
    return events


def curve(events: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """Seconds, and what the model is predicted to take then; from the beginning where all of its layers are known."""
    found = [
        (event.get("seconds", 0.0), event["predicted_us"])
        for event in events
        if event["event"] in ("tasks", "turn") and event["predicted_us"] is not None
    ]
    if not found:
        raise SystemExit("the run was too short for a first kernel of every task; give it more --seconds")
    return found


def seconds_to(points: list[tuple[float, float]], latency_us: float) -> float | None:
    """When a curve has come to a latency; None if it never did."""
    return next((seconds for seconds, us in points if us <= latency_us), None)


def compared(alone: list[dict[str, Any]], after: list[dict[str, Any]]) -> dict[str, Any]:
    """Both runs, with the seconds that each took to 90 % of its own last speed, and after to that of the other."""
    curves = {"alone": curve(alone), "after": curve(after)}
    last = {name: points[-1][1] for name, points in curves.items()}
    near = {name: seconds_to(points, last[name] / NEAR) for name, points in curves.items()}
    first = next(event for event in after if event["event"] == "tasks")["tasks"]
    return {
        "last_us": last, "seconds_to_near": near, "seconds_to_near_of_alone":
        seconds_to(curves["after"], last["alone"] / NEAR),
        "tasks": len(first), "known": sum(task["best_us"] is not None for task in first), "curves": curves,
    }  # fmt: skip


def told(row: dict[str, Any]) -> str:
    """A result in words."""
    alone, after = (row["seconds_to_near"][name] for name in ("alone", "after"))
    last = row["last_us"]
    other = row["seconds_to_near_of_alone"]
    return (
        f"{row['second']} after {row['first']}: {row['known']} of {row['tasks']} tasks are known; "
        f"{after:.1f} s to {NEAR:.0%} of its last speed ({last['after']:.0f} us), from an empty database {alone:.1f} s "
        f"({last['alone']:.0f} us): a share of {after / alone:.2f}; to {NEAR:.0%} of what the empty one ends with "
        f"{'never' if other is None else f'{other:.1f} s'}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--first", default="ppocr_det", choices=NETWORKS)
    parser.add_argument("--second", default="ppocr_cls", choices=NETWORKS)
    parser.add_argument("--seconds", type=float, default=600, help="of tuning for each run")
    parser.add_argument("--threads", type=int, default=0, help="0 for all")
    parser.add_argument("--out", type=Path, default=Path("related"))
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    models = dict(zip((asked.first, asked.second), made([asked.first, asked.second], asked.out), strict=True))
    known, done = asked.out / f"{asked.first}.db", asked.out / f"{asked.first}.{asked.seconds:.0f}s.done"
    if not done.exists():
        known.unlink(missing_ok=True)
        path, shapes = models[asked.first]
        tuned(path, shapes, known, asked)
        done.touch()
    dbs = [asked.out / f"{name}.db" for name in ("alone", "after")]
    for db in dbs:
        db.unlink(missing_ok=True)
    shutil.copy(known, dbs[1])
    path, shapes = models[asked.second]
    alone, after = (tuned(path, shapes, db, asked) for db in dbs)
    row = {"first": asked.first, "second": asked.second, "seconds": asked.seconds} | compared(alone, after)
    with (asked.out / "related.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(told(row))


if __name__ == "__main__":
    main()
