"""The domains of two arrays: rows that are in both, and arrays that are mapped from a file."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from uniot.config import Settings
from uniot.datasets import make_toy_domains
from uniot.io.arrays import scaled_rows
from uniot.training.domains import Domains, domains_from_arrays, is_row_of
from uniot.training.samples import ScaledRows, TensorSamples, in_order


def test_rows_are_found_wherever_they_are_and_only_if_every_bit_is_the_same():
    others = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    rows = torch.stack([others[7], others[7] + 1e-6, others[49], torch.zeros(4), others[7]])
    assert is_row_of([rows[:2], rows[2:]], others.split(7)).tolist() == [True, False, True, False, True]
    assert is_row_of([], [others]).tolist() == []
    assert is_row_of([rows], []).tolist() == [False] * 5


def test_images_are_rows_too():
    images = torch.rand(6, 3, 3, generator=torch.Generator().manual_seed(0))
    assert is_row_of([images[2:4].transpose(1, 2).contiguous().transpose(1, 2)], [images]).tolist() == [True, True]
    assert not is_row_of([images[:2].transpose(1, 2)], [images]).any()


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int16])
@pytest.mark.parametrize("order", ["C", "F"])
def test_rows_of_an_array_are_scaled_alike_one_by_one_and_all_at_once(kind, order):
    array = np.asarray(100 * np.random.default_rng(0).standard_normal((50, 7)), dtype=kind, order=order)
    samples, whole = ScaledRows(array, 3.0), scaled_rows(np.ascontiguousarray(array), 3.0)
    assert torch.equal(samples.batch(torch.arange(50)), whole)
    assert all(torch.equal(samples.batch(torch.tensor([row]))[0], whole[row]) for row in range(50))
    assert torch.equal(samples.batch(torch.tensor([4, 9, 1]), part=slice(1, 3)), whole[[9, 1]])
    assert torch.equal(torch.cat(list(in_order(samples, 8))), whole)


def test_a_mapped_file_has_the_domains_of_the_array(tmp_path):
    toy = make_toy_domains(2, 1, 1, samples_per_class=20, dimensions=8)
    np.save(tmp_path / "target.npy", toy.x_target)
    mapped = np.load(tmp_path / "target.npy", mmap_mode="r")
    settings = Settings.checked(method="unincm")
    x = np.concatenate([toy.x_source, toy.x_target[3:5]])
    y = np.concatenate([toy.y_source, toy.y_source[:2]])
    in_memory, on_disk = (domains_from_arrays(x, y, target, settings) for target in (toy.x_target, mapped))
    assert on_disk.digest == in_memory.digest
    assert np.flatnonzero(on_disk.in_target).tolist() == [len(x) - 2, len(x) - 1]
    assert domains_from_arrays(x, y, mapped[:-1], settings).digest != in_memory.digest


def test_names_of_folders_that_look_the_same_are_warned_of_as_those_of_tables_are():
    samples = TensorSamples(torch.zeros(3, 2))
    domains = Domains(samples, np.array(["cat", "cat ", "dog"]), samples, np.zeros(3, dtype=bool), "digest")
    (words,) = domains.warnings("unknown")
    assert "'cat' and 'cat '" in words
