"""Jobs and replies: what is sent is what arrives, and what is not one of them is refused with the place."""

from __future__ import annotations

import dataclasses
import json
import types
from typing import Any, ClassVar, Union, get_args, get_origin, get_type_hints, is_typeddict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridesmith.ir.layout.layout import Layout
from stridesmith.ir.target import Target
from stridesmith.search.records.status import KINDS
from stridesmith.search.workers.protocol import (
    JOBS,
    REPLIES,
    Alive,
    Build,
    Failed,
    Job,
    Measure,
    Ping,
    ProtocolError,
    Reply,
    SelfTest,
    job_of,
    reply_of,
    to_text,
)

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | NUMBERS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
EXTENTS = st.lists(st.integers(1, 9), min_size=2, max_size=2)
LAYOUTS = st.builds(
    Layout.ordered, EXTENTS, st.permutations([0, 1]), st.tuples(st.integers(-1, 1), st.integers(2, 4)),
    EXTENTS, EXTENTS, st.sampled_from([None, "undef", 0, -1.5, float("-inf")]),
)  # fmt: skip
BASIC = {int: st.integers(-(2**40), 2**40), float: NUMBERS, bool: st.booleans(), str: st.text(max_size=10), Any: PLAIN}


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of an annotated type of the protocol."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Layout:
        return LAYOUTS
    if hint in BASIC:
        return BASIC[hint]
    if hint is type(None):
        return st.none()
    if origin in (Union, types.UnionType):
        return st.one_of([values(item) for item in arguments])
    if origin in (list, tuple):
        found = st.lists(values(arguments[0]), max_size=3)
        return found.map(tuple) if origin is tuple else found
    if origin is dict:
        return st.dictionaries(st.text(max_size=5), values(arguments[1]), max_size=3)
    if is_typeddict(hint):
        return st.fixed_dictionaries({name: values(item) for name, item in get_type_hints(hint).items()})
    return of_class(hint)


def of_class(kind: type) -> st.SearchStrategy[Any]:
    """Any value of a dataclass of the protocol."""
    hints = get_type_hints(kind, localns={"Layout": Layout})
    hints = {k: h for k, h in hints.items() if get_origin(h) is not ClassVar}
    fields = {name: values(hint) for name, hint in hints.items()}
    if kind is Failed:
        fields["status"] = st.sampled_from(list(KINDS)) | st.just("crash:SIGSEGV")
    return st.builds(kind, **fields)


@given(st.one_of([of_class(kind) for kind in JOBS.values()]))
def test_a_job_arrives_as_it_was_sent(job: Job[Reply]) -> None:
    """Through text and back, every field of every kind of job is equal; the text is one line of strict JSON."""
    text = to_text(job)
    assert "\n" not in text
    json.loads(text, parse_constant=lambda _: pytest.fail("not strict JSON"))
    assert job_of(text) == job
    assert type(job_of(text)) is type(job)


@given(st.data())
def test_a_reply_arrives_as_it_was_sent(data: st.DataObject) -> None:
    """Each job has one kind of reply; that, or a failure, comes back equal, and any other kind is refused."""
    kind = data.draw(st.sampled_from(list(JOBS.values())))
    job = data.draw(of_class(kind))
    reply = data.draw(of_class(data.draw(st.sampled_from(list(REPLIES.values())))))
    expected = get_args(kind.__orig_bases__[0])[0]
    if isinstance(reply, expected | Failed):
        assert reply_of(job, to_text(reply)) == reply
    else:
        with pytest.raises(ProtocolError, match=f"a {type(reply).__name__} is no reply to a {kind.__name__}"):
            reply_of(job, to_text(reply))


def test_every_job_has_a_reply_and_every_field_a_check() -> None:
    """Nothing is left out of the tables, and no field may hold just anything but traces, artifacts and facts."""
    kinds = {get_args(kind.__orig_bases__[0])[0] for kind in JOBS.values()}
    assert kinds | {Failed} == set(REPLIES.values())
    assert all(dataclasses.is_dataclass(kind) for kind in (*JOBS.values(), *REPLIES.values()))
    open_fields = {
        name
        for kind in (*JOBS.values(), *REPLIES.values())
        for name, hint in get_type_hints(kind).items()
        if "Any" in str(hint) and get_origin(hint) is not ClassVar
    }
    assert open_fields == {"trace", "facts"}


