"""MetaSchedule, TVM's tuner: our workloads as its TE programs, searches that end on a clock, and what they found.

    python benchmarks/peer_metaschedule.py tune|check JOB.json

runs in an environment that has apache-tvm (`metaschedule.py` prepares one) and needs nothing of stridesmith.  ``tune``
searches with TVM's own rules, cost model and measurements until the job's ``seconds`` are over, counted from when it
was ``started``, and tells what became of the candidates; ``check`` runs the fastest of what a search has recorded, each
against the expected result, which MetaSchedule itself never does.  `metaschedule_forms` builds the fastest record for a
race.

What is constant may be laid out freely by MetaSchedule (``layout_free_buffers``), as it does with the weights of
models: the copy into the new layout is taken out of the kernel that is timed, and made once before.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from peer_forms import Forms, Job, arrays

WRONG = 2e-3
"""How far an element may be from the expected one, as a share of the largest."""
UNPACKED = "meta_schedule.layout_rewrite_preproc"
"""What MetaSchedule calls a block that copies a constant into another layout."""
LEAST_SECONDS = 2.0
"""What is kept back for the end of a search."""


# ------------------------------------------------------------------------------------------ programs


def program(job: Job) -> Any:
    """The TensorIR function of a workload, its parameters in the order of the job's buffers, the result last."""
    from tvm import te

    shapes = {name: tuple(shape) for name, shape in job["buffers"].items()}
    *names, result = shapes
    given = {name: te.placeholder(shapes[name], "float32", name=name) for name in names}
    made = PROGRAMS[job["workload"]](job["params"], *given.values())
    assert tuple(int(extent) for extent in made.shape) == shapes[result], (made.shape, shapes[result])
    function = te.create_prim_func([*given.values(), made]).with_attr("global_symbol", "main")
    free = [place for place, name in enumerate(names) if name in job["constants"]]
    return function.with_attr("layout_free_buffers", free) if free else function


