"""Features: columns by name, the same for a whole space, arithmetic that can be checked by hand."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest
import synthetic_space as synthetic

import stridesmith as ss
from stridesmith import T
from stridesmith.cost_model import prior
from stridesmith.cost_model.features import ESTIMATE, FeatureMap
from stridesmith.cost_model.geometry import LINE_MEETINGS, LOADS
from stridesmith.cost_model.weights import Weights, classes
from stridesmith.space.design.layouts import STRIDED
from stridesmith.space.design.operand import Axis
from stridesmith.space.design.program import anchors
from stridesmith.space.design.space import generate
from stridesmith.space.workloads import workload

PLAIN = {
    "tile:s1": "2x8", "tile:s0": "4", "tile:s0:block": "1", "tile:r0": "1", "boundary:s0": "overcompute",
    "boundary:s1": "overcompute", "order": "s0>s1", "layout:i1": "identity", "place:i1": "root",
}  # fmt: skip


def candidate(**labels: str) -> np.ndarray:
    """One candidate by labels (`__` for a colon), the others plain: a tile of 4 x 16, computed over."""
    chosen = PLAIN | {key.replace("__", ":"): value for key, value in labels.items()}
    return np.array([[d.labels.index(chosen[d.name.split("/")[-1]]) for d in synthetic.sketch().decisions]])


def value(column: str, sketch=None, **labels: str) -> float:
    """One feature of one candidate."""
    space = FeatureMap((sketch or synthetic.sketch(),), synthetic.TARGET)
    return float(space.matrix(0, candidate(**labels))[0, space.columns.index(column)])


def altered(**changed) -> synthetic.Sketch:
    """The synthetic sketch with other axes or operands."""
    return synthetic.Sketch("k0", (synthetic.part(**changed),))


def random_population(sketch, count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(len(d.labels), size=count) for d in sketch.decisions], axis=1)


def test_every_sketch_has_the_same_columns_and_what_it_lacks_is_nan():
    """A sketch without a decision has NaN in its column, and a one-hot column tells the sketches apart."""
    full = synthetic.sketch("a")
    numbers = {what: found for what, found in full.main.numbers.items() if what != "place"}
    short = dataclasses.replace(full.main, decisions=full.decisions[:-1], numbers=numbers)
    space = FeatureMap((full, synthetic.Sketch("b", (short,))), synthetic.TARGET)
    first, second = space.matrix(0, np.zeros((3, 9), np.int64)), space.matrix(1, np.zeros((2, 8), np.int64))
    assert first.shape == (3, len(space.columns)) and second.shape == (2, len(space.columns))
    assert first.dtype == np.float32
    place = space.columns.index("place:i1")
    assert not np.isnan(first[:, place]).any() and np.isnan(second[:, place]).all()
    assert first[0, -2:].tolist() == [1, 0] and second[0, -2:].tolist() == [0, 1]


def test_a_row_does_not_depend_on_its_population():
    """Features of a candidate are the same alone and in the middle of ten thousand others."""
    rows = random_population(synthetic.sketch(), 10_000)
    columns = FeatureMap((synthetic.sketch(),), synthetic.TARGET)
    together = columns.matrix(0, rows)
    for number in (0, 4095, 4096, 9_999):
        alone = columns.matrix(0, rows[number : number + 1])
        np.testing.assert_array_equal(together[number : number + 1], alone)


def test_raw_sizes_are_logarithms_and_flags_are_as_given():
    """`tile:s0:reg` of 8 rows is 3; the boundary's number stays."""
    assert value("tile:s0:reg", tile__s0="8") == 3
    assert value("boundary:s0", boundary__s0="peel") == 1


def test_register_tile_by_hand():
    """4 x 16 with 8 lanes: 8 accumulators; 4 broadcasts and 2 vectors are loaded for 8 multiply-adds."""
    assert value("accumulators") == 3
    assert value("loads_per_fma") == pytest.approx((4 + 2) / 8)
    assert value("pressure") == pytest.approx((8 + 1 + 2) / 16)
    assert value("spill") == 0
    assert value("spill", tile__s0="14") > 0.5


