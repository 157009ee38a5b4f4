"""Reductions in subgroups in design spaces: where there are sketches with them, and that these build and compute."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial

import numpy as np
import pytest
from expected_space import CPU, OPENCL, SUBGROUPS
from subgroup_programs import needs_subgroups, subgroup_device

from stridesmith.backends.data import arguments_of
from stridesmith.backends.kernel import compile_lowered, load_artifact
from stridesmith.backends.legal import kernels
from stridesmith.backends.lower import LoweringError, lower
from stridesmith.backends.render.opencl.program import generate as source_of
from stridesmith.backends.samples import make_samples
from stridesmith.backends.verification import GUARD_BYTES, verify
from stridesmith.cost_model.features import FeatureMap
from stridesmith.ir.target import SUBGROUPS as EXTENSION
from stridesmith.ir.target import Target
from stridesmith.space.design.decision import Decision
from stridesmith.space.design.restrict import restricted
from stridesmith.space.design.sketch import Sketch
from stridesmith.space.design.space import OF_CPU_DEVICES, SPACE_VERSION, Space, generate
from stridesmith.space.workloads import Workload, workload

SHAPES = {
    "row_sum": {"rows": 13, "cols": 100},
    "row_max": {"rows": 7, "cols": 64},
    "row_mean": {"rows": 10, "cols": 37},
    "softmax": {"rows": 9, "cols": 70},
    "layernorm": {"rows": 6, "cols": 96},
    "matmul": {"m": 13, "n": 19, "k": 100, "transpose_b": 1},
}
WITHOUT = {
    "col_sum": {"rows": 40, "cols": 40},
    "conv2d": {"ci": 20, "h": 7, "w": 9, "co": 8, "k": 3},
    "scale_shift_relu": {},
}


@lru_cache(maxsize=16)
def space_of(name: str, target: Target) -> tuple[Workload, Space]:
    work = workload(name, **(SHAPES | WITHOUT)[name])
    return work, generate(work.func, target, dict.fromkeys(work.constants, "constant"))


def in_subgroups(space: Space) -> list[Sketch]:
    return [sketch for sketch in space.sketches if ",subgroup" in sketch.name]


@pytest.mark.parametrize("name", [*SHAPES, *WITHOUT])
def test_other_spaces_stay_as_they_are(name: str) -> None:
    """Where the device has no subgroups, or no row is reduced, spaces and their version are as ever."""
    plain, found = space_of(name, OPENCL)[1], space_of(name, SUBGROUPS)[1]
    assert plain.version == OF_CPU_DEVICES and space_of(name, CPU)[1].version == SPACE_VERSION
    assert (found.version == OF_CPU_DEVICES) == (name in WITHOUT)
    assert bool(in_subgroups(found)) == (name in SHAPES) and not in_subgroups(plain)
    old = {s.name: [(d.name, d.labels) for d in s.decisions] for s in plain.sketches}
    own = (s for s in found.sketches if ",subgroup" not in s.name)
    assert {s.name: [(d.name, d.labels) for d in s.decisions if not d.name.endswith("/subgroup")] for s in own} == old


def test_a_name_chooses_sketches_with_or_without() -> None:
    """The decision `subgroup` has one alternative in each sketch: to pin it leaves the others out."""
    space = space_of("softmax", SUBGROUPS)[1]
    every, none = (restricted(space, partial(_is, wanted)).sketches for wanted in (True, False))
    assert every and none and all(sketch.name.count(",subgroup") == 2 for sketch in every)
    assert not any(",subgroup" in sketch.name for sketch in none)
    features = FeatureMap(space.sketches, SUBGROUPS)
    columns = [n for n, name in enumerate(features.columns) if "subgroup" in name]
    for number, sketch in enumerate(space.sketches):
        rows = features.matrix(number, sketch.draw(np.random.default_rng(0), 3))
        assert (rows[:, columns] > 0).any(axis=1).all() == (",subgroup" in sketch.name)


def _is(wanted: bool, decision: Decision, value: object) -> bool:
    return not decision.name.endswith("/subgroup") or value == wanted


@pytest.mark.parametrize("name", SHAPES)
def test_every_candidate_is_written_with_subgroups(name: str) -> None:
    """What the mask lets through is never refused, and its kernels have no barriers unless inputs are copied."""
    for sketch in in_subgroups(space_of(name, SUBGROUPS)[1])[::3]:
        allowed = [np.arange(1 if "/local:" in d.name else len(d)) for d in sketch.decisions]
        found = sketch.draw(np.random.default_rng(1), 3, allowed)
        assert len(found)
        for candidate in found:
            text = source_of(lower(sketch.schedule(candidate).func, SUBGROUPS), SUBGROUPS).text
            assert "sub_group_reduce_" in text and "intel_reqd_sub_group_size(" in text and "barrier(" not in text


def test_kernels_with_subgroups_have_no_fences(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many rows more is loaded than fits in registers, for which other kernels of a CPU have fences.

    With one, Intel's runtime for CPUs does not put items side by side, so that a subgroup sums a single one's value.
    """
    device = replace(SUBGROUPS, is_cpu_device=True, registers=32, vector_bits=512)
    work = workload("row_sum", rows=161, cols=200)
    (sketch,) = in_subgroups(generate(work.func, device, {}))
    wanted = {"tile:s0": "14", "tile:r0": "32", "vector:r0": "16"}
    allowed = [
        np.array([n for n, label in enumerate(d.labels) if wanted.get(d.name.split("/")[-1], label) == label])
        for d in sketch.decisions
    ]
    (choice,) = sketch.draw(np.random.default_rng(0), 1, allowed)
    lowered = lower(sketch.schedule(choice).func, device)
    assert "LOAD_AGAIN();" not in source_of(lowered, device).text
    monkeypatch.setattr(kernels, "subgroup_loops", lambda kernel: [])  # as if there were none
    assert "LOAD_AGAIN();" in source_of(lowered, device).text


