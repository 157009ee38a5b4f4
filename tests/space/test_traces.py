"""Traces: they replay, read back from JSON and text, lose what is dead, and say where they do not fit."""

from __future__ import annotations

import inspect
import json
import pydoc
import re
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc
from stridesmith.space.instruction import Instruction
from stridesmith.space.primitive import PRIMITIVES
from stridesmith.space.schedule import Schedule, ScheduleError, Trace

MATMUL = """
@T.prim_func
def main(a: T.Buffer((24, 16), "float32"), b: T.Buffer((16, 12), "float32"), c: T.Buffer((24, 12), "float32")):
    for i, j, k in T.grid(24, 12, 16):
        with T.block("matmul"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                c[vi, vj] = T.float32(0)
            c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]
"""


def program() -> PrimFunc:
    func = parse(MATMUL)
    assert isinstance(func, PrimFunc)
    return func


def computes_the_product(func: PrimFunc) -> bool:
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-4, 5, shape).astype("float32") for shape in ((24, 16), (16, 12)))
    c = np.full((24, 12), np.nan, "float32")
    interpret(func, a, b, c)
    return bool((c == a @ b).all())


def tiled(seed: int = 0) -> Schedule:
    """A schedule with drawn tiles, a layout and a loop that has a note."""
    sch = Schedule(program(), seed=seed)
    i, j, k = sch.get_loops("matmul")
    i0, i1 = sch.split(i, sch.sample_perfect_tile(i, n=2))
    j0, j1 = sch.split(j, sch.sample_perfect_tile(j, n=2, max_innermost_factor=8))
    width = sch.sample_categorical([2, 4, 8], [0.25, 0.5, 0.25])
    k0, k1 = sch.split(k, [None, width])
    sch.reorder(i0, j0, k0, i1, k1, j1)
    copy = sch.cache_read("matmul", 1, "global")
    sch.transform_layout(copy, ["write", 0], lambda k, j: [j // 4, k, j % 4], 0, rewrite_loops=True)
    sch.annotate(i0, "note", ["kept", 1])
    sch.decompose_reduction("matmul", k0)
    return sch


# ------------------------------------------------------------ forms


@pytest.mark.parametrize("seed", range(5))
def test_a_trace_replays_and_reads_back(seed: int) -> None:
    """From JSON, from JSON text and from Python text the same trace comes back, and gives an equal program."""
    sch = tiled(seed)
    assert computes_the_product(sch.func)
    assert Trace.from_json(sch.trace.to_json()) == sch.trace
    assert Trace.from_json(json.loads(json.dumps(sch.trace.to_json()))) == sch.trace
    assert Trace.from_script(sch.trace.script()) == sch.trace
    assert sch.trace.replay(program()).func == sch.func
    assert sch.trace.replay(program()).trace == sch.trace


def test_the_text_runs_as_python() -> None:
    """What `script` writes is a script over `sch`, which applies the same instructions."""
    sch = tiled()
    other = Schedule(program())
    exec(sch.trace.script(), {"sch": other})
    assert other.func == sch.func
    assert other.trace == sch.trace


def test_show_prints_the_program_with_the_trace_below(capsys: pytest.CaptureFixture[str]) -> None:
    """The output of `show` parses: the trace is a comment."""
    sch = tiled()
    sch.show()
    shown = capsys.readouterr().out
    assert parse(shown) == sch.func
    assert f"# {sch.trace.instructions[-1].script()}" in shown


def test_names_that_are_lambdas_stay_texts() -> None:
    """A text that only begins like a function is quoted, and reads back as itself."""
    for text in ("lambda", "lambda i, 1", "lambda i: [i]\n", " lambda i: i"):
        instruction = Instruction.checked("annotate", {"block_or_loop": "i", "ann_key": "k", "ann_val": text})
        assert Trace.from_script(instruction.script()) == Trace((instruction,))


@settings(max_examples=50, deadline=None)
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(1 - 2**63, 2**63 - 1)
        | st.floats(allow_nan=False)
        | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
        max_leaves=8,
    )
)
def test_any_json_value_survives_the_text(value: object) -> None:
    """Whatever an argument may hold is written as Python and read back equal."""
    instruction = Instruction("annotate", {"block_or_loop": "i", "ann_key": "k", "ann_val": value})
    (read,) = Trace.from_script(instruction.script()).instructions
    assert read == instruction


# ------------------------------------------------------------ dead instructions, decisions