def test_the_operand_with_most_values_passes_through_a_register():
    """6 x 2 vectors keep 2 vectors while 6 rows pass; 2 x 3 keep 2 rows while 3 vectors pass."""
    assert value("pressure", tile__s0="6") == pytest.approx((12 + 2 + 1) / 16)
    assert value("pressure", tile__s0="2", tile__s1="3x8") == pytest.approx((6 + 2 + 1) / 16)


def moving(**changed) -> synthetic.Sketch:
    """`C[s0, s1] += A[s0, r0] * B[s1 + r0]`: vectors of B begin at any element; `changed` replaces fields of B."""
    plain = synthetic.part().anchor.operands
    along = synthetic.operand("i1", (1, 129 + 130), ((), ((1, 1), (2, 1))))
    return altered(operands=(*plain[:2], dataclasses.replace(along, **changed)))


def test_vectors_that_overlap_are_loaded_each():
    """Two vectors in each of four unrolled steps are eight loads for 32 multiply-adds, though they share elements."""
    assert value("loads:shifted", moving(), tile__r0="4") == pytest.approx(8 / 32)
    assert value("loads:contiguous", moving(), tile__r0="4") == 0
    assert value("loads:shifted", tile__r0="4") == 0


def test_every_second_element_is_picked_out_of_vectors():
    """A stride of two is a load by itself in a layout that keeps neighbours, elements one by one in another."""
    plain = synthetic.part().anchor.operands
    apart = synthetic.operand("i1", (131, 258), (((2, 1),), ((1, 2),)))
    sketch = altered(operands=(*plain[:2], apart))
    assert value("loads:paired", sketch) == pytest.approx(2 / 8)
    assert value("loads:strided", sketch) == 0
    third = altered(operands=(*plain[:2], synthetic.operand("i1", (131, 387), (((2, 1),), ((1, 3),)))))
    assert value("loads:paired", third) == 0
    assert value("loads:strided", third) == pytest.approx(16 / 8)


def test_what_is_read_at_unknown_places_is_one_element_for_each_point():
    """64 points of a tile read 64 elements of a large table, not all of it, and all of a small one."""
    plain = synthetic.part().anchor.operands
    for shape, elements in (((1000, 1000), 4 * 16), ((5, 5), 25)):
        table = dataclasses.replace(synthetic.operand("i1", shape, ()), offsets=(), source="other")
        sketch = altered(operands=(*plain[:2], table), factors=())
        assert value("loads:strided", sketch) == pytest.approx(elements / 8)
        assert 2 ** value("bytes:op2:panel", sketch) == pytest.approx(4 * min(131 * 64, shape[0] * shape[1]), rel=1e-4)


def test_lanes_are_tested_where_an_inlined_producer_chooses_along_the_vector():
    """The flag needs all three: conditions, along the vector axis, in a value that is computed in place."""
    tested = moving(source="stage", producer="pad", tested=(1,))
    assert value("tested", tested, place__i1="inline") == 1
    assert value("tested", tested, place__i1="root") == 0
    assert value("tested", moving(source="stage", producer="pad"), place__i1="inline") == 0
    assert value("estimate", tested, place__i1="inline") > value("estimate", moving(source="stage"), place__i1="inline")


def test_vectors_meet_what_an_inlined_producer_reads():
    """A producer that turns its input: of contiguous values, where they are stored, come strided reads, inlined."""
    turned = synthetic.operand("", (129, 131), (((1, 1),), ((2, 1),)), "other")
    plain, other = moving(source="stage", producer="turn"), moving(source="stage", producer="turn", inlined=turned)
    for place, access in (("inline", 2), ("root", 1)):
        assert value("access:in1", plain, place__i1=place) == 1
        assert value("access:in1", other, place__i1=place) == access
    assert value("loads:inlined", other, place__i1="inline") == 8 * value("loads:inlined", plain, place__i1="inline")
    assert value("estimate", other, place__i1="inline") > value("estimate", plain, place__i1="inline") + 1
    assert value("estimate", other, place__i1="root") == value("estimate", plain, place__i1="root")