def test_a_work_group_is_no_larger_than_the_device_allows() -> None:
    """Its items are those of all its subgroups: 32 rows of 16 items are too many for a device with 64."""
    sketch = in_subgroups(space_of("row_sum", SUBGROUPS)[1])[0]
    rng = np.random.default_rng(2)
    population = np.stack([rng.integers(len(d), size=20_000) for d in sketch.decisions], axis=1)
    passed = sketch.exclusions(population)["subgroups of a work-group"]
    assert passed.any() and not passed.all()
    for candidate in sketch.draw(rng, 50):
        labels = {key.split("/")[-1]: label for key, label in sketch.labels(candidate).items()}
        x, _, y = labels["work_group"].partition("x")
        assert int(x) * int(y or 1) * int(labels["vector:r0"]) <= SUBGROUPS.max_work_group


def test_a_candidate_is_refused_by_a_device_without() -> None:
    """A record that comes from a device with subgroups says what this one lacks."""
    work, space = space_of("row_sum", SUBGROUPS)
    sketch = in_subgroups(space)[0]
    trace = sketch.trace(sketch.draw(np.random.default_rng(0), 1)[0])
    with pytest.raises(LoweringError, match=f"has no subgroups of a given size .{EXTENSION} is missing"):
        lower(trace.replay(work.func).func, OPENCL)


@needs_subgroups
@pytest.mark.parametrize("name", SHAPES)
def test_candidates_compute_what_they_should(name: str) -> None:
    """On a device with subgroups candidates are right, with poison in all that may not be relied on."""
    target = subgroup_device()
    assert target is not None
    work, space = space_of(name, target)
    samples = make_samples(work.func, work.reference, 0)
    for sketch in in_subgroups(space)[-1:]:
        for candidate in sketch.draw(np.random.default_rng(4), 4):
            func = sketch.schedule(candidate).func
            bound = load_artifact(compile_lowered(lower(func, target), target)).bind(guard_bytes=GUARD_BYTES)
            assert verify(bound, arguments_of(func), samples).complete
