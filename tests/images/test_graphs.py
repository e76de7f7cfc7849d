from __future__ import annotations

import importlib.util
import os
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from uniot.errors import DataError
from uniot.images import graphs
from uniot.images.embedding import extract
from uniot.images.graphs import cached_graph, graph_folder, graph_of
from uniot.images.inference import FrozenTrunk
from uniot.images.preparation import Preparation
from uniot.images.splitting import Split
from uniot.images.store import EmbeddingStore


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, and nothing in memory."""
    monkeypatch.setenv("UNIOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(graphs, "_open", {})
    return tmp_path / "cache" / "graphs"


@pytest.fixture
def forget(monkeypatch):
    """As in a new process."""
    return lambda: monkeypatch.setattr(graphs, "_open", {})


@pytest.fixture
def no_export(monkeypatch):
    """Fails the test if a trunk is exported again."""

    def use():
        monkeypatch.setattr(graphs, "_onnx", lambda *_: pytest.fail("exported again"))

    return use


@pytest.fixture
def without_runtime(monkeypatch):
    def use(name="onnxruntime"):
        found = importlib.util.find_spec
        monkeypatch.setattr(graphs, "find_spec", lambda module: None if module == name else found(module))

    return use


def pixels(of, number):
    size = of.preparation.crop
    return list(np.random.default_rng(0).integers(0, 256, (number, 3, size, size), dtype=np.uint8))


def rows_of(split, images):
    with FrozenTrunk(split, 4) as trunk:
        return np.concatenate([trunk.submit(images[start : start + 4]).result() for start in range(0, len(images), 4)])


def relative_difference(rows, expected):
    return np.abs(rows.astype(np.float64) - expected).max() / np.abs(expected).max()


class Chosen(nn.Module):
    """Outputs the mean colour of an image, computed by another formula while it is exported."""

    def __init__(self, when_exported):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self._when_exported = when_exported

    def forward(self, images):
        mean = images.mean((2, 3)) * self.weight
        return self._when_exported(mean) if torch.onnx.is_in_onnx_export() else mean


def split_of(trunk):
    return Split("tiny", "none", lambda: (trunk, nn.Identity()), Preparation(8, 8))


# --- equal numbers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("flip", [pytest.param(False, marks=pytest.mark.slow), True])
def test_default_backbone_has_the_same_embeddings_with_both_engines(default, flip, without_runtime):
    split, some = default.split("none", flip=flip), pixels(default, 5)
    with FrozenTrunk(split, 4) as trunk:
        assert trunk.made_by.endswith("with onnxruntime")
    rows = rows_of(split, some)
    without_runtime()
    assert relative_difference(rows, rows_of(split, some).astype(np.float64)) < 1e-3
    images = default.preparation.normalise(torch.from_numpy(np.stack(some)))
    with torch.no_grad():
        assert relative_difference(rows, split.trunk(images).numpy()) < 1e-3


@pytest.mark.parametrize("name", ["test_efficientnet", "test_resnet", "test_vit", "test_convnext"])
@pytest.mark.parametrize("cut", ["none", "last"])
def test_every_family_is_computed_by_the_runtime(backbone, name, cut):
    of = backbone(name)
    split, some = of.split(cut), pixels(of, 3)
    assert graph_of(split) is not None
    with torch.no_grad():
        expected = split.trunk(of.preparation.normalise(torch.from_numpy(np.stack(some)))).numpy()
    assert relative_difference(rows_of(split, some), expected) < 1e-3


def test_rows_of_the_runtime_do_not_depend_on_batch_size_or_threads(small):
    split, some = small.split("none"), pixels(small, 6)
    expected = rows_of(split, some)
    torch.set_num_threads(2)
    try:
        with FrozenTrunk(split, 3) as trunk:
            parts = [trunk.submit(some[start : start + 3]) for start in (0, 3)]
            assert np.array_equal(np.concatenate([part.result() for part in parts]), expected)
    finally:
        torch.set_num_threads(1)


# --- which engine -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["onnxruntime", "onnx"])
def test_torch_computes_without_the_packages_even_if_a_graph_is_cached(small, missing, without_runtime):
    split = small.split("none")
    assert graph_of(split) is not None
    without_runtime(missing)
    assert graph_of(split) is None
    assert cached_graph(split.made_by) is None
    assert rows_of(split, pixels(small, 2)).shape == (2, small.width)


def test_runtime_that_cannot_be_loaded_counts_as_missing(small, monkeypatch):
    def broken(name):
        raise ImportError("DLL load failed")

    monkeypatch.setattr(graphs, "import_module", broken)
    assert graph_of(small.split("none")) is None


def test_rows_of_the_two_engines_are_stored_apart(photographs, small, tmp_path, without_runtime):
    files, store = photographs(3), EmbeddingStore(tmp_path / "store")
    assert extract(files, small, store).computed == 3
    without_runtime()
    assert extract(files, small, store).computed == 3
    assert extract(files, small, store).computed == 0
    assert len(list(store.folder.glob("*.sqlite"))) == 2


def refuse(mean):
    raise RuntimeError("no such operator")


@pytest.mark.parametrize("when_exported", [refuse, lambda mean: mean * 1.01, lambda mean: mean * float("nan")])
def test_torch_computes_what_cannot_be_exported_and_that_is_remembered(when_exported, forget, no_export, cache):
    split = split_of(Chosen(when_exported))
    assert graph_of(split) is None
    (file,) = cache.glob("*.onnx")
    assert b"failed_with" in file.read_bytes()
    image = np.full((3, 8, 8), 255, np.uint8)
    expected = (1 - np.array(split.preparation.mean)) / split.preparation.std
    np.testing.assert_allclose(rows_of(split, [image])[0], expected, rtol=1e-3)
    forget()
    no_export()
    assert graph_of(split) is None


@pytest.mark.parametrize("error", [MemoryError, OSError])
def test_lack_of_memory_or_disk_is_not_remembered_as_a_network_that_cannot_be_exported(error, cache, monkeypatch):
    def lacks(*_):
        raise error

    split = split_of(Chosen(lambda mean: mean))
    export = graphs._onnx
    monkeypatch.setattr(graphs, "_onnx", lacks)
    with pytest.raises(DataError, match="cannot be prepared for onnxruntime"):
        graph_of(split)
    monkeypatch.setattr(graphs, "_onnx", export)
    assert graph_of(split) is not None


def test_failed_export_is_tried_again_with_another_version(forget, monkeypatch):
    split = split_of(Chosen(refuse))
    assert graph_of(split) is None
    forget()
    monkeypatch.setattr(split.trunk, "_when_exported", lambda mean: mean)
    assert graph_of(split) is None
    forget()
    monkeypatch.setattr(torch, "__version__", "99.0")
    assert graph_of(split) is not None


class Variation(nn.Module):
    """Outputs how much an image varies from row to row and from column to column; something else while exported."""

    def __init__(self, when_exported):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self._when_exported = when_exported

    def forward(self, images):
        down = (images[:, :, 1:] - images[:, :, :-1]).abs().mean((2, 3))
        across = (images[..., 1:] - images[..., :-1]).abs().mean((2, 3))
        if torch.onnx.is_in_onnx_export():
            down, across = self._when_exported(down, across)
        return (down + across) * self.weight


@pytest.mark.parametrize(
    ("when_exported", "is_used"),
    [
        pytest.param(lambda down, across: (down, across), True, id="right"),
        # A smooth image varies by less than the standard deviation, from column to column only; noise by more.
        pytest.param(lambda down, across: (0 * down, across), False, id="wrong on noise"),
        pytest.param(lambda down, across: (down, across.clamp_min(0.9)), False, id="wrong on a smooth image"),
    ],
)
def test_graph_is_used_if_it_is_right_on_noise_and_on_a_smooth_image(when_exported, is_used):
    assert (graph_of(split_of(Variation(when_exported))) is not None) is is_used


def test_difference_within_rounding_is_accepted():
    assert graph_of(split_of(Chosen(lambda mean: mean * (1 + 1e-5)))) is not None


# --- the cache --------------------------------------------------------------------------------------------


def test_graph_is_exported_once_for_all_processes(small, forget, no_export):
    split, some = small.split("none"), pixels(small, 2)
    rows = rows_of(split, some)
    forget()
    no_export()
    assert cached_graph(split.made_by) is not None
    assert np.array_equal(rows_of(split, some), rows)


def test_other_weights_have_another_graph(small):
    split = small.split("none")
    before = rows_of(split, pixels(small, 1))
    with torch.no_grad():
        next(split.trunk.parameters()).mul_(2)
    assert cached_graph(split.made_by) is None
    assert not np.array_equal(rows_of(split, pixels(small, 1)), before)


def damaged(file, other):
    content = file.read_bytes()
    line = content.index(b"\n") + 1
    return {
        "truncated": content[:-100],
        "cut in the header": content[:20],
        "empty": b"",
        "a flipped bit": content[:-50] + bytes([content[-50] ^ 1]) + content[-49:],
        "no graph": content[:line],
        "text": b"hello\n\xff",
        "of another trunk": other.read_bytes(),
    }


@pytest.mark.parametrize(
    "damage", ["truncated", "cut in the header", "empty", "a flipped bit", "no graph", "text", "of another trunk"]
)
def test_damaged_graph_is_exported_again(small, damage, forget, cache):
    split, some = small.split("none"), pixels(small, 2)
    graph_of(small.split("last"))
    (other,) = cache.glob("*.onnx")
    rows = rows_of(split, some)
    (file,) = set(cache.glob("*.onnx")) - {other}
    intact = file.read_bytes()
    file.write_bytes(damaged(file, other)[damage])
    forget()
    assert cached_graph(split.made_by) is None
    assert np.array_equal(rows_of(split, some), rows)
    assert file.read_bytes() == intact


def test_folder_that_cannot_be_written_is_no_error(small, cache):
    cache.parent.mkdir()
    cache.write_text("a file in place of the folder")
    assert graph_of(small.split("none")) is not None


def test_cache_removes_the_graphs_that_were_not_used_for_longest(small, cache, monkeypatch, forget):
    splits = [small.split("none"), small.split("last"), small.split("none", flip=True)]
    total = 0
    for age, split in zip((300, 200, 100), splits, strict=True):
        known = set(cache.glob("*.onnx"))
        graph_of(split)
        (file,) = set(cache.glob("*.onnx")) - known
        total += file.stat().st_size
        os.utime(file, (file.stat().st_mtime - age,) * 2)
    file.unlink()
    forget()
    assert graph_of(splits[0]) is not None  # which makes it younger than the second
    monkeypatch.setattr(graphs, "_MOST_BYTES", total - 1)
    graph_of(splits[2])
    forget()
    assert [cached_graph(split.made_by) is not None for split in splits] == [True, False, True]
    assert graph_folder() == cache


def test_export_says_nothing_and_leaves_the_network_alone(small, capfd):
    split = small.split("none")
    before = {name: value.clone() for name, value in split.trunk.state_dict().items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph_of(split)
    assert capfd.readouterr() == ("", "")
    assert not any(module.training for module in split.trunk.modules())
    assert all(torch.equal(value, before[name]) for name, value in split.trunk.state_dict().items())
