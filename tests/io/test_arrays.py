"""Rows of one array that are in another too."""

from __future__ import annotations

import pytest
import torch

from uniot.io.arrays import in_blocks, is_row_of


def test_rows_are_found_wherever_they_are_and_only_if_every_bit_is_the_same():
    others = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    rows = torch.stack([others[7], others[7] + 1e-6, others[49], torch.zeros(4), others[7]])
    assert is_row_of(rows, others).tolist() == [True, False, True, False, True]
    assert is_row_of(rows[:0], others).tolist() == []
    assert is_row_of(rows, others[:0]).tolist() == [False] * 5


def test_images_are_rows_too():
    images = torch.rand(6, 3, 3, generator=torch.Generator().manual_seed(0))
    assert is_row_of(images[2:4].transpose(1, 2).contiguous().transpose(1, 2), images).tolist() == [True, True]
    assert not is_row_of(images[:2].transpose(1, 2), images).any()


@pytest.mark.parametrize("n_rows", [0, 1, 4, 5, 9])
def test_rows_in_blocks_are_those_of_all_at_once_and_blocks_have_one_size(n_rows):
    rows, sizes = torch.arange(3.0 * n_rows).view(n_rows, 3), []

    def doubled(block):
        sizes.append(len(block))
        return 2 * block

    assert torch.equal(in_blocks(doubled, rows, 4), 2 * rows)
    assert sizes == [4] * max(1, -(-n_rows // 4))
