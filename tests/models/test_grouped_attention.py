"""GroupQueryAttention of ``com.microsoft`` against its definition, one query of one head at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import node, value

from stridesmith.backends.devices import discover
from stridesmith.errors import ModelProblem
from stridesmith.models.api import compiled, network_of
from stridesmith.models.evaluate import evaluate
from stridesmith.models.network import Network
from stridesmith.models.onnx import read

Array = np.ndarray
INPUTS = (
    "query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length", "cos_cache", "sin_cache",
    "position_ids", "attention_bias", "head_sink", "k_scale", "v_scale", "q_norm_weight", "k_norm_weight",
    "query_seqlens",
)  # fmt: skip
HEADS, GROUPS, COLUMNS = 4, 2, 8


@dataclass(frozen=True)
class Text:
    """A call: rows of a batch, new tokens, tokens before each row's, places for them, and attributes."""

    tokens: int
    before: tuple[int, ...] = (0,)
    room: int = 0
    packed: bool = False
    extra: tuple[str, ...] = ()
    attributes: tuple[tuple[str, Any], ...] = ()

    @property
    def total(self) -> int:
        return max(self.before) + self.tokens

    def arrays(self) -> dict[str, Array]:
        """Inputs by name."""
        rng = np.random.default_rng(len(repr(self)))

        def floats(*shape: int) -> Array:
            return rng.standard_normal(shape).astype(np.float32)

        batch, length = len(self.before), self.tokens
        shape = (batch, length, COLUMNS * HEADS)
        found = {"query": floats(*shape[:2], COLUMNS * (HEADS + 2 * GROUPS) if self.packed else shape[2])}
        if not self.packed:
            found |= {name: floats(batch, length, COLUMNS * GROUPS) for name in ("key", "value")}
        if kept := max(self.before) + self.room:
            found |= {name: floats(batch, GROUPS, kept, COLUMNS) for name in ("past_key", "past_value")}
        found["seqlens_k"] = np.asarray(self.before, np.int32) + np.int32(length - 1)
        found["total_sequence_length"] = np.asarray(self.total, np.int32)
        more = {
            "cos_cache": floats(self.total + 4, 3), "sin_cache": floats(self.total + 4, 3),
            "position_ids": rng.integers(0, self.total, (batch, length)),
            "attention_bias": floats(1, HEADS, length, self.total), "head_sink": floats(HEADS),
        }  # fmt: skip
        return found | {name: more[name] for name in self.extra}

    def model(self, arrays: dict[str, Array], outputs: int = 3) -> onnx.ModelProto:
        """The node alone; the total length is a constant."""
        names = [name if name in arrays else "" for name in INPUTS]
        while not names[-1]:
            names.pop()
        results = ["y", "present_key", "present_value", "scores"][:outputs]
        values = {"num_heads": HEADS, "kv_num_heads": GROUPS} | dict(self.attributes)
        made = helper.make_node("GroupQueryAttention", names, results, "node", domain="com.microsoft", **values)
        known = "total_sequence_length"
        given = [value(name, a.shape, str(a.dtype)) for name, a in arrays.items() if name != known]
        tensors = [onnx.numpy_helper.from_array(arrays[known], known)] if known in arrays else []
        graph = helper.make_graph([made], "one", given, [onnx.ValueInfoProto(name=name) for name in results], tensors)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def turned(x: Array, cos: Array, sin: Array, interleaved: bool) -> Array:
    """A row of columns, of which pairs are turned."""
    half, found = len(cos), x.copy()
    first = slice(0, 2 * half, 2) if interleaved else slice(0, half)
    second = slice(1, 2 * half, 2) if interleaved else slice(half, 2 * half)
    found[first], found[second] = x[first] * cos - x[second] * sin, x[first] * sin + x[second] * cos
    return found


