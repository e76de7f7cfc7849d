"""How two collections of cells become rows that a method compares."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.decomposition import PCA

from cell_files import ENSEMBL, GENES, log_normalised, query, reference, written
from uniot.cells.cells import open_cells, unique_names
from uniot.cells.expression import find_expression
from uniot.cells.reading import read_cells, read_new_cells
from uniot.cells.representation import normalised_dispersions
from uniot.errors import DataError

import anndata  # isort: skip

# anndata and pandas announce changes of theirs.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def names(values) -> pd.Index:
    return pd.Index(list(values), dtype=object)


def dense(given) -> np.ndarray:
    with open_cells(given, "query") as opened:
        return np.concatenate([block.toarray() for _, block in find_expression(opened).blocks()])


def test_counts_are_normalised_as_scanpy_does():
    scanpy = pytest.importorskip("scanpy")
    adata = query()
    expected = adata.copy()
    scanpy.pp.normalize_total(expected, target_sum=1e4)
    scanpy.pp.log1p(expected)
    np.testing.assert_allclose(dense(adata), expected.X.toarray(), rtol=1e-5)


def test_log_normalised_expression_stays_as_it_is():
    adata = log_normalised(query())
    np.testing.assert_array_equal(dense(adata), adata.X.toarray())


def test_expression_of_another_target_sum_is_rescaled():
    adata = query()
    x = adata.X.toarray()
    adata.X = sparse.csr_matrix(np.log1p(x / x.sum(axis=1, keepdims=True) * 500).astype(np.float32))
    np.testing.assert_allclose(dense(adata), log_normalised(query()).X.toarray(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("place", ["layers", "raw"])
def test_counts_are_found_beside_scaled_expression(place):
    adata = query()
    expected = log_normalised(adata).X.toarray()
    if place == "layers":
        adata.layers["counts"] = adata.X.copy()
    else:
        adata.raw = adata.copy()
    x = expected - expected.mean(axis=0)
    adata.X = x
    np.testing.assert_allclose(dense(adata), expected, rtol=1e-5)


def test_scaled_expression_alone_is_refused():
    adata = log_normalised(query())
    adata.X = adata.X.toarray() - 1
    with pytest.raises(DataError, match=r"query has no expression to compare: X holds values below zero, as scaled"):
        dense(adata)


def test_nan_in_the_expression_is_refused():
    adata = query()
    adata.X[3, 4] = np.nan
    with pytest.raises(DataError, match=r"X of query holds NaN or infinite numbers\. Remove these cells or genes\."):
        dense(adata)


def test_components_are_those_of_scikit_learn():
    one, other = log_normalised(reference()), log_normalised(query())
    pair = read_cells(one, other)
    both = np.concatenate([one.X.toarray(), other.X.toarray()])[:, np.argsort(GENES)]
    expected = PCA(50, svd_solver="full").fit_transform(both)
    found = np.concatenate([pair.reference.rows, pair.query.rows])
    signs = np.sign((found * expected).sum(axis=0))
    np.testing.assert_allclose(found * signs, expected, atol=2e-3)
    assert pair.feature_names[:2] == ("PC1", "PC2")


def test_counts_and_log_normalised_cells_get_the_same_components():
    pair, other = read_cells(reference(), query()), read_cells(log_normalised(reference()), query())
    np.testing.assert_allclose(pair.query.rows, other.query.rows, atol=1e-3)
    assert "reference: X holds raw counts, normalised to 10000 per cell with log1p." in pair.notes
    assert "reference: X holds log-normalised expression." in other.notes


@pytest.mark.parametrize("form", ["csr", "csc", "dense", "compressed", "backed", "view"])
def test_every_form_of_the_same_cells_is_read_alike(form, tmp_path):
    adata = query()
    if form == "csc":
        adata.X = sparse.csc_matrix(adata.X)
    elif form == "dense":
        adata.X = adata.X.toarray()
    path = tmp_path / "query.h5ad"
    adata.write_h5ad(path, compression="gzip" if form == "compressed" else None)
    given = path
    if form == "backed":
        given = anndata.read_h5ad(path, backed="r")
    elif form == "view":
        given = anndata.concat([adata, adata], index_unique="-")[: adata.n_obs]
    np.testing.assert_allclose(
        read_cells(reference(), given).query.rows, read_cells(reference(), query()).query.rows, atol=1e-4
    )


def test_dispersions_are_those_of_scanpy():
    scanpy = pytest.importorskip("scanpy")
    adata = log_normalised(query())
    x = np.expm1(adata.X.toarray().astype(np.float64))
    found = normalised_dispersions(x.mean(axis=0), x.var(axis=0, ddof=1))
    expected = scanpy.pp.highly_variable_genes(adata, flavor="seurat", inplace=False)["dispersions_norm"]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def test_the_most_variable_genes_are_kept_if_there_are_many(monkeypatch):
    scanpy = pytest.importorskip("scanpy")
    monkeypatch.setattr("uniot.cells.representation.MOST_GENES", 12)
    one, other = log_normalised(reference()), log_normalised(query())
    found = [
        scanpy.pp.highly_variable_genes(adata, flavor="seurat", inplace=False)["dispersions_norm"].to_numpy()
        for adata in (one, other)
    ]
    expected = np.array(GENES)[np.argsort(-(found[0] + found[1]))[:12]]
    assert set(read_cells(one, other).projection.genes) == set(expected.tolist())


def test_query_is_projected_where_the_fit_put_it():
    pair = read_cells(reference(), query())
    rows, notes = read_new_cells(query(), use_rep=None, projection=pair.projection)
    np.testing.assert_allclose(rows.rows, pair.query.rows, atol=1e-3)
    assert notes == ("the new cells: X holds raw counts, normalised to 10000 per cell with log1p.",)


def test_missing_genes_of_new_cells_count_with_their_means():
    pair = read_cells(log_normalised(reference()), log_normalised(query()))
    new = log_normalised(query())[:, 5:].copy()
    rows, notes = read_new_cells(new, use_rep=None, projection=pair.projection)
    assert notes[-1] == "the new cells lacks 5 genes of the 60 that the run compares; they count with their means."
    filled = log_normalised(query())
    x = filled.X.toarray()
    position = [list(pair.projection.genes).index(gene) for gene in GENES[:5]]
    x[:, :5] = pair.projection.means[position]
    filled.X = sparse.csr_matrix(x)
    expected, _ = read_new_cells(filled, use_rep=None, projection=pair.projection)
    np.testing.assert_allclose(rows.rows, expected.rows, atol=1e-3)


def test_new_cells_of_other_genes_are_refused():
    pair = read_cells(reference(), query())
    strange = query()
    strange.var_names = names(ENSEMBL)
    with pytest.raises(DataError, match=r"the new cells has 0 of the 60 genes that the run compares"):
        read_new_cells(strange, use_rep=None, projection=pair.projection)


def test_representation_of_both_is_taken_as_it_is():
    one, other = reference(), query()
    for adata in (one, other):
        adata.obsm["X_both"] = np.arange(adata.n_obs * 3, dtype=np.float64).reshape(-1, 3)
    pair = read_cells(one, other, use_rep="X_both")
    np.testing.assert_array_equal(pair.query.rows, other.obsm["X_both"])
    assert (pair.query.rows.dtype, pair.projection, pair.feature_names) == (
        np.float32,
        None,
        ("X_both1", "X_both2", "X_both3"),
    )
    assert pair.inputs == {"label": "cell_type", "use_rep": "X_both"}


def test_missing_representation_lists_the_others():
    one, other = reference(), query()
    one.obsm["X_pca"] = other.obsm["X_umap"] = np.zeros((120, 2))
    with pytest.raises(DataError, match=r"query has no 'X_pca' in obsm\. It has: X_umap\."):
        read_cells(one, other, use_rep="X_pca")


def test_separate_principal_components_are_warned_of():
    one, other = reference(), query()
    for seed, adata in enumerate((one, other)):
        adata.obsm["X_pca"] = np.ones((120, 2))
        adata.varm["PCs"] = np.random.default_rng(seed).normal(size=(len(GENES), 2))
    notes = read_cells(one, other, use_rep="X_pca").notes
    assert notes[-1].startswith("Warning: the loadings in varm['PCs'] of the two files differ")
    other.varm["PCs"] = one.varm["PCs"]
    assert not read_cells(one, other, use_rep="X_pca").notes


def test_cells_without_a_label_are_left_out_and_counted():
    one = reference()
    labels = one.obs["cell_type"].astype(object)
    labels.iloc[:3], labels.iloc[3] = np.nan, "Unknown"
    one.obs["cell_type"] = labels
    pair = read_cells(one, query())
    assert "4 cells of reference have no label in obs['cell_type'] and are left out." in pair.notes
    assert pair.reference.names == [f"reference{row}" for row in range(4, 120)]
    assert len(pair.reference.rows) == len(pair.reference.labels) == 116


def test_missing_column_of_labels_lists_the_columns():
    one = reference()
    one.obs["leiden"] = one.obs["cell_type"]
    with pytest.raises(DataError, match=r"reference has no column 'celltype' in obs\. It has: cell_type, leiden\."):
        read_cells(one, query(), label="celltype")
    del one.obs["cell_type"]
    with pytest.raises(DataError, match=r"the column of labels is not named\. Give --label .* of reference: leiden\."):
        read_cells(one, query())


def test_continuous_labels_are_refused():
    one = reference()
    one.obs["score"] = np.linspace(0, 1, one.n_obs)
    with pytest.raises(DataError, match=r"obs\['score'\] of reference holds .* not continuous values"):
        read_cells(one, query(), label="score")


def test_repeated_names_get_a_number_as_in_anndata():
    expected = pd.Index(["a", "b", "a", "a", "a-1"], dtype=object)
    found = unique_names(expected.tolist())
    with pytest.warns(UserWarning, match="Suffix used"):
        assert found.names == anndata.utils.make_index_unique(expected).tolist()
    assert found.n_changed == 2
    other = query()
    other.obs_names = names(["one"] * 2 + [f"c{row}" for row in range(118)])
    pair = read_cells(reference(), other)
    assert pair.query.names[:3] == ["one", "one-1", "c0"]
    assert "1 cell of query has the name of another one and got a number" in " ".join(pair.notes)


def test_symbols_and_identifiers_are_matched_by_a_column_of_var():
    other = query()
    other.var_names = names([f"{gene}.{number % 3 + 1}" for number, gene in enumerate(ENSEMBL)])
    other.var["feature_name"] = np.array(GENES, dtype=object)
    pair = read_cells(reference(), other)
    np.testing.assert_allclose(pair.query.rows, read_cells(reference(), query()).query.rows, atol=1e-4)
    assert "Genes are matched by the index of var of reference and var['feature_name'] of query." in pair.notes


def test_versions_of_identifiers_are_ignored():
    one, other = reference(), query()
    one.var_names = names(f"{gene}.1" for gene in ENSEMBL)
    other.var_names = names(f"{gene}.7" for gene in ENSEMBL)
    assert read_cells(one, other).projection.genes == tuple(ENSEMBL)


@pytest.mark.parametrize(
    ("renamed", "words"),
    [
        (ENSEMBL, "query has Ensembl identifiers and reference has symbols. Add the symbols"),
        ([gene.capitalize() for gene in GENES], "60 names would agree without regard to capitals, as MS4A1 of humans"),
        (
            [f"probe{n}" for n in range(60)],
            'Give both the same kind of gene names, in var_names or as var["gene_symbols"].',
        ),
    ],
)
def test_no_gene_in_common_says_why(renamed, words):
    other = query()
    other.var_names = names(renamed)
    with pytest.raises(DataError) as caught:
        read_cells(reference(), other)
    assert str(caught.value).startswith("the two files have no gene in common: reference has MS4A1, CD79A, CD3D")
    assert words in str(caught.value)


def test_few_genes_in_common_are_refused():
    with pytest.raises(DataError, match=r"only 4 genes in common; at least 10 are needed"):
        read_cells(reference(), query()[:, :4].copy())


def test_empty_query_is_refused(tmp_path):
    empty = written(query()[:0].copy(), tmp_path / "empty.h5ad")
    with pytest.raises(DataError, match=r"empty\.h5ad has no cells\."):
        read_cells(reference(), empty)


def test_something_else_is_refused():
    with pytest.raises(
        DataError, match=r"query is a ndarray\. Give an AnnData object, or the path of an \.h5ad file\."
    ):
        read_cells(reference(), np.zeros((3, 3)))