def test_what_producers_compute_is_counted_by_the_vector():
    """Of 12 operations 8 are more than a load has: once for a stage, by its lanes, and each time where inlined."""
    whole, other = 131 * 129 / (127 * 129 * 131), {"source": "stage", "producer": "f"}
    plain = synthetic.part().anchor.operands
    (*_, few), busy = plain, dataclasses.replace(plain[2], **other, operations=12)
    turned = synthetic.operand("", (129, 131), (((1, 1),), ((2, 1),)), "other")
    sketch, scattered = (
        altered(operands=(*plain[:2], operand)) for operand in (busy, dataclasses.replace(busy, inlined=turned))
    )
    short = altered(operands=(*plain[:2], dataclasses.replace(few, **other, operations=4)))
    assert value("computed:staged", short) == 0 and value("computed:inlined", short, place__i1="inline") == 0
    assert value("computed:staged", sketch) == pytest.approx(whole * 8 / 8, rel=1e-4)
    assert value("computed:staged", scattered) == pytest.approx(whole * 8, rel=1e-4)
    assert value("computed:staged", sketch, place__i1="inline") == 0
    assert value("computed:inlined", sketch, place__i1="inline") == pytest.approx(8 * 2 / 8)
    assert value("computed:inlined", scattered, place__i1="inline") == pytest.approx(8 * 2)
    assert value("estimate", sketch) < value("estimate", scattered)
    assert value("estimate", short, place__i1="inline") < value("estimate", sketch, place__i1="inline")


def test_unrolled_reduction_steps_are_part_of_the_body():
    """Four steps make the body four times as long and the trips a quarter; loads per multiply-add stay."""
    assert value("body", tile__r0="4") == value("body") + 2
    assert value("reduce_trips", tile__r0="4") == pytest.approx(np.log2(131 / 4), abs=1e-5)
    assert value("loads_per_fma", tile__r0="4") == value("loads_per_fma")


def test_a_layout_decides_how_vectors_meet_an_operand():
    """The row operand is broadcast; a transposed one is strided until it is tiled along the vector axis."""
    assert value("access:in0") == 0
    assert value("access:in1") == 1
    plain = synthetic.part().anchor.operands
    turned = synthetic.operand("i1", (129, 131), (((1, 1),), ((2, 1),)))
    sketch = altered(operands=(*plain[:2], turned))
    assert value("access:in1", sketch) == 2
    assert value("access:in1", sketch, layout__i1="copy") == 2
    assert value("access:in1", sketch, layout__i1="tiled:d1") == 1


def test_waste_counts_what_is_computed_beyond_the_edge():
    """127 rows by 4 are 128 when computed over; branching and peeling compute 127, but branch or add a tail."""
    assert 2 ** value("waste:s0") == pytest.approx(128 / 127, rel=1e-5)
    assert value("waste:s0", boundary__s0="branch") == 0
    assert value("branches", boundary__s0="branch") == 1
    assert value("branches") == value("scalar") == 0
    assert value("scalar", boundary__s1="branch") == 1
    assert value("tails", boundary__s0="peel") > value("tails") == 0
    assert value("tail:s0") == pytest.approx(127 % 4 / 4)


def test_footprints_by_hand():
    """One panel touches 4 x 131 of A, 131 x 16 of B and 4 x 16 of C, 4 bytes each; a block has more rows."""
    sizes = [2 ** value(f"bytes:op{number}:panel") for number in range(3)]
    assert sizes == pytest.approx([4 * 16 * 4, 4 * 131 * 4, 131 * 16 * 4], rel=1e-4)
    assert 2 ** value("bytes:op1:block", tile__s0__block="8") == pytest.approx(8 * 4 * 131 * 4, rel=1e-4)


