"""Two .h5ad files on the command line, from `uniot adapt` to cells with names."""

from __future__ import annotations

import shutil

import anndata
import numpy as np
import pytest

from cell_files import query, reference, written
from uniot import Run

# anndata and pandas announce changes of theirs.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cells")
    return written(reference(), folder / "reference.h5ad"), written(query(), folder / "query.h5ad")


@pytest.fixture(scope="module")
def adapted(files, tmp_path_factory, uniot):
    run = tmp_path_factory.mktemp("run") / "run"
    answer = uniot("adapt", *files, "--label", "cell_type", "--out", run)
    assert answer.code == 0, answer.stderr
    return run, answer


@pytest.fixture
def run(adapted, tmp_path):
    return shutil.copytree(adapted[0], tmp_path / "run")


def test_adapt_writes_a_copy_of_the_query_with_labels(adapted, files):
    run, answer = adapted
    assert "Labelled: 120 cells of 3 classes in" in answer.stdout
    assert "Unlabelled: 120 cells in" in answer.stdout
    assert "50 principal components of 60 genes, of 60 genes in common." in " ".join(answer.stdout.split())
    before, after = anndata.read_h5ad(files[1]), anndata.read_h5ad(run / "cells.h5ad")
    assert list(after.obs.columns) == ["cell_type", "uniot_label", "uniot_confidence", "uniot_group"]
    assert (after.X != before.X).nnz == 0
    predictions = Run.open(run).predictions
    assert after.obs["uniot_label"].tolist() == predictions.labels.tolist()
    assert after.obs["uniot_group"].isna().tolist() == (predictions.groups < 0).tolist()
    assert set(Run.open(run).group_descriptions.of(0).terms) >= {"NKG7", "GNLY"}


def test_same_command_again_finds_the_finished_run(run, files, uniot):
    answer = uniot("adapt", *files, "--label", "cell_type", "--out", run)
    assert answer.code == 0, answer.stderr
    assert "is already finished; nothing was trained." in answer.stdout


def test_answers_are_in_the_cells_and_in_an_export(run, tmp_path, uniot):
    table = tmp_path / "answers.csv"
    table.write_text("path,answer\nquery0,unknown\nquery119,T\n")
    assert uniot("tell", run, table).code == 0
    told = anndata.read_h5ad(run / "cells.h5ad").obs["uniot_label"]
    assert told.loc[["query0", "query119"]].tolist() == ["unknown", "T"]
    answer = uniot("export", run, "--out", tmp_path / "labelled.h5ad")
    assert "labelled.h5ad is written. Next: scanpy.pl.umap(" in answer.stdout
    assert anndata.read_h5ad(tmp_path / "labelled.h5ad").obs["uniot_label"].tolist() == told.tolist()


def test_new_cells_are_labelled_in_a_table_and_in_a_copy(run, files, tmp_path, uniot):
    for name in ("new.csv", "new.h5ad"):
        answer = uniot("predict", run, files[1], "--out", tmp_path / name)
        assert answer.code == 0, answer.stderr
    labels = anndata.read_h5ad(tmp_path / "new.h5ad").obs["uniot_label"].to_numpy().astype(str)
    assert (labels == Run.open(run).predictions.labels).mean() > 0.97
    assert (tmp_path / "new.csv").read_text().startswith("path,label,known")


def test_names_of_groups_become_classes_of_the_next_run(run, tmp_path, uniot):
    table = tmp_path / "labels.csv"
    groups = Run.open(run).predictions.groups
    rows = [f"query{row},NK,labelled,0" for row in np.flatnonzero(groups == 0)]
    table.write_text("path,label,decision,group\n" + "\n".join(rows) + "\n")
    answer = uniot("label", run, "--import", table)
    assert answer.code == 0, answer.stderr
    assert (anndata.read_h5ad(run / "cells.h5ad").obs["uniot_label"] == "NK").sum() == len(rows)
    again = uniot("adapt", "--continue", run)
    assert again.code == 0, again.stderr
    labels = anndata.read_h5ad(run.with_name("run-continued") / "cells.h5ad").obs["uniot_label"]
    assert (labels == "NK").sum() >= len(rows)


def test_common_representation_is_asked_of_new_cells_too(files, tmp_path, uniot):
    paths = []
    for place in files:
        adata = anndata.read_h5ad(place)
        adata.obsm["X_both"] = np.log1p(adata.X.toarray())
        adata.obs_names = adata.obs_names.astype(object)
        paths.append(tmp_path / place.name)
        with_rep = anndata.AnnData(adata.X, obs=reference().obs if "reference" in place.name else query().obs)
        with_rep.var_names = reference().var_names
        with_rep.obsm["X_both"] = adata.obsm["X_both"]
        written(with_rep, paths[-1])
    run = tmp_path / "run"
    assert uniot("adapt", *paths, "--use-rep", "X_both", "--out", run).code == 0
    assert Run.open(run).inputs["use_rep"] == "X_both"
    assert uniot("predict", run, paths[1], "--out", tmp_path / "new.csv").code == 0
    answer = uniot("predict", run, files[1], "--out", tmp_path / "new.csv")
    assert answer.code == 1
    assert "has no 'X_both' in obsm. It has: none." in answer.stderr


def test_forgotten_target_is_not_copied(files, tmp_path, uniot):
    run = tmp_path / "run"
    assert uniot("adapt", *files, "--forget-target", "--out", run).code == 0
    assert not (run / "cells.h5ad").exists()


def test_other_kinds_of_input_are_told_apart(files, tmp_path, uniot):
    np.savez(tmp_path / "x.npz", x=np.ones((5, 3)))
    answer = uniot("adapt", files[0], tmp_path / "x.npz", "--out", tmp_path / "run")
    assert "x.npz is no .h5ad file, and the other collection is. Give cells for both." in answer.stderr
    answer = uniot("adapt", files[0], files[0], "--out", tmp_path / "run")
    assert "source and target are the same file" in answer.stderr
    answer = uniot("adapt", *files, "--label", "celltype", "--out", tmp_path / "run")
    assert "has no column 'celltype' in obs. It has: cell_type." in answer.stderr
    assert not (tmp_path / "run").exists()