def _matmul(p: dict[str, Any], a: Any, b: Any) -> Any:
    from tvm import te

    k = te.reduce_axis((0, p["k"]), name="k")
    return te.compute((p["m"], p["n"]), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")


def _batch_matmul(p: dict[str, Any], a: Any, b: Any) -> Any:
    from tvm import te

    k = te.reduce_axis((0, p["k"]), name="k")
    return te.compute((p["b"], p["m"], p["n"]), lambda s, i, j: te.sum(a[s, i, k] * b[s, k, j], axis=k), name="c")


def _conv2d(p: dict[str, Any], x: Any, w: Any) -> Any:
    """A convolution of either layout, the loops in the order of MetaSchedule's own programs (`te_workload.py`)."""
    from tvm import te, topi

    step, pad, last = p["stride"], p["pad"], p["layout"] == "nhwc"
    oh, ow = ((p[e] + 2 * pad - p[k]) // step + 1 for e, k in (("h", "kh"), ("w", "kw")))
    padded = topi.nn.pad(x, [0, pad, pad, 0] if last else [0, 0, pad, pad]) if pad else x
    c, h, v = (te.reduce_axis((0, p[e]), name=f"r{e}") for e in ("ci", "kh", "kw"))
    if last:
        return te.compute((p["n"], oh, ow, p["co"]), lambda n, i, j, o: te.sum(
            padded[n, i * step + h, j * step + v, c] * w[h, v, c, o], axis=[h, v, c]), name="y")  # fmt: skip
    return te.compute((p["n"], p["co"], oh, ow), lambda n, o, i, j: te.sum(
        padded[n, c, i * step + h, j * step + v] * w[o, c, h, v], axis=[c, h, v]), name="y")  # fmt: skip


def _depthwise(p: dict[str, Any], x: Any, w: Any) -> Any:
    from tvm import te, topi

    step, pad, last = p["stride"], p["pad"], p["layout"] == "nhwc"
    oh, ow = ((p[e] + 2 * pad - p["k"]) // step + 1 for e in "hw")
    padded = topi.nn.pad(x, [0, pad, pad, 0] if last else [0, 0, pad, pad]) if pad else x
    h, v = (te.reduce_axis((0, p["k"]), name=f"r{e}") for e in "hw")
    if last:
        return te.compute((p["n"], oh, ow, p["c"]), lambda n, i, j, c: te.sum(
            padded[n, i * step + h, j * step + v, c] * w[h, v, c], axis=[h, v]), name="y")  # fmt: skip
    return te.compute((p["n"], p["c"], oh, ow), lambda n, c, i, j: te.sum(
        padded[n, c, i * step + h, j * step + v] * w[c, h, v], axis=[h, v]), name="y")  # fmt: skip


def _max_pool2d(p: dict[str, Any], x: Any) -> Any:
    from tvm import topi

    pairs = ([p["k"]] * 2, [p["stride"]] * 2, [1, 1], [p["pad"]] * 4)
    return topi.nn.pool2d(x, *pairs, "max", layout=p["layout"].upper(), count_include_pad=False)


def _row_sum(p: dict[str, Any], x: Any) -> Any:
    from tvm import topi

    return topi.sum(x, axis=1)


def _softmax(p: dict[str, Any], x: Any) -> Any:
    from tvm import topi

    return topi.nn.softmax(x, axis=1)


def _layernorm(p: dict[str, Any], x: Any, gamma: Any, beta: Any) -> Any:
    from tvm import topi

    return topi.nn.layer_norm(x, gamma, beta, axis=[1], epsilon=1e-5)


PROGRAMS: dict[str, Callable[..., Any]] = {
    "matmul": _matmul, "batch_matmul": _batch_matmul, "conv2d": _conv2d, "depthwise_conv2d": _depthwise,
    "max_pool2d": _max_pool2d, "row_sum": _row_sum, "softmax": _softmax, "layernorm": _layernorm,
}  # fmt: skip


# ------------------------------------------------------------------------------------------ searches


def target(threads: int) -> Any:
    """This processor, as TVM's LLVM calls it."""
    import tvm
    from tvm.target import codegen

    return tvm.target.Target({"kind": "llvm", "mcpu": codegen.llvm_get_system_cpu(), "num-cores": threads})


def without_intrinsics() -> None:
    """Let TVM's tuner not import the instructions of all kinds of hardware, of which float32 on a CPU uses none.

    That import takes ten seconds in each process of the wheels of 0.27, before the first candidate.
    """
    from types import ModuleType

    import tvm.s_tir

    name = "tvm.s_tir.tensor_intrin"
    sys.modules[name] = tvm.s_tir.tensor_intrin = ModuleType(name)


def build(module: Any, target: Any, _params: Any) -> Any:
    """What TVM's default build does, without that import; the copies of constants are left out of the kernel."""
    from tvm.driver import build
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    return build(RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module), target=target)


def tune(job: Job) -> dict[str, Any]:
    """A search of the job's seconds; what became of its candidates.

    Candidates are built and measured by TVM's local builder and runner, one portion after the other until the time
    is over: what is left of a round is then neither built nor measured, and is no failure.
    """
    from tvm.ir.utils import derived_object
    from tvm.s_tir import meta_schedule as ms

    end = job["started"] + job["seconds"] - LEAST_SECONDS
    counts: Counter[str] = Counter()
    problems: Counter[str] = Counter()
    over = "the time was over"

    without_intrinsics()
    builder = ms.builder.LocalBuilder(max_workers=job["threads"], f_build=build)
    runner = ms.runner.LocalRunner()
    rules = dict.fromkeys(("sch_rules", "postprocs", "mutator_probs"), "llvm")

    @derived_object
    class Builder(ms.builder.PyBuilder):
        def build(self, build_inputs: list[Any]) -> list[Any]:
            counts["rounds"] += 1
            begun = time.time()
            results: list[Any] = []
            portion = 8 * job["threads"]
            for place in range(0, len(build_inputs), portion):
                some = build_inputs[place : place + portion]
                # Half of what is left of the time is for measurements.
                if time.time() - begun > (end - begun) / 2:
                    results.extend(ms.builder.BuilderResult(None, over) for _ in some)
                else:
                    results.extend(builder.build(some))
            return results

    @derived_object
    class Runner(ms.runner.PyRunner):
        def run(self, runner_inputs: list[Any]) -> list[Any]:
            futures: list[Any] = []
            for one in runner_inputs:
                if time.time() > end:
                    futures.append(ms.runner.local_runner.LocalRunnerFuture(None, over))
                else:
                    futures.extend(runner.run([one]))
            return futures

    @derived_object
    class Clock(ms.measure_callback.PyMeasureCallback):
        def apply(self, task_scheduler: Any, task_id: int, measure_candidates: Any, builder_results: Any,
                  runner_results: Any) -> None:  # fmt: skip
            for built, ran in zip(builder_results, runner_results, strict=True):
                problem = built.error_msg or (ran.error_msg if ran is not None else None)
                if problem is None:
                    counts["measured"] += 1
                elif problem == over:
                    counts["left"] += 1
                else:
                    counts["failed"] += 1
                    problems[last_line(problem)] += 1
            if time.time() > end:
                counts["over"] = 1
                raise RuntimeError(over)

    ended = "the clock"
    begun = time.time()
    try:
        ms.tir_integration.tune_tir(
            program(job), target(job["threads"]), job["folder"], max_trials_global=100_000,
            num_trials_per_iter=job["per_round"], builder=Builder(), runner=Runner(),
            measure_callbacks=[
                ms.measure_callback.AddToDatabase(), ms.measure_callback.RemoveBuildArtifact(),
                ms.measure_callback.UpdateCostModel(), Clock(),
            ],
            space=ms.space_generator.PostOrderApply(**rules),
            strategy=ms.search_strategy.EvolutionarySearch(**job["strategy"]),
            num_tuning_cores=job["threads"], seed=job["seed"],
        )  # fmt: skip
        ended = "its space was searched"
    except Exception as error:  # also that of the clock, which TVM hands on as one of its own
        if not counts["over"]:
            ended = f"{type(error).__name__}: {last_line(error)}"
    found = fastest(job, 1)
    return {
        **{name: counts[name] for name in ("rounds", "measured", "failed", "left")},
        "problems": problems.most_common(3),
        "ended": ended, "best_us": found[0][0] * 1e6 if found else None, "import_seconds": begun - job["started"],
        "seconds": time.time() - job["started"],
    }  # fmt: skip


def places(db: str) -> dict[str, str]:
    """Where a search of a race has its folder and the expected result, beside the database of ours."""
    folder = Path(db).with_suffix(".metaschedule")
    return {"folder": str(folder), "expected": str(folder / "expected.npy")}


def last_line(problem: object) -> str:
    """What a message of many lines ends with."""
    return (str(problem).strip().splitlines() or [""])[-1][:200]


def fastest(job: Job, count: int) -> list[tuple[float, Any]]:
    """The fastest records of a search: seconds, and the scheduled module."""
    from tvm.s_tir import Schedule
    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir.meta_schedule.tune_context import _normalize_mod

    folder = Path(job["folder"])
    if not (folder / "database_workload.json").exists():
        return []
    database = ms.database.JSONDatabase(work_dir=str(folder))
    module = _normalize_mod(program(job))
    if not database.has_workload(module):
        return []
    found = []
    for record in database.get_top_k(database.commit_workload(module), count):
        schedule = Schedule(module)
        record.trace.apply_to_schedule(schedule, remove_postproc=False)
        found.append((min(float(second) for second in record.run_secs), schedule.mod))
    return found


# ------------------------------------------------------------------------------------------ kernels


class Built:
    """A scheduled module as a kernel: constants in the layout that it chose, arguments bound once."""

    def __init__(self, module: Any, job: Job) -> None:
        import tvm
        from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

        self.names = list(job["buffers"])
        data = arrays(job)
        copies = packings(module)
        place = target(job["threads"])
        kernel = tvm.compile(RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module), target=place)
        self.inputs = {name: tvm.runtime.tensor(data[name]) for name in self.names}
        for name, copy in copies.items():
            packed = tvm.runtime.empty(tuple(int(e) for e in copy.params[1].shape), "float32")
            tvm.compile(copy, target=place)["main"](self.inputs[name], packed)
            self.inputs[name] = packed
        self.run = kernel["main"]
        self.arguments = tuple(self.inputs.values())

    def __call__(self) -> Any:
        self.run(*self.arguments)
        return self.arguments[-1]


def packings(module: Any) -> dict[str, Any]:
    """For each constant in another layout the function that copies it, by the name of its parameter."""
    from tvm import tirx
    from tvm.s_tir import Schedule

    schedule = Schedule(module)
    found: dict[str, Any] = {}
    for place in schedule.get_child_blocks(schedule.get_sblock("root")):
        block = schedule.get(place)
        if UNPACKED in block.annotations:
            source, packed = block.reads[0].source, block.writes[0].source
            nest = schedule.get(schedule.get_loops(place)[0])
            copy = tirx.PrimFunc([source, packed], nest)
            found[str(source.name)] = copy.with_attr("global_symbol", "main").with_attr("s_tir", True)
    return found


def error_of(result: np.ndarray, job: Job) -> float:
    """The largest difference from the expected result, as a share of its largest element; infinite for a NaN."""
    expected = np.load(job["expected"])
    if not np.isfinite(result).all():
        return float("inf")
    return float(np.abs(result.astype(np.float64) - expected).max() / np.abs(expected).max())


def check(job: Job) -> dict[str, Any]:
    """The fastest records of a search, each run once and compared."""
    checked, wrong, broken = 0, 0, []
    for _, module in fastest(job, job["count"]):
        checked += 1
        try:
            error = error_of(Built(module, job)().numpy(), job)
            wrong += error > WRONG
        except Exception as problem:
            broken.append(f"{type(problem).__name__}: {last_line(problem)}")
    return {"checked": checked, "wrong": wrong, "broken": broken}


def metaschedule_forms(job: Job, threads: int) -> Forms:
    """The fastest record of a search, as long as it computes what was expected."""
    job = job | places(job["db"]) | {"threads": threads}
    forms = Forms()
    found = fastest(job, 1)
    if not found:
        forms.missing["kernel"] = "the search has recorded nothing"
        return forms
    built = Built(found[0][1], job)
    error = error_of(built().numpy(), job)
    if error > WRONG:
        forms.missing["kernel"] = f"wrong: its error is {error:.3g}"
        return forms
    forms.calls["kernel"] = built
    return forms


def main(task: str, path: str) -> None:
    job = json.loads(Path(path).read_text())
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what TVM prints must not get into the answer
    answers.write(json.dumps({"tune": tune, "check": check}[task](job)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