def vector_times_matrix(n: int, k: int, **labels: str) -> tuple[FeatureMap, np.ndarray]:
    """A space of one sketch, and drawn candidates whose decisions have the labels, by the decision's last word."""
    (sketch,) = generate(workload("matmul", m=1, n=n, k=k).func, synthetic.TARGET).sketches
    allowed = [
        np.array([c for c, label in enumerate(d.labels) if label == labels.get(d.name.split("/")[-1], label)])
        for d in sketch.decisions
    ]
    return FeatureMap((sketch,), synthetic.TARGET), sketch.draw(np.random.default_rng(0), 4000, allowed)


def test_blocks_along_the_vectors_by_hand():
    """256 columns in two blocks of four tiles of 32, panels of 8 steps of 80: sizes of each level in bytes."""
    chosen = {"tile:s1": "4x8", "tile:s1:block": "4", "tile:r0:panel": "8", "tile:r0": "2", "threads": "2"}
    plain = {"layout:i0": "identity", "layout:i1": "identity"}
    space, rows = vector_times_matrix(256, 80, **chosen, **plain)
    matrix = space.matrix(0, rows[:1])[0]
    found = {name: 2 ** float(v) for name, v in zip(space.columns, matrix, strict=True)}
    assert found["chunks"] == pytest.approx(2) and found["idle"] == pytest.approx(1)
    assert found["panels"] == pytest.approx(80 / 8)
    assert found["reduce_trips"] == pytest.approx(8 / 2)
    assert found["bytes:op1:panel"] == pytest.approx(8 * 32 * 4) and found["bytes:op1:block"] == 4 * 8 * 32 * 4
    assert found["bytes:op0:panel"] == pytest.approx(32 * 4) and found["bytes:op0:block"] == 4 * 32 * 4


def test_the_estimate_reads_a_large_matrix_in_short_panels():
    """Rows of 16 KiB compete for the sets of a cache, so that a few of them at a time are read faster than all."""
    best = {}
    for panel in ("whole", "16", "8"):
        space, rows = vector_times_matrix(4096, 4096, **{"tile:r0:panel": panel})
        best[panel] = space.estimate(0, rows).min()
    assert max(best["16"], best["8"]) < best["whole"] - 0.2


def test_the_loop_order_decides_what_stays_in_a_cache():
    """Inside the outer row loop run all columns (B is streamed), inside the outer column loop all rows."""
    assert 2 ** value("bytes:op2:in1") == pytest.approx(131 * 129 * 4, rel=1e-4)
    assert 2 ** value("bytes:op2:in1", order="s1>s0") == pytest.approx(131 * 16 * 4, rel=1e-4)


def test_a_window_touches_its_halo():
    """Three taps over four outputs at stride 2 read nine elements, as far as there are any."""
    axes = (Axis("s0", 50, "spatial", "i"), Axis("s1", 8, "spatial", "j"), Axis("r0", 3, "reduce", "k"))
    window = synthetic.operand("i0", (20, 8), (((0, 2), (2, 1)), ((1, 1),)))
    again = dataclasses.replace(window, name="i1")
    operands = (synthetic.operand("o0", (50, 8), (((0, 1),), ((1, 1),)), "output"), window, again)
    sketch = altered(axes=axes, operands=operands)
    labels = {"tile__s1": "1x8"}
    assert 2 ** value("bytes:op1:panel", sketch, **labels) / 4 == pytest.approx(9 * 8, rel=1e-4)
    assert 2 ** value("bytes:op1:panel", sketch, tile__s0="14", **labels) / 4 == pytest.approx(20 * 8, rel=1e-4)


