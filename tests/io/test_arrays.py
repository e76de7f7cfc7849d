"""Arrays that users give, and functions of rows applied in blocks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from uniot.errors import DataError
from uniot.io.arrays import as_inputs, in_blocks, scaled_rows, target_rows


def test_masked_values_are_refused_with_their_place():
    rows = np.ma.array(np.ones((4, 3)), mask=False)
    assert as_inputs(rows, "X_source").tolist() == np.ones((4, 3)).tolist()
    rows[2, 1] = np.ma.masked
    rows[3, 0] = np.ma.masked
    with pytest.raises(
        DataError, match="X_source is a masked array with 2 masked values, the first in row 2, column 1. Fill them"
    ):
        as_inputs(rows, "X_source")


def test_masked_domain_is_refused():
    with pytest.raises(DataError, match="sample_domain is a masked array with 1 masked values, the first in row 1"):
        target_rows(np.ma.array([1, -1], mask=[False, True]), 2)


def test_rows_that_hardly_differ_still_do_after_their_centre_is_subtracted():
    rows = 1e8 + np.random.default_rng(0).normal(size=(20, 5))
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    centre = unit.mean(axis=0)
    assert len(torch.unique(scaled_rows(rows, 1.0), dim=0)) < 20
    centred = scaled_rows(rows, 1.0, centre=centre)
    np.testing.assert_allclose(centred.numpy(), unit - centre, rtol=1e-3, atol=1e-15)


@pytest.mark.parametrize("n_rows", [0, 1, 4, 5, 9])
def test_rows_in_blocks_are_those_of_all_at_once_and_blocks_have_one_size(n_rows):
    rows, sizes = torch.arange(3.0 * n_rows).view(n_rows, 3), []

    def doubled(block):
        sizes.append(len(block))
        return 2 * block

    assert torch.equal(in_blocks(doubled, rows, 4), 2 * rows)
    assert sizes == [4] * max(1, -(-n_rows // 4))
