"""Files that are no .h5ad files, are damaged, or were made to harm."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

from cell_files import query, reference, written
from uniot.cells.reading import read_cells
from uniot.errors import DataError

# anndata and pandas announce changes of theirs.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture
def file(tmp_path):
    return written(query(), tmp_path / "query.h5ad")


def refused(path) -> str:
    with pytest.raises(DataError) as caught:
        read_cells(reference(), path)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 700
    return message


def replaced(path, place: str, **made) -> None:
    with h5py.File(path, "r+") as opened:
        attributes = dict(opened[place].attrs) if place in opened else {}
        if place in opened:
            del opened[place]
        opened.create_dataset(place, **made).attrs.update(attributes)


def test_missing_file_and_other_kinds_of_file(tmp_path, file):
    assert "missing.h5ad cannot be read (No such file or directory)" in refused(tmp_path / "missing.h5ad")
    (tmp_path / "text.h5ad").write_text("cell,type\n")
    assert "text.h5ad is not an .h5ad file, which is HDF5. Make one with" in refused(tmp_path / "text.h5ad")
    with h5py.File(tmp_path / "other.h5ad", "w") as other:
        other["x"] = np.zeros(3)
    assert "other.h5ad has no table 'obs', so it is not a file of cells." in refused(tmp_path / "other.h5ad")


def test_truncated_file(file):
    file.write_bytes(file.read_bytes()[:-5000])
    assert "query.h5ad cannot be read as .h5ad (" in refused(file)


@pytest.mark.parametrize("kind", [h5py.ExternalLink("other.h5ad", "/x"), h5py.SoftLink("/obs")])
def test_links_to_other_places_are_never_followed(file, kind):
    with h5py.File(file, "r+") as opened:
        opened["uns/link"] = kind
    assert "query.h5ad has a link to another place, 'uns/link', and only its own content is read." in refused(file)


def test_arrays_in_other_files_are_not_read(file, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"\1" * 480)
    with h5py.File(file, "r+") as opened:
        opened.create_dataset("obsm/X_pca", shape=(120,), dtype="f4", external=[(str(secret), 0, 480)])
    assert "query.h5ad keeps 'obsm/X_pca' in another file, which is not read." in refused(file)


def test_virtual_arrays_are_not_read(file, tmp_path):
    layout = h5py.VirtualLayout(shape=(120,), dtype="f4")
    layout[:] = h5py.VirtualSource(tmp_path / "other.h5", "x", shape=(120,))
    with h5py.File(file, "r+") as opened:
        opened.create_virtual_dataset("obsm/X_pca", layout)
    assert "keeps 'obsm/X_pca' in another file" in refused(file)


def test_objects_are_never_loaded(file):
    replaced(file, "obs/_index", data=np.full(120, np.void(b"\x80\x04pickle")))
    assert "holds obs/_index as objects of the type |V8, which uniot never loads." in refused(file)


def test_code_beyond_the_categories(tmp_path):
    path = written(reference(), tmp_path / "reference.h5ad")
    replaced(path, "obs/cell_type/codes", data=np.full(120, 9, dtype=np.int8))
    with pytest.raises(DataError, match=r"in obs/cell_type, a code is beyond its 3 categories"):
        read_cells(path, query())


@pytest.mark.parametrize("value", [-1, 60, 2**31 - 1])
def test_sparse_matrix_with_a_gene_that_does_not_exist(file, value):
    with h5py.File(file, "r+") as opened:
        opened["X/indices"][5] = value
    assert "query.h5ad cannot be read: X is a damaged sparse matrix." in refused(file)


def test_sparse_matrix_with_wrong_ends(file):
    with h5py.File(file, "r+") as opened:
        opened["X/indptr"][4] = 2**30
    assert "query.h5ad cannot be read: X is a damaged sparse matrix." in refused(file)


def test_array_that_would_take_all_memory_is_refused_before_it_is_allocated(file):
    with h5py.File(file, "r+") as opened:
        opened.create_dataset("obsm/X_pca", shape=(120, 10**10), dtype="f4", chunks=(1, 1000))
    with pytest.raises(DataError, match=r"would unpack its obsm/X_pca from \d+ bytes to 4.8e\+03 GB"):
        read_cells(file, file, use_rep="X_pca")


def test_matrix_that_would_never_end_is_refused(file):
    with h5py.File(file, "r+") as opened:
        del opened["X"]
        opened.create_dataset("X", shape=(120, 10**9), dtype="f4", chunks=(1, 1000))
    assert "query.h5ad would unpack its X from" in refused(file)


def test_one_long_text_for_many_cells_is_refused(file):
    with h5py.File(file, "r+") as opened:
        attributes = dict(opened["obs/_index"].attrs)
        del opened["obs/_index"]
        # All rows refer to a single text in the file.
        texts = opened.create_dataset("obs/_index", shape=(120,), dtype=h5py.string_dtype(), fillvalue="x" * 10_000_000)
        texts.attrs.update(attributes)
    assert "query.h5ad would unpack its obs/_index from" in refused(file)


def test_other_number_of_rows_in_a_representation(file):
    replaced(file, "obsm/X_pca", data=np.zeros((7, 3), dtype=np.float32))
    one = reference()
    one.obsm["X_pca"] = np.zeros((120, 3))
    with pytest.raises(DataError, match=r"query\.h5ad has 7 rows in obsm\['X_pca'\] for 120 cells"):
        read_cells(one, file, use_rep="X_pca")