def test_dead_instructions_are_dropped() -> None:
    """A draw that nobody uses goes; with the program, so does what changes nothing; what matters stays."""
    sch = Schedule(program())
    sch.sample_perfect_tile("i", n=3)
    kept = sch.sample_perfect_tile("j", n=2)
    sch.split("j", kept)
    sch.reorder("i", "j_0")
    sch.annotate("i", "note", 1)
    sch.annotate("i", "note", 1)
    names = [i.name for i in sch.trace.simplified()]
    assert names == ["sample_perfect_tile", "split", "reorder", "annotate", "annotate"]
    less = sch.trace.simplified(program())
    assert [i.name for i in less] == ["sample_perfect_tile", "split", "annotate"]
    assert less.replay(program()).func == sch.func


def test_another_decision_reaches_what_used_it() -> None:
    """Replacing the factors of a tile changes the split that they were given to."""
    sch = tiled()
    number = next(n for n, i in enumerate(sch.trace) if i.name == "sample_perfect_tile")
    changed = sch.trace.with_decisions({number: [3, 8]}).replay(program())
    assert [int(loop.extent.value) for loop in map(changed.get, ("i_0", "i_1"))] == [3, 8]
    assert computes_the_product(changed.func)


def test_a_decision_that_is_left_out_is_drawn_from_the_seed() -> None:
    """The same seed gives the same decision, other seeds give others."""
    trace = tiled().trace.with_decisions({0: None})
    drawn = {seed: tuple(trace.replay(program(), seed=seed).trace.decisions[0]) for seed in range(8)}
    assert drawn == {seed: tuple(trace.replay(program(), seed=seed).trace.decisions[0]) for seed in range(8)}
    assert len(set(drawn.values())) > 1


def test_mutation_changes_one_decision_and_keeps_the_rest() -> None:
    """A mutated trace differs in one decision, replays, and computes the same."""
    trace = tiled().trace
    for seed in range(4):
        mutated = trace.mutated(program(), seed)
        different = [n for n in trace.decisions if trace.decisions[n] != mutated.decisions[n]]
        assert len(different) == 1
        assert mutated == trace.mutated(program(), seed)
        assert computes_the_product(mutated.replay(program()).func)


def test_mutation_without_a_choice_is_refused() -> None:
    """A trace that draws nothing has nothing to mutate."""
    sch = Schedule(program())
    sch.split("i", [None, 4])
    with pytest.raises(ScheduleError, match="no decision of the trace has another value"):
        sch.trace.mutated(program(), 0)


def test_only_what_draws_has_a_decision() -> None:
    """Replacing the decision of another instruction is refused, with those that have one."""
    with pytest.raises(ScheduleError, match=r"instruction 1 has no decision; those that have are \[0, 2, 4\]"):
        tiled().trace.with_decisions({1: [2, 12]})


def test_arithmetic_on_what_was_drawn_is_concrete() -> None:
    """A drawn number is a number; only the number itself is kept by reference."""
    sch = Schedule(program())
    outer, inner = sch.sample_perfect_tile("i", n=2)
    assert outer * inner == 24
    sch.split("i", [None, inner * 1])
    assert sch.trace.instructions[-1].arguments["factors"] == [None, int(inner)]


def test_copies_of_a_schedule_go_their_own_ways() -> None:
    """A copy starts in the same state; what one does the other does not see."""
    sch = tiled()
    other = sch.copy(seed=5)
    other.split("i_0", [None, 1])
    assert sch.trace != other.trace and len(other.trace) == len(sch.trace) + 1
    assert Schedule(program(), seed=3).fork_seed() == Schedule(program(), seed=3).fork_seed()


