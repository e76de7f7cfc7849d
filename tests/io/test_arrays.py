"""Functions of rows, applied in blocks."""

from __future__ import annotations

import pytest
import torch

from uniot.io.arrays import in_blocks


@pytest.mark.parametrize("n_rows", [0, 1, 4, 5, 9])
def test_rows_in_blocks_are_those_of_all_at_once_and_blocks_have_one_size(n_rows):
    rows, sizes = torch.arange(3.0 * n_rows).view(n_rows, 3), []

    def doubled(block):
        sizes.append(len(block))
        return 2 * block

    assert torch.equal(in_blocks(doubled, rows, 4), 2 * rows)
    assert sizes == [4] * max(1, -(-n_rows // 4))
