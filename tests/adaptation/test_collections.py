"""Two collections on disk, what people said about them, and the domains that a method is fitted to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from uniot.adaptation.adapt import adapt
from uniot.adaptation.collections import Collection, Collections
from uniot.config import Settings
from uniot.datasets import make_toy_domains
from uniot.errors import DataError, RunFolderError
from uniot.images.files import ImageFile
from uniot.io.predictions import read_predictions
from uniot.labelling.names import Names
from uniot.runs import Run

DECIDED = Names(["b", "d", "a"], np.array(["teapot", "", "cup"]), np.array(["named", "discarded", "class"]))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Embeddings of a source and of a target that names its samples, and the true labels of the target."""
    folder, toy = tmp_path_factory.mktemp("files"), make_toy_domains(seed=1)
    np.savez(folder / "source.npz", x=toy.x_source, y=toy.y_source)
    np.savez(folder / "target.npz", x=toy.x_target, ids=[f"sample {row}" for row in range(len(toy.x_target))])
    np.savez(folder / "truth.npz", y=toy.oracle_y_target)
    return folder / "source.npz", folder / "target.npz", folder / "truth.npz"


def test_labelled_images_join_the_source_and_discarded_ones_leave_the_target():
    source = Collection(None, ["s"], np.array(["cup"]), [ImageFile(Path("s.jpg"), "s", "cup")])
    target = Collection(None, list("abcd"), files=[ImageFile(Path(f"{name}.jpg"), name) for name in "abcd"])
    found = Collections(source, target, truth=np.array(list("wxyz"))).annotated(DECIDED)
    assert [(file.name, file.label) for file in found.source.files] == [("s", "cup"), ("b", "teapot"), ("a", "cup")]
    assert found.source.names == ["s", "b", "a"]
    assert [(file.name, file.label) for file in found.target.files] == [("a", None), ("b", None), ("c", None)]
    assert found.truth.tolist() == ["w", "x", "y"]
    assert found.n_annotated == 2


def test_annotated_embeddings_have_text_as_labels():
    source = Collection(None, ["0"], np.array([7]), rows=np.array([[9.0]]))
    target = Collection(None, list("abcd"), rows=np.arange(4.0)[:, None])
    found = Collections(source, target).annotated(DECIDED)
    assert found.source.rows.ravel().tolist() == [9, 1, 0]
    assert found.source.labels.tolist() == ["7", "teapot", "cup"]
    assert found.target.rows.ravel().tolist() == [0, 1, 2]
    assert found.target.names == ["a", "b", "c"]


def test_domains_know_the_names_of_their_samples_and_which_a_person_labelled(files):
    source, target, _ = files
    given = Names(["sample 3"], np.array(["teapot"]), np.array(["named"]))
    found = Collections.open(source, target, annotations=given)
    domains = found.domains(Settings.checked())
    assert domains.target_names[3] == "sample 3"
    assert domains.source_names[-1] == "sample 3"
    assert np.flatnonzero(domains.annotated).tolist() == [len(domains.source) - 1]
    assert np.flatnonzero(domains.in_target).tolist() == [len(domains.source) - 1]
    assert "teapot" in domains.classes


def test_a_run_is_made_from_python_and_is_that_of_the_estimator(files, tmp_path):
    from uniot import UniNCM

    source, target, truth = files
    collections = Collections.open(source, target, target_labels=str(truth))
    made = adapt(collections, Settings.checked(), tmp_path / "run")
    assert not made.was_finished
    toy = make_toy_domains(seed=1)
    np.testing.assert_array_equal(made.truth, toy.oracle_y_target)
    model = UniNCM(random_state=0).fit(toy.x_source, toy.y_source, toy.x_target)
    np.testing.assert_array_equal(made.model.labels(made.model.target), model.labels_)
    written = read_predictions(Run.open(tmp_path / "run").files.predictions)
    assert written.names[:2] == ["sample 0", "sample 1"]
    assert adapt(collections, Settings.checked(), tmp_path / "run").was_finished
    with pytest.raises(RunFolderError, match="contains no interrupted run"):
        adapt(collections, Settings.checked(), tmp_path / "other", resume=True)


def test_collections_that_do_not_belong_together_are_refused(files, tmp_path):
    source, target, _ = files
    with pytest.raises(DataError, match=r"source and target are the same file"):
        Collections.open(source, source)
    (tmp_path / "images" / "mug").mkdir(parents=True)
    (tmp_path / "images" / "mug" / "a.png").write_bytes(b"not opened")
    with pytest.raises(DataError, match=r"images contains images, but .*target.npz embeddings"):
        Collections.open(tmp_path / "images", target)
    with pytest.raises(DataError, match=r"target.npz contains no labels"):
        Collections.open(target, source)