# ------------------------------------------------------------ what does not fit


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("x", "a trace is a list"),
        ([["split", {"loop": "i"}, [], 4]], r"instruction 1 of 1: an instruction is \[name, arguments\]"),
        ([["unroll", {"loop": "i"}], ["nope", {}]], "instruction 2 of 2: there is no primitive 'nope'"),
        ([["splits", {}]], r"there is no primitive 'splits' .did you mean 'split'\?"),
        ([[["split"], {}]], "there is no primitive"),
        ([["split", 3]], "the arguments of `split` are an object, but got int"),
        ([["split", {"loop": "i", "factors": [2], "evil": 1}]], "has no argument `evil`; it has loop, factors"),
        ([["split", {"loop": "i"}]], "`split` needs the argument `factors`"),
        ([["split", {"loop": 3, "factors": [2]}]], "`loop` of `split` is str, but got 3"),
        (
            [["split", {"loop": "i", "factors": "abc"}]],
            r"`factors` of `split` is Sequence\[int \| None\], but got 'abc'",
        ),
        ([["split", {"loop": "i", "factors": [1.5]}]], "`factors` of `split` is"),
        ([["split", {"loop": "i", "factors": [True]}]], "`factors` of `split` is"),
        ([["reorder", {"loops": "ij"}]], "`loops` of `reorder` is str each, but got 'ij'"),
        ([["annotate", {"block_or_loop": "i", "ann_key": "k", "ann_val": {1: 2}}]], "the keys of an object are texts"),
        ([["annotate", {"block_or_loop": "i", "ann_key": "k", "ann_val": {"a"}}]], "'set' is no JSON value"),
        ([["annotate", {"block_or_loop": "i", "ann_key": "k" * 9000, "ann_val": 1}]], "the limit is 8192"),
        ([["split", {"loop": "i", "factors": [2]}, ["v0"]]], "`split` never draws values that have names"),
        ([["sample_categorical", {"candidates": [1], "probs": [1]}]], "draws values that have names"),
        ([["sample_categorical", {"candidates": [1], "probs": [1]}, ["a b"]]], "the results of .* are names"),
    ],
)
def test_a_trace_from_outside_is_checked(data: object, sentence: str) -> None:
    """Anything that is not a list of known primitives with fitting arguments is refused, with the place."""
    with pytest.raises(ScheduleError, match=sentence):
        Trace.from_json(data)


def test_deep_arguments_are_refused() -> None:
    """Nesting that nobody needs is refused before anything looks at it."""
    deep: object = 1
    for _ in range(10_000):
        deep = [deep]
    with pytest.raises(ScheduleError, match="nested deeper than 16 levels"):
        Trace.from_json([["annotate", {"block_or_loop": "i", "ann_key": "k", "ann_val": deep}]])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("sch.split(loop='i', factors=[None, 4]", "line 1: this is not Python"),
        ("import os", "line 1: a trace has only calls"),
        ("sch.unroll('i')\nsch.unroll(__import__('os').name)", "line 2: .* is no literal"),
        ("sch.unroll(loop=v0)", "`v0` is no literal and nothing that was drawn before"),
        ("sch.unroll(**{'loop': 'i'})", r"without `\*\*`"),
        ("sch.nope()", "line 1: there is no primitive 'nope'"),
        ("x = 3", "a trace has only calls"),
        ("os.system.unroll('i')", "a call is"),
        ("v0.x = sch.sample_perfect_tile('i', 2)", "a trace has only calls"),
        ("sch.unroll('i', 'j')", "too many positional arguments"),
        ("(" * 5000 + "sch.unroll('i')" + ")" * 5000, "line 1"),
        ("sch.unroll(" + "[" * 150 + "]" * 150 + ")", "line 1"),
    ],
)
def test_a_text_from_outside_is_checked(text: str, sentence: str) -> None:
    """Only calls of primitives with literal arguments are read; everything else is refused with its line."""
    with pytest.raises(ScheduleError, match=sentence):
        Trace.from_script(text)


def test_nothing_from_outside_is_run() -> None:
    """Reading hostile traces imports, compiles and executes nothing."""
    events: list[str] = []
    armed = True

    def hook(event: str, _: object) -> None:
        if armed and event in ("exec", "import", "os.system", "subprocess.Popen", "open"):
            events.append(event)

    Trace.from_script("sch.unroll('i')")
    sys.addaudithook(hook)
    for text in (
        "sch.unroll(open('/tmp/x'))",
        "sch.split('i', [exec('1')])",
        "sch.transform_layout('b', 'x', lambda i: [i()])",
    ):
        try:
            trace = Trace.from_script(text)
            trace.replay(program())
        except ScheduleError:
            continue
    armed = False
    assert events == []