def defined(text: Text, given: dict[str, Array]) -> dict[str, Array]:
    """What the operator gives."""
    values, batch, length = dict(text.attributes), len(text.before), text.tokens
    names = ("query",) if text.packed else ("query", "key", "value")
    wide = np.concatenate([given[name] for name in names], axis=2)  # which is a copy
    q, k, v = np.split(wide.reshape(batch, length, -1, COLUMNS), [HEADS, HEADS + GROUPS], axis=2)
    begins = length == text.total
    if values.get("do_rotary"):
        for b, s in np.ndindex(batch, length):
            at = (0 if begins else text.before[b]) + s
            if "position_ids" in given:
                at = given["position_ids"][0, 0] + s if begins else given["position_ids"][b, s]
            for x in (q, k):
                for n in range(x.shape[2]):
                    tables = given["cos_cache"][at], given["sin_cache"][at]
                    x[b, s, n] = turned(x[b, s, n], *tables, bool(values.get("rotary_interleaved")))
    kept = given["past_key"].shape[2] if "past_key" in given else 0
    present = {}
    for name, new in (("key", k), ("value", v)):
        whole = np.zeros((batch, GROUPS, max(kept, text.total), COLUMNS), np.float32)
        for b, count in enumerate(text.before):
            if count:
                whole[b, :, :count] = given[f"past_{name}"][b, :, :count]
            whole[b, :, count : count + length] = new[b].transpose(1, 0, 2)
        present[name] = whole
    y = np.zeros((batch, length, HEADS, COLUMNS), np.float32)
    window = values.get("local_window_size", -1)
    for b, s, n in np.ndindex(batch, length, HEADS):
        group, own = n // (HEADS // GROUPS), text.before[b] + s
        last = own if values.get("causal", 1) else text.before[b] + length - 1
        seen = slice(max(0, own - window + 1) if window >= 0 else 0, last + 1)
        scores = present["key"][b, group, seen] @ q[b, s, n] * values.get("scale", COLUMNS**-0.5)
        if values.get("softcap"):
            scores = values["softcap"] * np.tanh(scores / values["softcap"])
        if "attention_bias" in given:
            scores = scores + given["attention_bias"][0, n, s, seen]
        least = [given["head_sink"][n]] if "head_sink" in given else [0.0] if values.get("smooth_softmax") else []
        shares = np.exp(np.concatenate([scores, least]))
        y[b, s, n] = (shares / shares.sum())[: len(scores)] @ present["value"][b, group, seen]
    return {"y": y.reshape(batch, length, -1), "present_key": present["key"], "present_value": present["value"]}


ROTARY = ("cos_cache", "sin_cache")
TEXTS = {
    "begins": Text(3, (0, 0), packed=True),
    "begins, with room": Text(3, (0, 0), 4, extra=("attention_bias",)),
    "begins, turned": Text(3, (0, 0), extra=(*ROTARY, "position_ids"), attributes=(("do_rotary", 1),)),
    "goes on": Text(1, (2, 5), attributes=(("scale", 0.3), ("softcap", 0.7))),
    "goes on, with room": Text(1, (2, 5), 3, packed=True, extra=ROTARY, attributes=(("do_rotary", 1),)),
    "goes on, in a window": Text(1, (2, 5), 3, extra=("head_sink",), attributes=(("local_window_size", 2),)),
    "several go on": Text(3, (4,), 6, extra=ROTARY, attributes=(("do_rotary", 1), ("rotary_interleaved", 1))),
    "several go on, in a window": Text(4, (3,), extra=("attention_bias",), attributes=(("local_window_size", 2),)),
    "sees all": Text(3, (2,), 1, attributes=(("causal", 0), ("smooth_softmax", 1))),
    "sees all, begins": Text(3, (0, 0), packed=True, attributes=(("causal", 0),)),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_it_is_its_definition(text: Text) -> None:
    """Of texts that begin and go on, with rows of different lengths, by programs alone."""
    given = text.arrays()
    network = read(text.model(given))
    assert not network.foreign
    found = evaluate(network, {name: given[name] for name in network.inputs})
    for name, right in defined(text, given).items():
        np.testing.assert_allclose(found[name], right, rtol=2e-5, atol=2e-5, err_msg=name)


def test_lengths_come_from_a_mask() -> None:
    """As exporters write it: how many places of each row count, and how many there are."""
    text = TEXTS["goes on, with room"]
    given = text.arrays()
    right = defined(text, given)
    made = text.model(given)
    made.graph.initializer.pop()
    made.graph.input.remove(next(i for i in made.graph.input if i.name == "seqlens_k"))
    made.graph.input.append(value("mask", (2, text.total), "int64"))
    constants = {"axes": np.array([1]), "one": np.array(1), "last": np.array(1)}
    made.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in constants.items())
    lengths = [
        node("ReduceSum", "mask axes", "count"), node("Sub", "count one", "before"),
        node("Cast", "before", "seqlens_k", to=onnx.TensorProto.INT32), node("Shape", "mask", "shape"),
        node("Gather", "shape last", "places"),
        node("Cast", "places", "total_sequence_length", to=onnx.TensorProto.INT32),
    ]  # fmt: skip
    nodes = [*lengths, *made.graph.node]
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    network = read(made)
    assert not network.foreign
    tokens = np.asarray(text.before)[:, None] + text.tokens
    given["mask"] = (np.arange(text.total) < tokens).astype(np.int64)
    found = evaluate(network, {name: given[name] for name in network.inputs})
    for name in right:
        np.testing.assert_allclose(found[name], right[name], rtol=2e-5, atol=2e-5, err_msg=name)


