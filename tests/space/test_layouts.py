"""Layouts leave logical results alone, write the padding that they promise, and refuse by number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from goldens.equal import same_program
from goldens.execute import same_results
from scale import scaled

import stridesmith as ss
from stridesmith.ir.layout.layout import Dim, Layout
from stridesmith.ir.passes.layouts import with_layout_transform
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc, written_buffers
from stridesmith.ir.verify.rules import verify
from stridesmith.space.schedule import Schedule, ScheduleError, Trace

BARE = """
@T.prim_func
def func(A: T.Buffer((14,), "float32"), B: T.Buffer((14,), "float32")):
    t = T.alloc_buffer((14,), "float32")
    for i in range(14):
        t[i] = A[i] * 2.0
    for j in range(14):
        B[j] = t[13 - j] + 1.0
"""

OPAQUE = """
@T.prim_func
def func(A: T.Buffer((14,), "float32"), B: T.Buffer((14,), "float32")):
    t = T.alloc_buffer((14,), "float32")
    with T.block("fill"):
        for i in range(14):
            t[i] = A[i] * 2.0
    with T.block("use"):
        for j in range(14):
            B[j] = t[13 - j] + 1.0
"""

BLOCKS = """
@T.prim_func
def func(A: T.Buffer((14,), "float32"), B: T.Buffer((14,), "float32")):
    t = T.alloc_buffer((14,), "float32")
    for i in range(14):
        with T.block("fill"):
            vi = T.axis.spatial(14, i)
            t[vi] = A[vi] * 2.0
    for j in range(14):
        with T.block("use"):
            vj = T.axis.spatial(14, j)
            B[vj] = t[13 - vj] + 1.0
"""

ALLOCATED = """
@T.prim_func
def func(A: T.Buffer((14,), "float32"), B: T.Buffer((14,), "float32")):
    t = T.allocate((14,), "float32")
    view = T.decl_buffer((14,), "float32", data=t.data)
    for i in range(14):
        view[i] = A[i] * 2.0
    for j in range(14):
        B[j] = t[13 - j] + 1.0
