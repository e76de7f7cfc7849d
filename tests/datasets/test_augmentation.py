import pytest
import torch

from uniot.datasets.digits import read_through, rewrite

STILL = {"rotation": 0, "scale": (1, 1), "stretch": 0, "shear": 0, "shift": 0, "threshold": (0.3, 0.3)}


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def bars(n=6):
    """An upright bar in the middle of each of n images."""
    images = torch.zeros(n, 28, 28)
    images[:, 6:22, 12:16] = 1
    return images


def centre(images):
    """Mean row and column of the ink."""
    places = torch.arange(28.0)
    ink = images.sum(dim=(1, 2))
    return (images.sum(dim=2) @ places) / ink, (images.sum(dim=1) @ places) / ink


@pytest.mark.parametrize("shape", [(5, 28, 28), (5, 1, 28, 28), (3, 9, 14)])
def test_shape_type_and_range_are_kept(shape):
    images = torch.rand(shape, generator=seeded())
    seen = rewrite(images, seeded(1))
    assert seen.shape == images.shape
    assert seen.dtype == images.dtype
    assert ((seen >= 0) & (seen <= 1)).all()


def test_same_generator_gives_the_same_images_and_another_seed_others():
    images = torch.rand(5, 28, 28, generator=seeded())
    assert torch.equal(rewrite(images, seeded(1)), rewrite(images, seeded(1)))
    assert not torch.equal(rewrite(images, seeded(1)), rewrite(images, seeded(2)))


def test_global_randomness_is_neither_read_nor_moved():
    images = bars()
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = rewrite(images, seeded(1))
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(1)
    assert torch.equal(first, rewrite(images, seeded(1)))


def test_input_is_left_alone():
    images = bars()
    rewrite(images, seeded())
    assert torch.equal(images, bars())


def test_each_image_has_a_map_of_its_own():
    seen = rewrite(bars(6), seeded())
    assert len(torch.unique(seen.flatten(1), dim=0)) == 6


def test_axis_of_the_channel_changes_nothing():
    images = bars()
    assert torch.equal(rewrite(images, seeded()), rewrite(images[:, None], seeded())[:, 0])


def test_shift_stays_within_its_pixels():
    rows, columns = centre(rewrite(bars(200), seeded(), **STILL | {"shift": 2}))
    for place in (rows, columns):
        assert ((place - 13.5).abs() <= 2.01).all()
        assert (place - 13.5).abs().max() > 1.5


def test_scale_changes_height_and_width_alike():
    seen = rewrite(bars(1), seeded(), **STILL | {"scale": (1.25, 1.25)})
    assert (seen[0] > 0.5).any(dim=1).sum() == pytest.approx(20, abs=2)
    assert (seen[0] > 0.5).any(dim=0).sum() == pytest.approx(5, abs=2)


def test_turn_by_a_right_angle_lays_the_bar_down():
    maps = torch.tensor([[[0.0, -1, 0], [1, 0, 0]]])
    torch.testing.assert_close(read_through(bars(1), maps), bars(1).transpose(1, 2), rtol=0, atol=1e-5)


def test_identity_map_changes_nothing():
    images = torch.rand(3, 28, 28, generator=seeded())
    maps = torch.tensor([[1.0, 0, 0], [0, 1, 0]]).expand(3, 2, 3)
    torch.testing.assert_close(read_through(images, maps), images, rtol=0, atol=1e-5)


def test_higher_threshold_thins_the_stroke():
    ink = [float(rewrite(bars(1), seeded(), **STILL | {"threshold": (t, t)}).sum()) for t in (0.1, 0.3, 0.5, 0.7)]
    assert ink == sorted(ink, reverse=True)
    assert ink[0] > bars(1).sum() > ink[-1]