def test_copies_are_counted_unless_packed_ahead():
    """A packed operand that the caller fixes is copied on every call, a constant never."""
    whole = 131 * 129 / (127 * 129 * 131)
    assert value("copied") == -20
    assert 2 ** value("copied", layout__i1="copy") == pytest.approx(whole, rel=1e-4)
    assert value("copied", layout__i1="copy", place__i1="inner") > value("copied", layout__i1="copy")
    plain = synthetic.part().anchor.operands
    constant = dataclasses.replace(plain[2], source="constant")
    assert value("copied", altered(operands=(*plain[:2], constant)), layout__i1="copy") == -20


@pytest.mark.parametrize(("steps", "kind"), [(40, "copied:squares"), (3, "copied:scattered")])
def test_transposed_copies_are_squares_where_these_fit(steps, kind):
    """A right matrix given as (n, k) is packed in tiles along n: in squares, unless its rows are too short for one."""
    target = synthetic.TARGET
    space = generate(workload("matmul", m=37, n=48, k=steps, transpose_b=1).func, target, {})
    features, found = FeatureMap(space.sketches, target), 0
    for number, sketch in enumerate(space.sketches):
        names = {operand.buffer.name: operand.name for operand in sketch.main.anchor.operands}
        axis = next(axis.name for axis in sketch.main.anchor.axes if axis.extent == 48)
        rows = sketch.draw(np.random.default_rng(0), 1000)
        labels = [{name.rsplit("/", 1)[-1]: label for name, label in sketch.labels(row).items()} for row in rows]
        layouts = [(row[f"layout:{names['a']}"], row[f"layout:{names['b']}"]) for row in labels]
        packed = [both == ("identity", "tiled:d0") for both in layouts]
        matrix = features.matrix(number, rows)[np.asarray(packed)]
        columns = {name: matrix[:, features.columns.index(name)] for name in ("copied", kind)}
        wide = matrix[:, features.columns.index(f"tile:{axis}:reg")] >= 2
        np.testing.assert_array_equal(columns[kind][wide], columns["copied"][wide])
        found += int(wide.sum())
    assert found > 20


def test_words_of_a_dot_product_that_come_from_apart_are_moved_one_by_one():
    """A left matrix of bfloat16 in tiles of its rows is a copy of words: half as many as elements, each scattered."""
    target = dataclasses.replace(synthetic.TARGET, features="+avx512bf16,+avx512vl,+avx512vnni")
    space = generate(workload("matmul", m=48, n=64, k=96, dtype="bfloat16").func, target, {"b": "constant"})
    features, found = FeatureMap(space.sketches, target), 0
    for number, sketch in enumerate(space.sketches):
        a = next(operand.name for operand in sketch.main.anchor.operands if operand.buffer.name == "a")
        rows = sketch.draw(np.random.default_rng(0), 500)
        labels = [{name.rsplit("/", 1)[-1]: label for name, label in sketch.labels(row).items()} for row in rows]
        for label, wanted in (("packed2:d1:d0", 48 * 96 / 2), ("identity", 0)):
            chosen = [row[f"layout:{a}"] == label and row[f"place:{a}"] == "root" for row in labels]
            matrix = features.matrix(number, rows)[np.asarray(chosen)]
            words = np.exp2(matrix[:, features.columns.index("copied:scattered")]) * (48 * 64 * 96)
            np.testing.assert_allclose(words, wanted, rtol=1e-3, atol=1)
            found += len(words) * (label != "identity")
    assert found > 20


def test_large_copies_are_far():
    """131 x 129 elements fit the second cache beside their source, 1310 x 1290 do not."""
    assert value("copied:far", layout__i1="copy") == -20
    large = altered(extents=(127, 1290, 1310))
    assert value("copied:far", large, layout__i1="copy") == pytest.approx(np.log2(1 / 127), abs=1e-3)


