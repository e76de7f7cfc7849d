"""The private share and the border, from similarities drawn with a known share."""

from __future__ import annotations

import math

import pytest
import torch

from uniot.universal import find_border
from uniot.universal.share import _level


def draw(n_private: int, n_common: int, level: float = 0.6, seed: int = 0) -> torch.Tensor:
    """Common samples around a level, private ones at a third of it."""
    generator = torch.Generator().manual_seed(seed)
    private = 0.33 + 0.12 * torch.randn(n_private, generator=generator)
    common = 0.95 + 0.15 * torch.randn(n_common, generator=generator)
    return level * torch.cat([private, common])


@pytest.mark.parametrize("private", [0.2, 0.5, 0.7])
@pytest.mark.parametrize("level", [0.5, 0.6, 0.8])
def test_share_is_found_and_hardly_ever_too_large(private, level):
    n_private = round(2000 * private)
    similarity = draw(n_private, 2000 - n_private, level)
    found = find_border(similarity)
    assert private - 0.13 < found.share < private + 0.04
    known = similarity >= found.border
    assert float(known[:n_private].float().mean()) < 0.55 * (private < 0.3) + 0.05
    assert float(known[n_private:].float().mean()) > 0.95 - 0.1 * (private > 0.6)


def test_where_nothing_is_private_nearly_everything_is_known():
    similarity = draw(0, 1000)
    found = find_border(similarity)
    assert found.share < 0.05
    assert float((similarity < found.border).float().mean()) < 0.02


def test_where_nothing_reaches_the_least_level_nothing_is_common():
    similarity = draw(1000, 0, level=0.3)
    found = find_border(similarity)
    assert found.share > 0.9
    assert float((similarity >= found.border).float().mean()) < 0.05


def test_more_private_samples_mean_a_larger_share():
    shares = [find_border(draw(n, 1000 - n)).share for n in (0, 100, 300, 500, 700, 1000)]
    assert shares == sorted(shares)


def test_share_of_one_half_puts_the_border_where_both_shapes_meet():
    # At a level of 0.5 common samples vary most: the shapes N(0.4, 0.18) and N(0.85, 0.3) meet where
    # ((u - 0.4) / 0.18)² / 2 + ln 0.18 = ((u - 0.85) / 0.3)² / 2 + ln 0.3.
    similarity = torch.full((100,), 0.5)
    a, b, c = 1 / 0.18**2 - 1 / 0.3**2, -0.8 / 0.18**2 + 1.7 / 0.3**2, 0.16 / 0.18**2 - 0.7225 / 0.3**2
    c += 2 * math.log(0.18 / 0.3)
    meeting = (-b + math.sqrt(b * b - 4 * a * c)) / (2 * a)
    assert find_border(similarity, estimates_share=False).border == pytest.approx(0.5 * meeting, abs=1e-3)


def test_few_samples_are_enough():
    found = find_border(torch.tensor([0.1, 0.6]))
    assert 0 < found.share < 1
    assert math.isfinite(found.border)


@pytest.mark.parametrize(("value", "known"), [(-1.0, False), (0.0, False), (0.2, False), (0.4, True), (1.0, True)])
def test_samples_that_are_all_alike_are_all_known_or_all_unknown(value, known):
    assert (value >= find_border(torch.full((50,), value)).border) == known


def test_level_is_the_quantile_of_more_values_than_torch_takes():
    few = draw(40, 61).double()
    assert _level(few) == pytest.approx(float(few.quantile(0.8)), abs=1e-12)
    many = torch.linspace(0, 1, (1 << 24) + 2)
    with pytest.raises(RuntimeError, match="too large"):
        many.quantile(0.8)
    assert _level(many) == pytest.approx(0.8, abs=1e-5)
