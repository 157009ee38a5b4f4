"""What a network of programs must fulfil, and that each breach is told in a sentence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from draws import func_of

import stridesmith as ss
from stridesmith.models.network import Network, Operator, Tensor, named_apart, problems


def relu(n: int) -> ss.PrimFunc:
    return func_of(f"""
@T.prim_func
def relu(x: T.Buffer(({n},), "float32"), y: T.Buffer(({n},), "float32")):
    for i in T.serial({n}):
        with T.block("y"):
            vi = T.axis.spatial({n}, i)
            y[vi] = T.max(x[vi], T.float32(0))
""")


@pytest.fixture
def chain() -> Network:
    """Two relus, one after the other."""
    tensors = {name: Tensor(name, (8,), "float32") for name in ("a", "b", "c")}
    nodes = (Operator("first", relu(8), ("a",), ("b",)), Operator("second", relu(8), ("b",), ("c",)))
    return Network("chain", ("a",), ("c",), tensors, {}, nodes)


def test_a_chain_has_no_problems(chain: Network) -> None:
    """Producers and consumers are found by tensor."""
    assert list(problems(chain)) == []
    assert chain.producer["b"].name == "first"
    assert [node.name for node in chain.consumers["b"]] == ["second"]
    assert chain.consumers["c"] == ()
    assert chain.tensors["a"].nbytes == 32


def test_each_breach_is_a_sentence(chain: Network) -> None:
    """Order, names, shapes and constants are checked."""
    backwards = chain.with_nodes(chain.nodes[::-1])
    assert "`second` reads `b`, which nothing before it computes" in list(problems(backwards))
    wide = {**chain.tensors, "b": Tensor("b", (9,), "float32")}
    assert "`first` passes `b`, float32[9], for `y`, float32[8]" in list(problems(replace(chain, tensors=wide)))
    twice = chain.with_nodes((*chain.nodes, replace(chain.nodes[0], name="again")))
    assert "`again` writes `b`, which there is already" in list(problems(twice))
    namesakes = chain.with_nodes(tuple(replace(node, name="one") for node in chain.nodes))
    assert "2 nodes are called `one`" in list(problems(namesakes))
    assert [node.name for node in named_apart(namesakes.nodes)] == ["one", "one -> c"]
    constant = replace(chain, inputs=(), constants={"a": np.zeros(7, "float32")})
    assert "constant `a` is float32[7], its tensor float32[8]" in list(problems(constant))
    assert "nothing computes the output `b`" in list(problems(replace(chain, outputs=("b",), nodes=())))