def test_decisions_without_effect_have_no_features():
    """Where a tile divides, its boundary changes nothing; where nothing is staged, neither does the place."""
    space = FeatureMap((altered(extents=(128, 128, 128)),), synthetic.TARGET)

    def row(**labels: str) -> np.ndarray:
        return space.matrix(0, candidate(**labels))

    np.testing.assert_array_equal(row(boundary__s0="peel"), row(boundary__s0="branch"))
    np.testing.assert_array_equal(row(place__i1="inner"), row(place__i1="root"))
    assert (row(place__i1="inner", layout__i1="copy") != row(place__i1="root", layout__i1="copy")).any()


def test_chunks_and_idle_threads_by_hand():
    """32 row tiles for 2 threads idle none; two chunks of a block of sixteen rows neither, three would."""
    assert value("chunks") == 5
    assert value("idle") == 0
    assert 2 ** value("idle", tile__s0="6", tile__s0__block="8") == pytest.approx(4 / 3, rel=1e-5)


def test_a_second_block_has_columns_of_its_own():
    """A sketch that schedules two blocks describes the larger one, and the other under its name."""
    sketch = synthetic.Sketch("k0", (synthetic.part(), synthetic.part(extents=(8, 16, 4), anchor="D")))
    space = FeatureMap((sketch,), synthetic.TARGET)
    row = space.matrix(0, np.concatenate([candidate(), candidate(tile__s0="8")], axis=1))[0]
    assert row[space.columns.index("tile:s0:reg")] == 2
    assert row[space.columns.index("D/tile:s0:reg")] == 3


def test_the_estimate_prefers_a_sound_register_tile():
    """4 x 16 is better than a single vector, than one that spills, than scalar code and than half vectors."""
    good = value(ESTIMATE)
    assert good < value(ESTIMATE, tile__s0="1", tile__s1="1x8")
    assert good < value(ESTIMATE, tile__s0="14", tile__s1="4x8")
    assert good < value(ESTIMATE, boundary__s1="branch")
    assert good < value(ESTIMATE, tile__s1="1x4")


def plain_columns() -> dict[str, np.ndarray]:
    """The columns of a tile that does nothing but multiply, from the first cache."""
    columns = {name: np.zeros(1, np.float32) for name in prior.COLUMNS} | {"lanes_used": np.ones(1, np.float32)}
    columns |= {"reduce_trips": np.full(1, 20, np.float32), "body": np.full(1, 6, np.float32)}
    columns |= {f"traffic:{cache}": np.full(1, -40, np.float32) for cache in ("l1", "l2", "l3")}
    columns |= {f"copied:{kind}": np.full(1, -40, np.float32) for kind in ("plain", "squares", "scattered", "far")}
    return columns | {"meets": np.full(1, -40, np.float32)}


@pytest.mark.parametrize("name", ["avx512", "znver4", "avx2"])
def test_loads_are_not_free_where_a_tile_loads_as_often_as_it_multiplies(name):
    """28 rows by one vector cost a tenth more than 12 rows by two, which load half as often."""
    weights = classes()[name].weights
    assert isinstance(weights, Weights)

    def cost(rows: int, vectors: int) -> float:
        given = plain_columns() | {"accumulators": np.log2([rows * vectors]).astype(np.float32)}
        loads = {"broadcast": 1 / vectors, "contiguous": 1 / rows}
        given |= {f"loads:{kind}": np.full(1, count, np.float32) for kind, count in loads.items()}
        return float(2.0 ** prior.estimate(given, 16, weights)[0])

    assert cost(28, 1) > 1.1 * cost(12, 2)
    assert cost(12, 2) < 1.1 * cost(8, 3)


