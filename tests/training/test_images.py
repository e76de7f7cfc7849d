from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from uniot.config import ImageSettings, Settings
from uniot.errors import DataError
from uniot.images.backbones import ImageReader
from uniot.images.embedding import ImageEmbeddings, ReadOptions, write_skipped
from uniot.images.files import ImageFile, labelled_images, labels_from_folders, unlabelled_images
from uniot.images.store import EmbeddingStore
from uniot.io.tensor_files import read_tensors, write_tensors
from uniot.runs.loading import load_model
from uniot.runs.saving import save_model
from uniot.training.domains import Domains, ImagePair, read_images
from uniot.training.fit import fit
from uniot.training.image_predictions import predict_images
from uniot.training.model import AdaptedModel

QUICK = Settings.checked(
    steps=12, batch_size=6, queue_size=12, n_clusters=4, hidden_size=32, feature_size=16, detection_start=3
)


@pytest.fixture(scope="module")
def folders(shape_folders) -> tuple[Path, Path]:
    return shape_folders


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> EmbeddingStore:
    return EmbeddingStore(tmp_path_factory.mktemp("store"))


@dataclasses.dataclass(frozen=True)
class Fitted:
    """Domains of images, and the model fitted to them."""

    domains: Domains
    model: AdaptedModel

    @property
    def images(self) -> ImagePair:
        return self.domains.images


def fitted(source, target, settings: Settings, reader: ImageReader, store: EmbeddingStore | None) -> Fitted:
    domains = read_images(source, target, reader, settings, ReadOptions(store))
    return Fitted(domains, fit(domains, settings))


def run(folders: tuple[Path, Path], store: EmbeddingStore | None, *, settings: Settings = QUICK, **images) -> Fitted:
    reader = ImageReader.open(ImageSettings.checked(**images))
    source, target = labelled_images(folders[0]), unlabelled_images(folders[1])
    return fitted(source, target, settings, reader, store)


@pytest.fixture(scope="module")
def frozen(folders, store) -> Fitted:
    return run(folders, store)


def weights(model: AdaptedModel) -> dict[str, torch.Tensor]:
    return model.method.state_dict()


def test_every_image_of_the_target_is_answered(frozen, folders):
    assert [file.name for file in frozen.images.target.files] == [file.name for file in unlabelled_images(folders[1])]
    assert len(frozen.model.target) == 24
    assert frozen.model.classes.tolist() == ["circle", "square", "stripes"]
    assert frozen.model.input_shape == (1280,)
    assert frozen.images.skipped == []


def test_second_run_computes_nothing_and_ends_with_the_same_weights(frozen, folders, store):
    again = run(folders, store)
    assert again.images.source.computed == again.images.target.computed == 0
    assert again.model.fingerprint == frozen.model.fingerprint
    assert all(torch.equal(value, weights(frozen.model)[name]) for name, value in weights(again.model).items())


def test_one_more_photograph_computes_only_that_one(folders, store, frozen, tmp_path):
    more = tmp_path / "unlabelled"
    shutil.copytree(folders[1], more)
    image = next((more / "circle").iterdir()).read_bytes()
    (more / "circle" / "zz.png").write_bytes(image + b"another content")
    again = run((folders[0], more), store)
    assert (again.images.source.computed, again.images.target.computed) == (0, 1)


def test_saved_run_answers_for_photographs_as_before(frozen, folders, tmp_path):
    save_model(frozen.model, tmp_path / "run", [file.name for file in frozen.images.target.files])
    loaded = load_model(tmp_path / "run")
    blocks = list(predict_images(loaded, unlabelled_images(folders[1])))
    known = np.concatenate([block.prediction.known for block in blocks])
    nearest = np.concatenate([block.prediction.nearest for block in blocks])
    np.testing.assert_array_equal(known, frozen.model.target.known)
    np.testing.assert_array_equal(nearest, frozen.model.target.nearest)


@pytest.mark.slow
def test_run_with_flip_remembers_it(frozen, folders, store, tmp_path):
    flipped = run(folders, store, flip=True)
    assert flipped.model.fingerprint != frozen.model.fingerprint
    assert (flipped.images.source.computed, flipped.images.target.computed) == (24, 24)
    save_model(flipped.model, tmp_path / "run", [file.name for file in flipped.images.target.files])
    loaded = load_model(tmp_path / "run")
    assert loaded.reader.settings.flip
    assert loaded.reader.split.made_by == flipped.model.reader.split.made_by != frozen.model.reader.split.made_by
    (block,) = predict_images(loaded, unlabelled_images(folders[1]))
    np.testing.assert_array_equal(block.prediction.known, flipped.model.target.known)
    np.testing.assert_allclose(block.prediction.confidence, flipped.model.target.confidence, atol=1e-6)


def test_run_from_before_flip_is_read_without_it(frozen, tmp_path):
    frozen.model.reader.save(tmp_path / "backbone.safetensors")
    tensors, about = read_tensors(tmp_path / "backbone.safetensors")
    assert about["images"].pop("flip") is False
    write_tensors(tmp_path / "backbone.safetensors", tensors, about)
    assert ImageReader.load(tmp_path / "backbone.safetensors").split.made_by == frozen.model.reader.split.made_by


