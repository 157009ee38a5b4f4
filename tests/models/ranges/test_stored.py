"""A network of free sizes that was read once is read at its largest sizes alone, and is the same one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto
from onnx_models import model, node

from stridesmith.ir.target import Target
from stridesmith.models.network import Network, Operator
from stridesmith.models.onnx import importing
from stridesmith.models.ranges import reading, stored
from stridesmith.models.ranges.api import FreeSizes, network_of
from stridesmith.models.ranges.network import RangedNetwork

TARGET = Target(threads=2)
RNG = np.random.default_rng(0)


def images() -> ModelProto:
    """Convolutions with an activation, pooling, and a skip."""
    nodes = [
        node("Conv", "x a", "c", pads=[1, 1, 1, 1], strides=[2, 2]), node("Relu", "c", "r"),
        node("MaxPool", "r", "p", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Conv", "p b", "q", pads=[1, 1, 1, 1]), node("Add", "p q", "y"),
    ]  # fmt: skip
    weights = {"a": RNG.standard_normal((4, 3, 3, 3)), "b": RNG.standard_normal((4, 4, 3, 3))}
    constants = {name: array.astype(np.float32) for name, array in weights.items()}
    return model(nodes, {"x": (1, 3, "H", "W")}, constants)


def positions() -> ModelProto:
    """Rows with as many positions as there are of them."""
    nodes = [
        node("Shape", "x", "shape"), node("Slice", "shape zero one", "s"),
        node("Slice", "positions zero s", "here"), node("Add", "x here", "y"),
    ]  # fmt: skip
    table = RNG.standard_normal((64, 8)).astype(np.float32)
    return model(nodes, {"x": ("s", 8)}, {"zero": np.array([0]), "one": np.array([1]), "positions": table})


SIZES = {"images": FreeSizes({"H": (16, 64, 4), "W": (17, 60)}), "positions": FreeSizes({"s": (1, 64)})}
MODELS = {"images": images(), "positions": positions()}


@pytest.fixture(autouse=True)
def emptied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is kept yet."""
    monkeypatch.setattr(stored.CACHE, "name", str(tmp_path / "networks"))


def read(made: ModelProto, sizes: FreeSizes, monkeypatch: pytest.MonkeyPatch) -> tuple[RangedNetwork, int]:
    """The network, and how often its model was read."""
    count, resolve = 0, importing.resolve

    def counted(*arguments: object) -> object:
        nonlocal count
        count += 1
        return resolve(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(importing, "resolve", counted)
        return network_of(made, TARGET, sizes), count


def same(one: RangedNetwork, other: RangedNetwork) -> bool:
    """Whether two networks are one, numbers included."""
    assert list(one.constants) == list(other.constants)
    for name, array in one.constants.items():
        np.testing.assert_array_equal(array, other.constants[name])
    told = ("name", "ranges", "inputs", "outputs", "tensors", "nodes")
    return all(getattr(one, name) == getattr(other, name) for name in told)


@pytest.mark.parametrize("label", MODELS)
def test_a_network_that_was_read_is_read_at_its_largest_sizes_alone(
    label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is what it was: programs, shapes, and the numbers of its constants."""
    first, often = read(MODELS[label], SIZES[label], monkeypatch)
    again, once = read(MODELS[label], SIZES[label], monkeypatch)
    assert often > 5 and once == 1 and same(first, again)


def test_what_decides_a_network_is_part_of_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other ranges, another number in the file, or another version of what reads it: it is read at all sizes."""
    sizes = FreeSizes({"n": (1, 16)})
    nodes = [node("Slice", "x a b c", "y")]

    def made(end: int) -> ModelProto:
        numbers = {"a": np.array([0]), "b": np.array([end]), "c": np.array([1])}
        return model(nodes, {"x": ("n", 8)}, numbers)

    read(made(4), sizes, monkeypatch)
    assert read(made(4), sizes, monkeypatch)[1] == 1
    other, count = read(made(5), sizes, monkeypatch)
    assert count > 1 and other.shape("y", {"n": 3}) == (3, 5)
    assert read(made(4), FreeSizes({"n": (1, 17)}), monkeypatch)[1] > 1
    monkeypatch.setattr(stored, "software", lambda *_: "another version")
    assert read(made(4), sizes, monkeypatch)[1] > 1


@pytest.mark.parametrize("damage", ["{}", "[", '{"tensors": [], "constants": ["q"], "programs": []}'])
def test_a_damaged_network_is_read_anew(damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no network of this model is none."""
    first, _ = read(MODELS["images"], SIZES["images"], monkeypatch)
    asked: list[str] = []
    found = stored.CACHE.read

    def damaged(key: str) -> str | None:
        asked.append(key)
        return damage if found(key) else None

    monkeypatch.setattr(stored.CACHE, "read", damaged)
    again, often = read(MODELS["images"], SIZES["images"], monkeypatch)
    assert asked and often > 5 and same(first, again)


def test_a_model_with_weights_in_other_files_is_not_kept() -> None:
    """These are no part of its bytes."""
    made = model([node("MatMul", "x a", "y")], {"x": ("n", 2)}, {"a": np.eye(2, dtype=np.float32)})
    assert importing.reader(made).whole() is not None
    made.graph.initializer[0].data_location = TensorProto.EXTERNAL
    assert importing.reader(made).whole() is None


def test_groups_are_found_again_with_every_network_that_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that has all groups is added to them, and nothing is searched anew; what comes out is the same."""
    whole, first_rows = reading.Groups._searched, reading.first_rows
    searched: list[int] = []

    def counted(self: reading.Groups, networks: Sequence[Network]) -> list[list[Operator]]:
        searched.append(len(networks))
        return whole(self, networks)

    with monkeypatch.context() as patch:
        patch.setattr(reading.Groups, "_searched", counted)
        patch.setattr(reading, "first_rows", lambda *asked: first_rows(*asked)[:3])
        found, often = read(MODELS["images"], SIZES["images"], monkeypatch)
    assert searched == [3] and often > 4
    monkeypatch.setattr(stored.CACHE, "read", lambda _: None)
    assert same(found, network_of(MODELS["images"], TARGET, SIZES["images"]))
