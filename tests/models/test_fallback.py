"""What runs operators that have no program here."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx_models import model, node

import stridesmith as ss
from stridesmith.errors import ModelProblem, ToolMissing, UsageError
from stridesmith.models import fallback
from stridesmith.models.evaluate import evaluate
from stridesmith.models.network import Foreign, Network
from stridesmith.models.onnx import read

X = np.array([1, 1, 3, 3, 3, 7, 8, 6, 7, 5, 6, 8], np.int32)
WORDS = [2, 3, 5, 4, 5, 6, 7, 8, 6, 7]
"""Words alone and in pairs, which are counted."""


def foreign_network() -> Network:
    """A network of one operator that has no program: words that are counted."""
    made = node(
        "TfIdfVectorizer", "x", "y", mode="TF", min_gram_length=2, max_gram_length=2, max_skip_count=0,
        ngram_counts=[0, 4], ngram_indexes=[0, 1, 2, 3, 4, 5, 6], pool_int64s=WORDS,
    )  # fmt: skip
    found = read(model([made], {"x": (12,)}, dtype="int32"))
    assert [one.op for one in found.foreign] == ["TfIdfVectorizer"]
    return found


def test_onnxruntime_runs_what_it_knows_where_it_is_asked_for() -> None:
    """Then the node says so, and the results are the same; by default it is the reference."""
    pytest.importorskip("onnxruntime")
    plain = foreign_network()
    wanted = np.array([0, 0, 0, 0, 1, 1, 1], np.float32)
    changed = fallback.with_fallback(plain, "onnxruntime")
    assert [one.by for one in plain.foreign] == ["reference"]
    assert [one.by for one in changed.foreign] == ["onnxruntime"]
    np.testing.assert_array_equal(evaluate(changed, {"x": X})["y"], wanted)
    for network in (plain, changed):
        np.testing.assert_array_equal(ss.compile(network)(X), wanted)
    unknown = plain.with_nodes(tuple(replace(one, model=b"none") for one in plain.foreign))
    assert [one.by for one in fallback.with_fallback(unknown, "onnxruntime").foreign] == ["reference"]


def test_what_is_no_fallback_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name, and one that is not installed, before anything is compiled."""
    with pytest.raises(UsageError, match=r"there is no fallback 'onnxruntim' .did you mean"):
        ss.compile(foreign_network(), fallback="onnxruntim")
    monkeypatch.setattr(fallback, "find_spec", lambda name: None)
    with pytest.raises(ToolMissing, match="pip install onnxruntime"):
        ss.compile(foreign_network(), fallback="onnxruntime")


def test_who_fails_is_named() -> None:
    """A node that its fallback cannot run is a ModelProblem that says which one that was."""
    (one,) = foreign_network().foreign
    with pytest.raises(ModelProblem, match="the reference implementation of ONNX cannot run"):
        fallback.run_foreign(one, {})
    pytest.importorskip("onnxruntime")
    assert isinstance(one, Foreign)
    with pytest.raises(ModelProblem, match="ONNX Runtime cannot run"):
        fallback.run_foreign(replace(one, by="onnxruntime", model=b"none"), {})