BUILD = json.loads(to_text(Build(script="def f(): pass", target=Target())))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "no line of JSON"),
        ("\x80", "no line of JSON"),
        ("[" * 100_000, "no line of JSON"),
        ("null", "unknown job None; there are Ping"),
        ("[]", "unknown job None"),
        ('{"job": "rm -rf"}', "unknown job 'rm -rf'"),
        ('{"job": ["Build"]}', "unknown job None|unknown job"),
        ('{"job": "Ping", "deadline": NaN}', "NaN is no number"),
        ('{"job": "Ping", "deadline": 1e999}', "deadline must be finite"),
        ('{"job": "Ping", "deadline": 1' + "0" * 400 + "}", "deadline must be finite"),
        ('{"job": "Ping", "deadline": "soon"}', "Ping.deadline must be float, but got 'soon'"),
        ('{"job": "Ping", "deadline": true}', "Ping.deadline must be float, but got True"),
        ('{"job": "Ping", "shell": "x"}', "Ping has no field 'shell'; there are deadline"),
        (json.dumps({**BUILD, "target": {"kind": "cpu", "extra": 1}}), "Build.target has no field 'extra'"),
        (json.dumps({**BUILD, "target": {"threads": "4"}}), r"Build.target.threads must be int, but got '4'"),
        (json.dumps({**BUILD, "target": "cpu"}), "Build.target: a Target is an object"),
        (json.dumps({**BUILD, "trace": {"a": 1}}), "Build.trace must be list"),
        (json.dumps({k: v for k, v in BUILD.items() if k != "script"}), "Build lacks script"),
        (json.dumps({**BUILD, "choice": {"sketch": "s", "indices": [0.5], "interface": {}}}), r"choice.indices\[0\]"),
        ('{"job": "Measure", "kernel": {"artifact": {"code": "x"}, "layouts": []}}', "artifact lacks entry, kind"),
    ],
)
def test_what_is_no_job_is_refused_with_the_place(text: str, sentence: str) -> None:
    """Unknown kinds and fields, missing ones, other types and wild numbers: one sentence, and no traceback."""
    with pytest.raises(ProtocolError, match=sentence):
        job_of(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"reply": "Failed", "status": "ok"}', "'ok' is no failure"),
        ('{"reply": "Failed", "status": "splendid"}', "'splendid' is no failure"),
        ('{"reply": "Failed"}', "Failed lacks status"),
        ('{"status": "ok", "pid": 1}', "unknown reply None"),
        ('{"reply": "Alive", "pid": "1"}', "Alive.pid must be int"),
        ('{"reply": "Built", "code_hash": "", "kernel": null}', "Built.kernel: a Compiled is an object"),
    ],
)
def test_what_is_no_reply_is_refused_with_the_place(text: str, sentence: str) -> None:
    """A worker that was overwritten by its kernel cannot make its driver believe anything odd."""
    with pytest.raises(ProtocolError, match=sentence):
        reply_of(Ping(), text)


def test_each_kind_of_job_says_what_its_deadline_means() -> None:
    """A build that is late is the candidate's fault in another way than a late run."""
    assert {Build: Build.timeout, Measure: Measure.timeout, SelfTest: SelfTest.timeout} == {
        Build: "build_timeout", Measure: "run_timeout", SelfTest: "run_timeout",
    }  # fmt: skip
    assert all(kind.timeout in KINDS for kind in JOBS.values())


def test_a_race_holds_only_results_of_measurements() -> None:
    """A reply inside of a reply is of the kind that belongs there."""
    text = json.dumps({"reply": "Raced", "results": [json.loads(to_text(Alive(pid=1)))], "roof": {}})
    with pytest.raises(ProtocolError, match=r"results\[0\]: a Alive is no Measured"):
        reply_of(Ping(), text)


def test_defaults_may_be_left_out() -> None:
    """What a text does not say is what the class says."""
    assert job_of('{"job": "SelfTest", "what": "ping"}') == SelfTest(what="ping")
    assert reply_of(Ping(), '{"reply": "Failed", "status": "oom"}') == Failed(status="oom")