@pytest.mark.parametrize(
    ("trace", "sentence"),
    [
        ([["unroll", {"loop": "i"}], ["split", {"loop": "q", "factors": [2, 4]}]],
         r"instruction 2 of 2: split\(loop='q', factors=\[2, 4\]\): there is no loop `q`; there are i, j, k"),
        ([["split", {"loop": "i", "factors": [2, 4]}]],
         r"instruction 1 of 1: split\(.*\): \(2\) the product of the factors \[2, 4\] is 8 and does not cover"),
        ([["parallel", {"loop": "k"}]], r"instruction 1 of 1: parallel\(loop='k'\): "),
        ([["transform_layout", {"block": "matmul", "buffer": "b", "index_map": "lambda i: i +"}]],
         "instruction 1 of 1: transform_layout"),
        ([["split", {"loop": "i", "factors": [None, {"ref": "v9"}]}]], "`v9` has not been drawn"),
        ([["sample_perfect_tile", {"loop": "i", "n": 2, "decision": [4, 4]}, ["v0", "v1"]]],
         r"\(2\) the decision \[4, 4\] must be 2 factors whose product is the extent 24"),
        ([["sample_perfect_tile", {"loop": "i", "n": 2, "decision": [2, 12]}, ["v0"]]], "2 values are drawn"),
    ],
)  # fmt: skip
def test_a_replay_that_does_not_fit_says_where_and_why(trace: list[object], sentence: str) -> None:
    """The instruction's number and call, the condition that failed, and what there is."""
    with pytest.raises(ScheduleError, match=sentence):
        Trace.from_json(trace).replay(program())


def test_every_primitive_is_documented_and_typed() -> None:
    """Each one says what it does, numbers its conditions from 1 where it has any, and its hints can be checked."""
    for name, primitive in PRIMITIVES.items():
        text = primitive.rewrite.__doc__ or ""
        assert text.strip(), f"{name} has no docstring"
        numbers = [int(n) for n in re.findall(r"\((\d)\)", text)]
        assert sorted(set(numbers)) == list(range(1, max(numbers, default=0) + 1)), f"{name} leaves out a condition"
        assert primitive.hints.keys() >= primitive.signature.parameters.keys(), f"{name} has arguments without a type"


def test_help_shows_what_one_passes() -> None:
    """Of a schedule's method, and of the class's, for primitives and wrappers; the class's method is that of each."""
    sch = Schedule(program())

    def shown(text: object) -> str:
        return str(text).replace("'", "")  # which Python 3.14 leaves out

    assert shown(inspect.signature(sch.split)).startswith("(loop: str, factors:")
    assert shown(inspect.signature(Schedule.split)).startswith("(self, /, loop: str, factors:")
    assert next(iter(inspect.signature(Schedule.sequential_buffer_access).parameters)) == "self"
    text = shown(pydoc.render_doc(Schedule.split, renderer=pydoc.plaintext))
    assert "split(self, /, loop: str" in text and "func" not in text.splitlines()[2]
    assert Schedule.split(sch, "i", [None, 4]) == ("i_0", "i_1")
    with pytest.raises(AttributeError, match="no attribute 'splitt'"):
        Schedule.splitt


HUGE_PAD = "lambda k, j: b[" + "+".join(["k"] * 2000) + ", j]"


@pytest.mark.parametrize(
    ("item", "match"),
    [
        (["split", {"loop": "i", "factors": [10**30, None]}], "at most 64 bits"),
        (["transform_loops", {"loops": ["i"], "index_map": "lambda i: [i]", "extents": [10**30]}], "at most 64 bits"),
        (["sample_categorical", {"candidates": [1], "probs": [10**400]}, ["v0"]], "at most 64 bits"),
        (["sample_categorical", {"candidates": [1], "probs": [1.0]}, ["class"]], "are names"),
        (["add_unit_loop", {"block_or_loop": "root"}], "nothing stands around the root block"),
        *(
            (["transform_layout", {"block": "matmul", "buffer": ["read", 1], "index_map": m}], "is a function of")
            for m in (5, None, ["a"])
        ),
        (
            [
                "transform_layout",
                {"block": "matmul", "buffer": ["read", 1], "index_map": "lambda k, j: [k, j]", "pad_value": HUGE_PAD},
            ],
            "nested too deeply|failed with RecursionError",
        ),
    ],
)
def test_a_trace_of_any_origin_is_refused_with_a_sentence(item: list[object], match: str) -> None:
    """Numbers that no type holds, names that are no names and odd arguments are no tracebacks."""
    with pytest.raises(ScheduleError, match=match):
        Trace.from_json([item]).replay(program())


def test_loops_of_a_moved_block_keep_their_names() -> None:
    """Traces that were stored name them: the loops that go make room for those that come."""
    sch = Schedule(program())
    outer, _ = sch.split("i", [6, 4])
    name = sch.cache_write("matmul", 0, "local")
    sch.reverse_compute_at(name, outer)
    sch.unroll("c_local_ax0")
    sch.vectorize("c_local_ax1")