def test_loads_of_bfloat16_are_converted_where_there_are_no_dot_products():
    """A tile converts what it loads of both factors; words of two, and float32, are read as they are."""
    target = dataclasses.replace(synthetic.TARGET, features="+avx512bf16,+avx512vl,+avx512vnni", isa="avx512")

    def converted(dtype: str, dot: bool) -> list[dict[str, float]]:
        work = workload("matmul", m=64, n=64, k=64, dtype=dtype)
        sketches = [
            s for s in generate(work.func, target, {"b": "constant"}).sketches
            if s.parts and (s.main.structure.dot is not None) == dot
        ]  # fmt: skip
        space, rng = FeatureMap(sketches, target), np.random.default_rng(0)
        rows = [space.matrix(n, sketch.draw(rng, 20)) for n, sketch in enumerate(sketches)]
        names = ("converted", *(f"loads:{kind}" for kind in LOADS))
        chosen = np.concatenate(rows)[:, [space.columns.index(name) for name in names]]
        return [dict(zip(names, row.tolist(), strict=True)) for row in chosen]

    assert all(row["converted"] == 0 for row in [*converted("bfloat16", dot=True), *converted("float32", dot=False)])
    plain = converted("bfloat16", dot=False)
    assert plain and all(0 < row["converted"] <= sum(row.values()) - row["converted"] + 1e-6 for row in plain)
    weights, columns = classes()["znver4"].weights, plain_columns() | {"accumulators": np.full(1, 4, np.float32)}
    assert isinstance(weights, Weights)
    more = columns | {"converted": np.full(1, 0.5, np.float32)}
    assert prior.estimate(more, 16, weights)[0] > prior.estimate(columns, 16, weights)[0] + 0.2


def test_a_pair_of_bfloat16_waits_longer_for_the_one_before_than_a_multiply_add():
    """Few accumulators cost half as much again with `vdpbf16ps`, many the same; bytes wait as floats do."""
    columns = plain_columns() | {"products": np.full(1, 2, np.float32)}
    weights = classes()["avx512"].weights
    assert isinstance(weights, Weights)
    plain, longer = ({**columns, "latency": np.full(1, waits, np.float32)} for waits in (1.0, 1.5))
    for accumulators, factor in ((4, 1.5), (24, 1.0)):
        given = {"accumulators": np.log2([accumulators]).astype(np.float32)}
        costs = [2.0 ** prior.estimate(each | given, 16, weights)[0] for each in (longer, plain)]
        assert costs[0] / costs[1] == pytest.approx(factor, rel=0.02)
    target = dataclasses.replace(synthetic.TARGET, features="+avx512bf16,+avx512vl,+avx512vnni")
    assert (target.dot_latency("bf"), target.dot_latency("us"), synthetic.TARGET.dot_latency("bf")) == (1.5, 1.0, 1.0)


def test_a_population_of_the_wrong_width_is_refused():
    """The sentence names the sketch and the expected shape."""
    with pytest.raises(ValueError, match=r"sketch `k0` must have the shape \(N, 9\).*got \(2, 3\)"):
        FeatureMap((synthetic.sketch(),), synthetic.TARGET).matrix(0, np.zeros((2, 3), np.int64))


def test_populations_are_cheap():
    """Twenty thousand candidates take well under a second (`benchmarks/ranking.py` measures how well)."""
    rows = random_population(synthetic.sketch(), 20_000)
    space = FeatureMap((synthetic.sketch(),), synthetic.TARGET)
    start = time.perf_counter()
    space.matrix(0, rows)
    assert time.perf_counter() - start < 1.0


def test_runs_of_neighbours_fill_cache_lines():
    """A column of a row-major operand touches a line per element, whole rows of it fill their lines."""
    axes = (Axis("s0", 64, "spatial", "i"), Axis("s1", 64, "spatial", "j"), Axis("r0", 32, "reduce", "k"))
    turned = synthetic.operand("i1", (64, 32), (((1, 1),), ((2, 1),)))
    wide = synthetic.operand("i0", (64, 4096), (((0, 1),), ((2, 1),)))
    result = synthetic.operand("o0", (64, 64), (((0, 1),), ((1, 1),)), "output")
    sketch = altered(axes=axes, operands=(result, wide, turned))
    assert 2 ** value("bytes:op2:panel", sketch) == pytest.approx(16 * 32 * 4, rel=1e-4)
    narrow = dataclasses.replace(turned, dims=(((1, 1),), ((0, 1),)))
    strided = altered(axes=axes, operands=(result, wide, narrow))
    assert 2 ** value("bytes:op2:panel", strided, tile__s0="1") == pytest.approx(16 * 64, rel=1e-4)