"""

FORMS = {"bare": BARE, "opaque": OPAQUE, "blocks": BLOCKS, "allocated": ALLOCATED}


def function(text: str) -> PrimFunc:
    func = parse(text)
    assert isinstance(func, PrimFunc)
    return func


def check(sch: Schedule, original: PrimFunc) -> None:
    """Valid, printable, replayable, and of equal results under both poisons."""
    verify(sch.func)
    assert parse(sch.func.script()) == sch.func
    assert Trace.from_json(sch.trace.to_json()).replay(original).func == sch.func
    same_results(original, sch.func)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("buffer", ["A", "B", "t"])
@pytest.mark.parametrize(
    "pad",
    [None, "undef", 0, lambda io, ii: io + 0.5, lambda io, ii: ss.T.if_then_else(ii < 3, 1.0, ss.undef())],
    ids=["none", "undef", "zero", "indices", "pieces"],
)
def test_arguments_and_intermediates_of_every_form(form: str, buffer: str, pad: Any) -> None:
    """Inputs, outputs and intermediates of bare loops, opaque blocks, blocks and lowered memory; every pad value."""
    original = function(FORMS[form])
    sch = Schedule(original)
    sch.transform_layout("root", buffer, lambda i: [(i + 1) // 4, (i + 1) % 4], pad, physical_shape=(5, 4))
    check(sch, original)
    text = sch.func.script()
    assert ("T.assume" in text) == (buffer == "A" and pad is not None)
    stored = 2 if buffer == "A" or pad is None else 3
    assert sum(text.count(f"{b.name}[") for b in written_buffers(sch.func)) >= stored


def test_a_layout_is_its_map_its_extents_and_its_pad_value() -> None:
    """One value in the place of three arguments; the trace has the three, so that it replays like any other."""
    layout = Layout.of_dims((14,), [Dim(0, "block", 4), Dim(0, "inner", 4)], reach=(20,), pad_value=0.0)
    one, three = Schedule(function(BLOCKS)), Schedule(function(BLOCKS))
    one.transform_layout("use", "t", layout)
    three.transform_layout("use", "t", "lambda d0: [d0 // 4, d0 % 4]", 0.0, physical_shape=(5, 4))
    assert one.func == three.func and one.trace == three.trace
    assert Trace.from_json(one.trace.to_json()).replay(function(BLOCKS)).func == one.func
    with pytest.raises(ScheduleError, match="`index_map` is a layout, which has a `pad_value` of its own"):
        Schedule(function(BLOCKS)).transform_layout("use", "t", layout, 0)
    with pytest.raises(ScheduleError, match="`index_map` is a layout, which has a `pad_value` of its own"):
        Schedule(function(BLOCKS)).transform_block_layout("use", layout)


@pytest.mark.parametrize(("form", "block"), [("bare", False), ("opaque", False), ("blocks", True)])
def test_the_epilogue_has_the_form_of_the_writer(form: str, block: bool) -> None:
    """Loops beside loops, also inside an opaque block, a block with iterators beside blocks; after the writer."""
    sch = Schedule(function(FORMS[form]))
    sch.transform_layout("root", "t", lambda i: [i // 4, i % 4], 0)
    text = sch.func.script()
    assert ('T.block("t_padding")' in text) == block
    assert ("T.where(" in text) == (form == "blocks")
    assert text.index("A[") < text.index("= T.float32(0.0)") < text.index("B[", text.index("A[") + 40)


def test_a_block_may_be_named_by_what_it_reads_and_writes() -> None:
    """TensorIR's forms of the argument `buffer` mean the same buffer."""
    found = []
    for block, buffer in (("use", ("read", 0)), ("fill", ["write", 0]), ("fill", "t"), ("root", "t")):
        sch = Schedule(function(BLOCKS))
        sch.transform_layout(block, buffer, lambda i: [i // 4, i % 4], pad_value=0)
        found.append(sch.func)
    assert found.count(found[0]) == 4


def test_an_output_writes_the_padding_that_it_promises() -> None:
    """Wrap-around, a number and pieces stand in the caller's array, computed here by hand."""
    original = function(BARE)
    b = original.buffers[1]
    for pad, wanted in (
        (lambda io, ii: b[0, (4 * io + ii - 14) % 4], lambda out, k: out[0, k % 4]),
        (7, lambda out, k: 7),
        (lambda io, ii: io + ii, lambda out, k: 3 + 2 + k),
    ):
        sch = Schedule(original)
        sch.transform_layout("root", "B", lambda i: [i // 4, i % 4], pad)
        a = np.arange(14, dtype="float32")
        out = np.full((4, 4), np.nan, "float32")
        ss.interpret(sch.func, a, out)
        assert [out[3, 2], out[3, 3]] == [wanted(out, 0), wanted(out, 1)]


def test_layouts_of_a_parameter_compose_and_keep_what_each_says_of_padding() -> None:
    """RFC 0077, "Multiple Buffer Semantics": padding of the first map is undef, of the second 0."""
    original = function(BARE.replace("14", "10").replace("13", "9"))
    sch = Schedule(original)
    sch.transform_layout("root", "A", lambda i: [i // 4, i % 4], "undef")
    sch.transform_layout("root", "A", lambda io, ii: [io, ii // 3, ii % 3], 0)
    check(sch, original)
    ((_, layout),) = sch.func.layouts
    assert layout.logical_shape == (10,)
    assert layout.index_map.text == "lambda i: [i // 4, i % 4 // 3, i % 4 % 3]"
    assert "T.undef" in layout.pad_text and "T.float32(0.0)" in layout.pad_text
    assert sch.func.script().count("T.assume") == 2
    physical = ss.Schedule(sch.func).func.buffers[0]
    assert physical.shape == (3, 2, 3)


def test_layouts_in_sequence_are_the_composed_one() -> None:
    """Two maps that pad alike give the accesses of their composition."""
    twice, once = Schedule(function(BARE)), Schedule(function(BARE))
    twice.transform_layout("root", "t", lambda i: [i + 1], 0)
    twice.transform_layout("root", "t", lambda i: [i // 4, i % 4], 0)
    once.transform_layout("root", "t", lambda i: [(i + 1) // 4, (i + 1) % 4], 0)
    check(twice, function(BARE))
    first, second = (s.func.body.allocs[0] for s in (once, twice))
    assert first.shape == second.shape == (4, 4)
    assert [line for line in once.func.script().splitlines() if "A[i]" in line] == [
        line for line in twice.func.script().splitlines() if "A[i]" in line
    ]


def test_a_map_may_take_any_number_of_indices() -> None:
    """RFC 0039, option 3: a function of ``*indices`` works on any rank, and is recorded for the one at hand."""

    def last_by_four(*indices: Any) -> list[Any]:
        return [*indices[:-1], indices[-1] // 4, indices[-1] % 4]

    sch = Schedule(function(VIEWS.format(shape="(8, 6)", dtype="float32")))
    sch.transform_layout("root", "t", last_by_four, 0)
    sch.transform_layout("root", "t", last_by_four)
    check(sch, function(VIEWS.format(shape="(8, 6)", dtype="float32")))
    assert sch.func.body.allocs[0].shape == (8, 2, 1, 4)
    first, second = (i.arguments["index_map"] for i in sch.trace.instructions)
    assert first.count(",") == 3 and second.count(",") == 5
    blocks = Schedule(function(BLOCKS))
    blocks.reindex_cache_read("use", 0, "local", last_by_four)
    blocks.transform_block_layout("fill", lambda *v: [v[0] // 7, v[0] % 7])
    check(blocks, function(BLOCKS))


REFUSALS: list[tuple[str, dict[str, Any], str]] = [
    (BARE, {"buffer": "t", "index_map": lambda i, j: [i, j]}, r"\(1\) .*takes 2 indices"),
    (BARE, {"buffer": "q", "index_map": lambda i: [i]}, "there is no buffer `q`; there are A, B, t"),
    (BARE, {"buffer": "t", "index_map": lambda i: [i // 2]}, r"\(2\) .*\[0\] and \[1\] both map to \[0\]"),
    (BARE, {"buffer": "t", "index_map": lambda i: [i - 1]}, r"\(2\) .*negative index -1"),
    (BARE, {"buffer": "t", "index_map": lambda i: [i // 4, i % 4], "physical_shape": (4, 3)}, r"\(3\) .*\(4, 3\)"),
    (BARE, {"buffer": "t", "index_map": lambda i: [i // 4, i % 4], "physical_shape": (16,)}, r"\(3\)"),
    (
        BARE,
        {"buffer": "t", "index_map": lambda i: [i // 4, i % 4], "pad_value": "lambda io, ii: t[3, ii]"},
        r"\(4\) at io=3, ii=2 the pad value reads `t\[3, ii\]`, which is no logical element",
    ),
    (
        BARE,
        {"buffer": "t", "index_map": lambda i: [i // 4, i % 4], "pad_value": "lambda io, ii: A[ii]"},
        r"\(4\) .*`A` is not defined",
    ),
    (
        BARE,
        {"buffer": "t", "index_map": lambda i: [i // 4, i % 4], "pad_value": "lambda io, ii: t[io * ii, 0]"},
        r"\(4\) it is not known",
    ),
    (BARE, {"buffer": "t", "index_map": lambda i: [i // 4, i % 4], "pad_value": "many"}, r"\(4\) .*but got 'many'"),
]


@pytest.mark.parametrize(("text", "arguments", "sentence"), REFUSALS)
def test_refusals_give_the_condition_and_a_point(text: str, arguments: dict[str, Any], sentence: str) -> None:
    """Conditions 1 to 4; the program stays."""
    sch = Schedule(function(text))
    before = sch.func
    with pytest.raises(ScheduleError, match=sentence):
        sch.transform_layout("root", **arguments)
    assert sch.func is before and not sch.trace.instructions


def test_a_pad_value_reads_no_padding_of_an_earlier_layout() -> None:
    """Logical elements are those of the caller's array, whatever layouts lie between."""
    sch = Schedule(function(BARE))
    sch.transform_layout("root", "B", lambda i: [i // 4, i % 4], None)
    for index, good in (("0, ii % 2", True), ("3, ii % 2 + 2", False)):
        pad = f"lambda io, ii: B[{index}]"
        if good:
            Schedule(sch.func).transform_layout("root", "B", lambda io, ii: [io, ii], pad, physical_shape=(5, 4))
        else:
            with pytest.raises(ScheduleError, match=r"\(4\) at io=4, ii=0 the pad value reads .* no logical element"):
                sch.transform_layout("root", "B", lambda io, ii: [io, ii], pad, physical_shape=(5, 4))


@pytest.mark.parametrize("pad", [None, 0, "undef", "lambda io, ii: T.if_then_else(ii == 3, io + 0.5, T.undef())"])
def test_rewritten_loops_store_the_padding_themselves(pad: Any) -> None:
    """One nest over the physical indices; its loops are returned; a pad value that reads the buffer is refused."""
    sch = Schedule(function(BLOCKS))
    loops = sch.transform_layout("fill", "t", lambda i: [i // 4, i % 4], pad, rewrite_loops=True)
    assert loops == tuple(sch.get_loops("fill")) and "t_padding" not in sch.func.script()
    check(sch, function(BLOCKS))
    with pytest.raises(ScheduleError, match=r"\(8\) the pad value reads `t`"):
        Schedule(function(BLOCKS)).transform_layout(
            "fill", "t", lambda i: [i // 4, i % 4], "lambda io, ii: t[0, ii]", rewrite_loops=True
        )


def test_undef_in_an_index_of_a_pad_value_is_refused() -> None:
    """An index has to be known."""
    sch = Schedule(function(BARE))
    with pytest.raises(ScheduleError, match=r"\(4\) .*undef in an index"):
        sch.transform_layout(
            "root", "t", lambda i: [i // 4, i % 4], 'lambda io, ii: t[T.undef("int64"), 0]'
        )  # fmt: skip


VIEWS = """
@T.prim_func
def func(A: T.Buffer((8, 6), "float32"), B: T.Buffer((8, 6), "float32")):
    t = T.alloc_buffer((8, 6), "float32")
    view = T.decl_buffer({shape}, "{dtype}", data=t.data)
    for i, j in T.grid(8, 6):
        t[i, j] = A[i, j]
    for i, j in T.grid(8, 6):
        B[i, j] = t[i, j]
"""


@pytest.mark.parametrize(("shape", "dtype"), [("(6, 8)", "float32"), ("(48,)", "float32"), ("(8, 6)", "int32")])
def test_views_with_other_indices_refuse_a_layout(shape: str, dtype: str) -> None:
    """Condition 5 names the view and both shapes."""
    with pytest.raises(ScheduleError, match=r"\(5\) `view` views the memory of `t` as"):
        Schedule(function(VIEWS.format(shape=shape, dtype=dtype))).transform_layout("root", "t", lambda i, j: [j, i])


def test_a_view_asks_for_its_owner() -> None:
    """Transforming a view transforms the buffer, and all its views."""
    sch = Schedule(function(ALLOCATED))
    sch.transform_layout("root", "view", lambda i: [i // 4, i % 4], 0)
    check(sch, function(ALLOCATED))
    text = sch.func.script()
    assert 'T.allocate([4, 4], "float32")' in text and 'T.decl_buffer((4, 4), "float32", data=t.data)' in text


INTERLEAVED = """
@T.prim_func
def func(A: T.Buffer((14,), "float32"), B: T.Buffer((14,), "float32")):
    t = T.alloc_buffer((14,), "float32")
    for i in range(7):
        t[i] = A[i]
    {middle}
    for k in range(7):
        t[k + 7] = A[k + 7]
    for m in range(14):
        B[m] = t[m]
"""


def test_a_partly_written_buffer_is_padded_after_its_last_writer() -> None:
    """Two writers that share the work: one epilogue, after the second."""
    text = INTERLEAVED.format(middle="T.evaluate(0)")
    sch = Schedule(function(text))
    sch.transform_layout("root", "t", lambda i: [i // 4, i % 4], 0)
    check(sch, function(text))
    lines = sch.func.script()
    assert lines.count("T.float32(0.0)") == 1
    assert lines.index("A[k + 7]") < lines.index("T.float32(0.0)") < lines.index("B[m]")


@pytest.mark.parametrize("pad", [0, "undef"])
def test_writers_interleaved_with_readers_refuse_a_value(pad: object) -> None:
    """Condition 6 names the reader; undef stores nothing, so that it needs no place."""
    text = INTERLEAVED.format(middle="for j in range(7):\n        B[j] = t[j]")
    sch = Schedule(function(text))
    if pad == "undef":
        sch.transform_layout("root", "t", lambda i: [i // 4, i % 4], pad)
        check(sch, function(text))
        return
    with pytest.raises(ScheduleError, match=r"\(6\) .*the store to `B` in loop `j` reads it before"):
        sch.transform_layout("root", "t", lambda i: [i // 4, i % 4], pad)


def test_a_reader_in_the_nest_of_the_last_writer_is_refused() -> None:
    """The outermost loop ends after the reader."""
    text = BLOCKS.replace("    for j in range(14):\n", "").replace("spatial(14, j)", "spatial(14, i)")
    text = text.replace("t[13 - vj]", "t[vj]")
    with pytest.raises(ScheduleError, match=r"\(6\) .*block `use` reads it"):
        Schedule(function(text)).transform_layout("root", "t", lambda i: [i // 4, i % 4], 0)


def test_the_epilogue_stays_inside_the_scope_of_the_allocation() -> None:
    """A buffer of a block's own is padded in each instance of the block."""
    text = """
@T.prim_func
def func(A: T.Buffer((3, 6), "float32"), B: T.Buffer((3, 6), "float32")):
    for i in range(3):
        with T.block("row"):
            vi = T.axis.spatial(3, i)
            t = T.alloc_buffer((6,), "float32")
            for j in range(6):
                t[j] = A[vi, j]
            for k in range(6):
                B[vi, k] = t[5 - k]
"""
    sch = Schedule(function(text))
    sch.transform_layout("row", "t", lambda i: [i // 4, i % 4], 0)
    check(sch, function(text))
    body = sch.func.script()
    assert body.index('T.block("row")') < body.index("T.float32(0.0)") < body.index("B[vi")


def test_accumulation_reads_only_to_update() -> None:
    """A reduction's own loads do not stand between the writer and the epilogue."""
    text = """
@T.prim_func
def func(A: T.Buffer((14, 5), "float32"), B: T.Buffer((14,), "float32")):
    for i in range(14):
        B[i] = 0.0
        for j in range(5):
            B[i] = B[i] + A[i, j]
"""
    sch = Schedule(function(text))
    sch.transform_layout("root", "B", lambda i: [i // 4, i % 4], -1)
    check(sch, function(text))


def test_set_axis_separator_groups_axes_of_a_buffer_and_its_views() -> None:
    """The accesses stay; flattening follows the groups."""
    text = VIEWS.format(shape="(4, 6)", dtype="float32")
    sch = Schedule(function(text))
    sch.set_axis_separator("root", "t", [1])
    check(sch, function(text))
    assert sch.func.script().count("axis_separators=[1]") == 2
    flat = ss.transform.flatten_buffers(sch.func)
    same_results(function(text), flat)
    assert 't = T.alloc_buffer((8, 6), "float32", axis_separators=[1])' in flat.script()


@pytest.mark.parametrize("cuts", [[0], [2], [1, 1]])
def test_set_axis_separator_refuses(cuts: list[int]) -> None:
    """Condition 1: positions ascend strictly between 0 and the rank."""
    with pytest.raises(ScheduleError, match=r"\(1\) axis separators ascend strictly between 0 and 2"):
        Schedule(function(VIEWS.format(shape="(4, 6)", dtype="float32"))).set_axis_separator("root", "t", cuts)


MAPS = [
    ("lambda i, j: [j, i]", 0),
    ("lambda i, j: [i // 3, j, i % 3]", 1),
    ("lambda i, j: [i * 7 + j]", 0),
    ("lambda i, j: [(i + 2) // 4, AXIS_SEPARATOR, j, (i + 2) % 4]", 2),
    ("lambda i, j: [i + j, j]", 3),
    ("lambda i, j: [j // 2, i // 5, (j % 2) * 5 + i % 5]", 1),
]


def random_program(rng: np.random.Generator) -> str:
    """A chain of element-wise stages over one shape, some of them in blocks."""
    n, m = int(rng.integers(3, 8)), 7
    lines = [f'def func(A: T.Buffer(({n}, {m}), "int32"), B: T.Buffer(({n}, {m}), "int32")):']
    stages = int(rng.integers(1, 4))
    names = ["A", *(f"t{k}" for k in range(stages - 1)), "B"]
    lines += [f'    {t} = T.alloc_buffer(({n}, {m}), "int32")' for t in names[1:-1]]
    for k in range(stages):
        body = f"{names[k + 1]}[i{k}, j{k}] = {names[k]}[{n - 1} - i{k}, j{k}] * {int(rng.integers(1, 4))} + {k}"
        lines.append(f"    for i{k}, j{k} in T.grid({n}, {m}):")
        if rng.random() < 0.3:
            lines += [f'        with T.block("stage{k}"):', f"            {body}"]
        elif rng.random() < 0.5:
            body = body.replace(f"i{k}", f"v{k}").replace(f"j{k}", f"w{k}")
            axes = f'v{k}, w{k} = T.axis.remap("SS", [i{k}, j{k}])'
            lines += [f'        with T.block("stage{k}"):', f"            {axes}", f"            {body}"]
        else:
            lines.append(f"        {body}")
    return "@T.prim_func\n" + "\n".join(lines)


@pytest.mark.parametrize("seed", range(scaled(25)))
def test_random_layouts_keep_results_and_promises(seed: int) -> None:
    """Random maps and pad values on random buffers, at once and deferred: equal programs, equal results."""
    rng = np.random.default_rng(seed)
    original = function(random_program(rng))
    at_once, later = Schedule(original), original
    names = [b.name for b in (*original.buffers, *original.body.allocs)]
    for name in rng.permutation(names)[: int(rng.integers(1, len(names) + 1))]:
        text, extra = MAPS[int(rng.integers(len(MAPS)))]
        pad = [None, "undef", 0, 5, "lambda *_: 1"][int(rng.integers(4))]
        box = ss.IndexMap.parse(text).map_shape(original.buffers[0].shape)
        shape = tuple(int(e + rng.integers(0, 2 + extra)) for e in box) if rng.random() < 0.5 else None
        at_once.transform_layout("root", str(name), text, pad, physical_shape=shape)
        later = with_layout_transform(later, str(name), text, pad, shape)
    check(at_once, original)
    applied = ss.transform.apply_buffer_transforms(later)
    same_program(Schedule(applied).func, at_once.func)
    assert applied.layouts == at_once.func.layouts
    flat = ss.transform.flatten_buffers(at_once.func)
    verify(flat)
    same_results(original, flat)
    assert ss.transform.flatten_buffers(flat) == flat


def test_flattening_leaves_out_views_that_nothing_uses() -> None:
    text = """
@T.prim_func
def f(A: T.Buffer((4, 4), "float32"), C: T.Buffer((4, 4), "float32")):
    B = T.decl_buffer((4, 5), "float32")
    D = T.decl_buffer((4, 4), "float32", data=B.data, strides=[5, 1])
    for i, j in T.grid(4, 4):
        D[i, j] = A[i, j]
    for i, j in T.grid(4, 4):
        C[i, j] = D[i, j]
"""
    flat = ss.transform.flatten_buffers(text)
    same_results(function(text), flat)
    assert flat.script().count("decl_buffer") == 3  # views of A and C, and D
