"""Kernels of a model are compiled once: the next process reads them, if nothing that decides their code has changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from model_networks import residual
from record_makers import make_record

from stridesmith import configs
from stridesmith.backends.devices import discover
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc
from stridesmith.models.network import Network, Operator, Tensor
from stridesmith.models.run import in_place
from stridesmith.models.run.kernels import best_record, kernels_of
from stridesmith.models.run.model import Model
from stridesmith.models.tasks import NetworkTask, tasks_of
from stridesmith.search.records.database import Database
from stridesmith.search.tasks.interface import interface_of
from stridesmith.search.tasks.task import Task
from stridesmith.search.workers import kernel_cache
from stridesmith.search.workers.protocol import Build, Built, Failed
from stridesmith.search.workers.spread import build_here
from stridesmith.space.workloads import workload

NETWORK = replace(residual(8, 5)[0], outputs=("y",))


@pytest.fixture
def tasks(tmp_path: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> tuple[NetworkTask, ...]:
    """Those of the residual block, compiled into a cache of their own."""
    monkeypatch.setattr(kernel_cache.CACHE, "name", str(tmp_path))
    found = tasks_of(NETWORK, discover("cpu", 2))
    kernels_of(found, None)
    return found


class Builder:
    """Compiles here and counts."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, wanted: Iterable[Build]) -> list[Built | Failed]:
        found = build_here(wanted)
        self.count += len(found)
        return found


def built(tasks: tuple[NetworkTask, ...]) -> int:
    builder = Builder()
    kernels_of(tasks, None, builder)
    return builder.count


def test_weights_of_either_kind_have_the_same_kernels(tasks: tuple[NetworkTask, ...], tmp_path: Path) -> None:
    """What was tuned as a part of more than the caches hold is found for the part alone, and the other way round."""
    task = next(item.task for item in tasks if "constant" in item.task.interface.values())
    other = {name: "streamed" if word == "constant" else word for name, word in task.interface.items()}
    record = make_record(script=task.script, target=task.target.to_json(), interface=other)
    with Database(tmp_path / "own.db") as database:
        assert best_record(task, database) is None
        database.put_record(record)
        assert best_record(task, database) == best_record(replace(task, interface=other), database) == record
        mine = make_record(99.0, script=task.script, target=task.target.to_json(), interface=dict(task.interface))
        database.put_record(mine)
        assert best_record(task, database) == mine


def test_a_program_that_was_only_measured_as_written_is_not_tuned(
    tasks: tuple[NetworkTask, ...], tmp_path: Path
) -> None:
    """A run that ended before its first candidate says nothing of these: the estimate decides as it does without it."""
    task = tasks[0].task
    facts = {"script": task.script, "target": task.target.to_json(), "interface": dict(task.interface)}
    with Database(tmp_path / "own.db") as database:
        written = make_record(99.0, trace=None, **facts)
        database.put_record(written)
        assert best_record(task, database) is None
        database.put_record(make_record(150.0, trace=[["split", {}]], **facts))
        assert best_record(task, database) == written


def test_the_search_for_an_estimate_begins_with_that_of_a_relative() -> None:
    """Which is asked itself; a record's kernel, and a program of another form, have none."""
    target = discover("cpu", 1)
    seen = list[Build]()

    def failing(wanted: Iterable[Build]) -> list[Built | Failed]:
        found = list(wanted)
        seen.extend(job for job in found if job.estimated is not None)
        return [build_here([replace(job, estimated=None, like=None)])[0] for job in found]

    some = [*(workload("matmul", m=m, n=8, k=8) for m in (5, 6, 7)), workload("row_sum", rows=3, cols=5)]
    asked = tuple(NetworkTask(Task(work, target, interface_of(work)), ()) for work in some)
    kernels_of(asked, None, failing)
    first = asked[0].task.script
    assert [job.like for job in seen] == [None, first, first, None]