def test_calls_that_follow_each_other_are_one() -> None:
    """A compiled text of five tokens begins with three and goes on with one and one: what it keeps is passed on."""
    whole, target = Text(5), discover("cpu", 1)
    given = whole.arrays()
    right = defined(whole, given)
    kept: dict[str, Array] = {}
    for first, count in ((0, 3), (3, 1), (4, 1)):
        part = Text(count, (first,), 5 - first)
        new = {name: given[name][:, first : first + count] for name in ("query", "key", "value")}
        arrays = part.arrays() | new | kept
        network = network_of(part.model(arrays), target)
        found = compiled(network, target)({name: arrays[name] for name in network.inputs})
        np.testing.assert_allclose(found["y"], right["y"][:, first : first + count], rtol=2e-5, atol=2e-5)
        kept = {f"past_{name}": found[f"present_{name}"] for name in ("key", "value")}
    for name in ("key", "value"):
        np.testing.assert_allclose(kept[f"past_{name}"], right[f"present_{name}"], rtol=2e-5, atol=2e-5)


def refused(text: Text, outputs: int = 3, **changed: Array | None) -> Network:
    """Read a node that has other inputs."""
    arrays = {name: a for name, a in (text.arrays() | changed).items() if a is not None}
    return read(text.model(arrays, outputs))


def test_a_length_that_is_not_known_is_refused() -> None:
    """The shape of what is kept would depend on it."""
    text = TEXTS["goes on"]
    made = text.model(text.arrays())
    made.graph.initializer.pop()
    made.graph.input.append(value("total_sequence_length", (), "int32"))
    with pytest.raises(ModelProblem, match=r"computed from the contents of the model's inputs.*--input NAME=VALUE"):
        read(made)


@pytest.mark.parametrize(
    ("text", "changed", "told"),
    [
        (TEXTS["begins"], {"outputs": 4}, "its scores as a result"),
        (TEXTS["begins"], {"query_seqlens": np.full(2, 3, np.int32)}, "by which the new tokens of a row may be fewer"),
        (TEXTS["begins"], {"q_norm_weight": np.ones(COLUMNS, np.float32)}, "weights that normalise queries and keys"),
        (TEXTS["goes on"], {"past_key": np.zeros((2, GROUPS, 5, COLUMNS), np.int8)}, "a cache of int8 for a query"),
        (TEXTS["goes on"], {"past_value": None}, "keys without values, or values without keys"),
        (TEXTS["goes on"], {"key": np.zeros((2, 2, 16), np.float32)}, "2 new keys for 1 queries"),
        (TEXTS["goes on"], {"total_sequence_length": np.array(0, np.int32)}, "1 new tokens where there are 0 in all"),
        (Text(2, (3, 1)), {}, "2 new tokens after others for each of 2 rows of a batch"),
        (Text(2, attributes=(("do_rotary", 1),)), {}, "`do_rotary` without tables of cosines and sines"),
        (Text(2, attributes=(("kv_num_heads", 3),)), {}, "4 heads of queries in groups for 3 heads of keys"),
        (Text(1, (4,), attributes=(("sliding_window_cache", 1),)), {}, "a cache that forgets what leaves the window"),
    ],
)  # fmt: skip
def test_what_is_not_computed_is_refused_in_words(text: Text, changed: dict[str, Any], told: str) -> None:
    with pytest.raises(ModelProblem, match=told):
        refused(text, **changed)