def test_run_of_images_without_its_backbone_is_refused(frozen, tmp_path):
    save_model(frozen.model, tmp_path / "run")
    (tmp_path / "run" / "backbone.safetensors").unlink()
    with pytest.raises(OSError, match="backbone.safetensors is missing: the run was made from images"):
        load_model(tmp_path / "run")


def test_last_stage_is_trained_and_the_rest_is_not(folders, store, tmp_path):
    found = run(folders, store, fine_tune="last")
    reader = found.model.reader
    assert reader is not None
    before = ImageReader.open(reader.settings)
    trunk = before.split.trunk.state_dict()
    assert all(torch.equal(value, trunk[name]) for name, value in reader.split.trunk.state_dict().items())
    changed = {
        name: not torch.equal(value, before.tail.state_dict()[name])
        for name, value in found.model.method.backbone.tail.state_dict().items()
        if value.is_floating_point() and "running" not in name
    }
    assert all(changed.values())
    assert not any(name.startswith("running") for name in changed)
    assert len(found.model.input_shape) == 3
    save_model(found.model, tmp_path / "run")
    loaded = load_model(tmp_path / "run")
    (block,) = predict_images(loaded, unlabelled_images(folders[1]), ReadOptions(store))
    np.testing.assert_array_equal(block.prediction.known, found.model.target.known)
    np.testing.assert_allclose(block.prediction.confidence, found.model.target.confidence, rtol=1e-4)


@pytest.mark.slow
def test_whole_backbone_is_trained_from_the_images(folders, tmp_path):
    found = run(folders, None, settings=QUICK.model_copy(update={"steps": 2}), fine_tune="all", accumulate=2)
    assert found.model.input_shape == (3, 224, 224)
    before = ImageReader.open(found.model.reader.settings).tail.state_dict()
    trained = found.model.method.backbone.tail.state_dict()
    stem = next(iter(before))
    assert not torch.equal(trained[stem], before[stem])
    save_model(found.model, tmp_path / "run")
    (block,) = predict_images(load_model(tmp_path / "run"), unlabelled_images(folders[1]))
    np.testing.assert_array_equal(block.prediction.nearest, found.model.target.nearest)


def test_labels_of_the_target_reach_nothing(frozen, folders, store):
    # The files carry their classes in their names; what training is given does not.
    source, target = labelled_images(folders[0]), unlabelled_images(folders[1])
    assert labels_from_folders(target)[0] == "circle"
    assert all(file.label is None for file in target)
    mislabelled = [type(file)(file.path, file.name, "a wrong label") for file in target]
    reader = ImageReader.open(ImageSettings.checked())
    other = fitted(source, mislabelled, QUICK, reader, store)
    assert all(torch.equal(value, weights(frozen.model)[name]) for name, value in weights(other.model).items())


def test_unreadable_files_are_left_out_and_told(folders, store, tmp_path):
    target = tmp_path / "unlabelled"
    shutil.copytree(folders[1], target)
    (target / "circle" / "broken.jpg").write_bytes(b"no image")
    (target / "circle" / "empty.png").touch()
    found = run((folders[0], target), store)
    assert [one.name for one in found.images.skipped] == ["circle/broken.jpg", "circle/empty.png"]
    assert len(found.model.target) == 24
    write_skipped(tmp_path / "skipped.csv", found.images.skipped)
    lines = (tmp_path / "skipped.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "path,reason"
    assert lines[2] == "circle/empty.png,empty file"
    write_skipped(tmp_path / "skipped.csv", [])
    assert not (tmp_path / "skipped.csv").exists()


def test_images_in_both_collections_are_reported(folders, store, tmp_path):
    target = tmp_path / "unlabelled"
    shutil.copytree(folders[1], target)
    shutil.copy(next((folders[0] / "stripes").iterdir()), target / "copy.png")
    found = run((folders[0], target), store)
    ((source, copy),) = found.images.duplicates
    assert source.startswith("stripes/")
    assert copy == "copy.png"


def test_a_copy_is_paired_with_the_first_identical_image_of_the_source():
    def embeddings(collection: str, contents: str) -> ImageEmbeddings:
        files = [ImageFile(Path(collection) / str(row), f"{collection}/{row}") for row in range(len(contents))]
        return dataclasses.replace(ImageEmbeddings.none(), files=files, contents=list(contents))

    pair = ImagePair(embeddings("source", "abac"), embeddings("target", "xaca"))
    assert pair.duplicates == [("source/0", "target/1"), ("source/3", "target/2"), ("source/0", "target/3")]
    assert ImagePair(embeddings("source", "a"), embeddings("target", "b")).duplicates == []
    # A target image that a person labelled is in both collections on purpose.
    assert ImagePair(embeddings("same", "a"), embeddings("same", "a")).duplicates == []


def test_run_of_embeddings_cannot_read_images(frozen, folders):
    model = dataclasses.replace(frozen.model, reader=None)
    with pytest.raises(DataError, match="made from embeddings, and the network that made them is not known"):
        next(predict_images(model, unlabelled_images(folders[1])))