def test_rows_a_power_of_two_apart_compete_for_sets():
    """Fourteen rows 4096 bytes apart fall into one set of eight; 4 KiB and a line apart they do not."""
    axes = (Axis("s0", 64, "spatial", "i"), Axis("s1", 64, "spatial", "j"), Axis("r0", 32, "reduce", "k"))
    plain = synthetic.part().anchor.operands

    def conflict(row: int, column: str = "conflict:op1") -> float:
        wide = synthetic.operand("i0", (64, row), (((0, 1),), ((2, 1),)))
        result = synthetic.operand("o0", (64, 64), (((0, 1),), ((1, 1),)), "output")
        sketch = altered(axes=axes, operands=(result, wide, plain[2]))
        return value(column, sketch, tile__s0="14")

    assert conflict(1024) == pytest.approx(np.log2(14 / 8), abs=1e-4)
    assert conflict(1040) == 0
    others = 32 * 16 * 4 + 14 * 256  # rows of 64 bytes of the result are 256 apart
    assert 2 ** conflict(1024, "bytes:panel") == pytest.approx(14 * 4096 + others, rel=1e-4)
    assert 2 ** conflict(1040, "bytes:panel") == pytest.approx(14 * 32 * 4 + others, rel=1e-4)


def test_stores_into_lines_that_threads_share_are_counted():
    """Two threads with columns of half a line meet in each row; those with whole lines, or with rows, do not."""
    rows, vectors, points = 127, 2, 127 * 129 * 131  # two vectors of 8 lanes in a line of 64 bytes
    torn = value("meets", order="s1>s0", tile__s1="1x8")
    meetings = 1 + LINE_MEETINGS * rows * vectors
    assert 2**torn == pytest.approx(meetings * synthetic.TARGET.threads / points, rel=1e-5)
    assert value("meets", order="s1>s0", tile__s1="2x8") == value("meets", order="s0>s1", tile__s1="1x8") < torn


def test_an_epilogue_stores_in_place_of_the_sum():
    """An epilogue that transposes has vectors of neighbours that are apart, and threads with rows meet in its lines."""
    stored = synthetic.operand("o0", (129, 127), (((1, 1),), ((0, 1),)), "output")
    turned, points = altered(stored=stored), 127 * 129 * 131
    assert value("access:out") != value("access:out", turned) == STRIDED
    meetings = 1 + LINE_MEETINGS * 129 * 16  # each of 16 elements of the line at the cut, alone
    assert 2 ** value("meets", turned) == pytest.approx(meetings * synthetic.TARGET.threads / points, rel=1e-5)
    assert value("meets", turned, tile__s0="4", tile__s0__block="4") == value("meets") < value("meets", turned)


def test_what_an_epilogue_stores_is_seen_along_the_axes_of_its_sum():
    """Of ``y[j, i] = 2 * c[i, j]`` the rows are along i."""

    @ss.prim_func
    def turned(
        a: T.Buffer((24, 32), "float32"), b: T.Buffer((32, 40), "float32"), y: T.Buffer((40, 24), "float32")
    ) -> None:
        c = T.alloc_buffer((24, 40), "float32")
        for i, j, k in T.grid(24, 40, 32):
            with T.block("sum"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    c[vi, vj] = T.float32(0)
                c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]
        for i, j in T.grid(24, 40):
            with T.block("out"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vj, vi] = c[vi, vj] * T.float32(2)

    (anchor,) = anchors(turned, {})
    assert [anchor.axes[a].extent for a in anchor.spatial] == [24, 40]
    assert [anchor.output.stride(a) for a in anchor.spatial] == [40, 1]
    assert (anchor.stored.buffer.name, [anchor.stored.stride(a) for a in anchor.spatial]) == ("y", [1, 24])