def test_a_second_model_compiles_nothing(tasks: tuple[NetworkTask, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even what writes over its input, and computes the same."""
    monkeypatch.setattr(in_place, "LEAST_BYTES", 1)
    target = discover("cpu", 2)
    models = [Model(NETWORK, kernels_of(tasks, None), target)]
    with monkeypatch.context() as patch:
        patch.setattr(in_place, "build_here", lambda *_: pytest.fail("compiled again"))
        again = kernels_of(tasks, None, lambda jobs: pytest.fail("compiled again") if [*jobs] else [])
        models.append(Model(NETWORK, again, target))
    assert any(len(call.places) == 1 for call in models[1].plan.calls.values())  # the relu, in one buffer
    (x,) = models[0].random_inputs()
    np.testing.assert_array_equal(models[0](x), models[1](x))


def test_what_decides_the_code_decides_the_kernel(
    tasks: tuple[NetworkTask, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another number of threads, or another version of anything that makes code, is compiled anew."""
    assert built(tasks) == 0
    assert built(tasks_of(NETWORK, discover("cpu", 1))) == 3
    monkeypatch.setattr(kernel_cache, "software", lambda *_: "another version")
    assert built(tasks) == 3


def test_the_modules_that_keep_kernels_are_part_of_the_key() -> None:
    """What asks for code and keeps it under a question of its own decides it, too."""
    root = Path(configs.__file__).parents[1]
    paths = [path for path in root.rglob("*.py") if path.relative_to(root).parts[0] != "tests"]
    keeping = [path for path in paths if "kernel_cache.store(" in path.read_text()]
    assert len(keeping) > 1
    for path in keeping:
        assert any(path.is_relative_to(root / package) for package in kernel_cache.PACKAGES), path


@pytest.mark.parametrize(("status", "again"), [("build_timeout", 1), ("refused", 0)])
def test_what_a_busy_machine_gave_up_is_tried_again(
    tasks: tuple[NetworkTask, ...], status: str, again: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The program as it is written stands in for an estimate, for good only where that would fail again."""
    monkeypatch.setattr(kernel_cache.CACHE, "name", str(tmp_path / "another"))
    relu = [item for item in tasks if item.task.work.name == "relu"]

    def failing(wanted: Iterable[Build]) -> list[Built | Failed]:
        return [Failed(status=status) if job.estimated is not None else build_here([job])[0] for job in wanted]

    assert [kernel.origin for kernel in kernels_of(relu, None, failing).values()] == ["untuned"]
    assert built(tuple(relu)) == again


def test_a_damaged_kernel_is_compiled_again(tasks: tuple[NetworkTask, ...]) -> None:
    """Cut off, or whole and not what a worker would reply."""
    first, second, _ = sorted(kernel_cache.CACHE.folder.iterdir())
    first.write_text(first.read_text()[:-9])
    kernel_cache.CACHE.write("key", '{"reply": "Done"}')
    (other,) = {*kernel_cache.CACHE.folder.iterdir()} - {first, second, _}
    other.replace(second)
    assert built(tasks) == 2
    assert built(tasks) == 0


STEP = """
@T.prim_func
def step(x: T.Buffer((4, 8, 24), "float32"), w: T.Buffer((24, {n}), "float32"), y: T.Buffer((8, {n}), "float32")):
    for i, j, k in T.grid(8, {n}, 24):
        with T.block("product"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                y[vi, vj] = T.float32(0.0)
            y[vi, vj] = y[vi, vj] + x[{at}, vi, vk] * w[vk, vj]
"""


def steps(*places: int) -> Network:
    """Products of parts of one tensor, as those of a recurrence that is written out, and one with wider weights."""
    rng = np.random.default_rng(0)
    constants = {f"w{n}": rng.standard_normal((24, n)).astype("float32") for n in (16, 32)}
    tensors = {name: Tensor(name, array.shape, "float32") for name, array in constants.items()}
    tensors["x"] = Tensor("x", (4, 8, 24), "float32")
    nodes = []
    for number, (at, n) in enumerate([*((at, 16) for at in places), (0, 32)]):
        func = parse(STEP.format(at=at, n=n))
        assert isinstance(func, PrimFunc)
        tensors[f"y{number}"] = Tensor(f"y{number}", (8, n), "float32")
        nodes.append(Operator(f"step{number}", func, ("x", f"w{n}"), (f"y{number}",)))
    return Network("steps", ("x",), tuple(node.outputs[0] for node in nodes), tensors, constants, tuple(nodes))


def test_programs_that_begin_elsewhere_in_a_tensor_are_estimated_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One schedule for all steps, also for those that come later; other extents have one of their own."""
    monkeypatch.setattr(kernel_cache.CACHE, "name", str(tmp_path))
    target, estimated = discover("cpu", 1), 0

    def counting(wanted: Iterable[Build]) -> list[Built | Failed]:
        nonlocal estimated
        jobs = [*wanted]
        estimated += sum(job.estimated is not None for job in jobs)
        return build_here(jobs)

    for network in (steps(0, 1, 2), steps(0, 1, 2, 3)):
        kernels = kernels_of(tasks_of(network, target), None, counting)
        assert estimated == 2
        assert {kernel.origin for kernel in kernels.values()} == {"estimated"}
        model = Model(network, kernels, target)
        (x,) = model.random_inputs()
        for number, found in enumerate(model(x)[:-1]):
            np.testing.assert_allclose(found, x[number] @ network.constants["w16"], rtol=1e-4, atol=1e-5)


def test_a_program_for_which_the_schedule_of_one_alike_is_refused_is_estimated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing is taken on trust: a trace is applied with all of its proofs."""
    monkeypatch.setattr(kernel_cache.CACHE, "name", str(tmp_path))

    def refusing(wanted: Iterable[Build]) -> list[Built | Failed]:
        return [Failed(status="refused") if job.trace is not None else build_here([job])[0] for job in wanted]

    network = steps(0, 1)
    kernels = kernels_of(tasks_of(network, discover("cpu", 1)), None, refusing)
    assert {kernel.origin for kernel in kernels.values()} == {"estimated"}
