"""Kernels are compared with PyTorch on masks as people send them, before they run in its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

from torch_parts import parts_of  # noqa: E402

from stridesmith.pytorch.probes import KINDS, masked, masks_of, probes  # noqa: E402

LOWEST = torch.finfo(torch.float32).min


def drawn(*shape: int) -> Any:
    torch.manual_seed(0)
    return torch.randn(shape)


def attention(q: Any, kv: Any, mask: Any) -> Any:
    return F.scaled_dot_product_attention(q * 2, kv, kv, attn_mask=mask)


def written_out(q: Any, kv: Any, mask: Any) -> Any:
    return torch.softmax(q @ kv.transpose(-1, -2) / 2 + mask.view(1, 1, 6, 5), -1) @ kv


def chosen(q: Any, kv: Any, mask: Any) -> Any:
    return torch.softmax((q @ kv.transpose(-1, -2)).masked_fill(mask == 0, LOWEST), -1) @ kv


@pytest.mark.parametrize("model", [attention, written_out, chosen])
@pytest.mark.parametrize("kind", [torch.float32, torch.bool], ids=str)
def test_what_a_softmax_reads_without_a_sum_is_a_mask(model: Callable[..., Any], kind: Any) -> None:
    """Queries, keys and values are none: a sum lies between."""
    mask = torch.zeros(6, 5, dtype=kind)
    if kind == torch.bool and model is written_out:
        mask = mask.to(torch.float32)
    (part,) = parts_of(model, drawn(1, 2, 6, 4), drawn(1, 2, 5, 4), mask).parts
    (found,) = masks_of(part)
    assert tuple(found.meta["val"].shape) == (6, 5)
    assert len(probes(part, {})) == 2
    torch.testing.assert_close(*(next(iter(draw.values())) for draw in probes(part, {})), rtol=9, atol=9)


def test_a_part_without_a_softmax_has_one_probe() -> None:
    """Its inputs are random."""
    (part,) = parts_of(lambda x: torch.nn.functional.layer_norm(x * 2, (4,)), drawn(3, 4)).parts
    assert masks_of(part) == [] and len(probes(part, {})) == 1


def test_each_row_of_a_small_mask_is_masked_in_each_way() -> None:
    """By -inf, by the lowest number, by both, in half by each of them, and not at all."""
    rows = [masked(torch.zeros(1, 4), turn)[0] for turn in range(KINDS)]
    assert [sorted(set(row.tolist())) for row in rows] == [
        [-torch.inf], [LOWEST], [-torch.inf, LOWEST], [-torch.inf, 0.0], [LOWEST, 0.0], [0.0],
    ]  # fmt: skip
    truths = masked(torch.ones(6, 4, dtype=torch.bool), 0)
    assert truths.tolist()[0] == [False] * 4 and truths.tolist()[3] == [True, True, False, False]
