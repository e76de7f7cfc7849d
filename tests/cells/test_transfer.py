"""Labels of a query, marker genes of its new groups, and the columns that scanpy plots."""

from __future__ import annotations

import anndata
import numpy as np
import pandas as pd
import pytest

import uniot
from cell_files import GENES, log_normalised, query, reference, written
from uniot.cells import LabelTransfer
from uniot.cells.cells import open_cells
from uniot.cells.expression import find_expression
from uniot.cells.markers import compare_groups, marker_genes
from uniot.errors import DataError

# anndata and pandas announce changes of theirs; small collections are warned of.
pytestmark = [
    pytest.mark.medium,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]


@pytest.fixture(scope="module")
def transfer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cells")
    paths = written(reference(), folder / "reference.h5ad"), written(query(), folder / "query.h5ad")
    return LabelTransfer.fit(*paths, "cell_type")


def test_common_types_are_labelled_and_the_new_one_is_a_group():
    given = query()
    labelled = uniot.cells.transfer_labels(reference(), given, label="cell_type")
    true = given.obs["cell_type"].to_numpy().astype(str)
    found = labelled.obs["uniot_label"].to_numpy().astype(str)
    is_known = found != "unknown"
    common = is_known & (true != "NK")
    assert (found[common] == true[common]).mean() > 0.95
    # Three types of forty cells: where known ends is uncertain, which types are nearer is not.
    assert (~is_known)[true == "NK"].mean() > 0.8
    assert is_known[true != "NK"].mean() > 0.7
    assert "uniot_label" not in given.obs
    assert labelled.obs["uniot_confidence"].between(0, 1).all()
    assert isinstance(labelled.obs["uniot_label"].dtype, pd.CategoricalDtype)
    has_group = labelled.obs["uniot_group"].notna().to_numpy()
    assert (has_group <= ~is_known).all()
    assert labelled.obs["uniot_group"][true == "NK"].mode()[0] == "group 0"
    assert {"method", "unknown_fraction", "warnings", "notes", "unknown_fraction_interval"} <= set(
        labelled.uns["uniot"]
    )


def test_files_and_objects_give_the_same_labels_and_the_result_can_be_written(transfer, tmp_path):
    labelled = transfer.labelled()
    others = uniot.cells.transfer_labels(reference(), query(), label="cell_type")
    assert labelled.obs["uniot_label"].tolist() == others.obs["uniot_label"].tolist()
    others.write_h5ad(tmp_path / "labelled.h5ad")
    again = anndata.read_h5ad(tmp_path / "labelled.h5ad")
    assert again.obs["uniot_group"].isna().tolist() == others.obs["uniot_group"].isna().tolist()


def test_told_cells_keep_what_a_person_said(transfer):
    asked = transfer.ask(3)
    assert set(asked) <= set(transfer.cells.query.names)
    transfer.tell(asked, ["unknown", "B", "unknown"])
    labelled = transfer.labelled().obs.loc[asked]
    assert labelled["uniot_label"].tolist() == ["unknown", "B", "unknown"]
    assert labelled["uniot_confidence"].tolist() == [1, 1, 1]
    with pytest.raises(DataError, match=r"the query has no cell called nobody\. Give names as `ask` returns them\."):
        transfer.tell(["nobody"], ["B"])


def test_new_cells_get_the_labels_of_equal_cells_of_the_query(transfer):
    rows, labels = transfer.predict(query())
    assert len(rows) == 120
    assert (labels == transfer.model.labels_).mean() > 0.97


def test_markers_of_the_new_group_are_those_of_its_cells(transfer):
    true = query().obs["cell_type"].to_numpy().astype(str)
    group = pd.Series(transfer.model.groups_[true == "NK"]).mode()[0]
    described = transfer.markers()
    assert described.kind == "marker genes"
    assert set(described.of(group).terms[:2]) == {"NKG7", "GNLY"}
    assert set(described.of(group).suggestions[0].split()) == {"NKG7+", "GNLY+"}


def test_scores_are_those_of_scanpy():
    scanpy = pytest.importorskip("scanpy")
    adata = log_normalised(query())
    true = adata.obs["cell_type"].to_numpy().astype(str)
    groups = np.select([true == "NK", true == "B"], [0, 1], -1)
    with open_cells(adata, "query") as opened:
        found = compare_groups(find_expression(opened), groups, 2)
    adata.obs["group"] = pd.Categorical(groups.astype(str).astype(object))
    scanpy.tl.rank_genes_groups(adata, "group", groups=["0", "1"], reference="rest", method="t-test", rankby_abs=False)
    for number in (0, 1):
        table = scanpy.get.rank_genes_groups_df(adata, str(number)).set_index("names").loc[GENES]
        np.testing.assert_allclose(found.scores[number], table["scores"], rtol=2e-3, atol=2e-3)
        np.testing.assert_allclose(found.p_values[number], table["pvals"], rtol=2e-2, atol=1e-4)


def test_groups_of_few_cells_and_uninformative_genes_have_no_markers():
    adata = query()
    x = adata.X.toarray()
    x[:40, GENES.index("RPL10")] += 60
    adata.X = x
    with open_cells(adata, "query") as opened:
        found = marker_genes(find_expression(opened), np.repeat([0, -1, 1, -1], [40, 40, 2, 38]), 3)
    assert "MS4A1" in found[0].genes
    assert "RPL10" not in found[0].genes
    assert (found[1].genes, found[2].genes, found[1].name) == ((), (), "")
