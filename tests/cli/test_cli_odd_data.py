"""What `uniot adapt` says of tables whose numbers or labels were probably not meant."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from uniot.datasets import make_toy_domains

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
NAMES = [f"size of part {place}" for place in range(32)]


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Path, Path]:
    """Tables of both collections; a missing value in one column of the target is -999."""
    toy = make_toy_domains()
    target = toy.x_target.copy()
    target[::7, 2] = -999
    return (
        write(tmp_path / "labelled.parquet", toy.x_source, toy.y_source.tolist()),
        write(tmp_path / "unlabelled.parquet", target),
    )


def write(path: Path, rows: np.ndarray, labels: Sequence[str] | None = None) -> Path:
    columns = dict(zip(NAMES, rows.T, strict=True))
    parquet.write_table(pyarrow.table(columns if labels is None else {**columns, "label": labels}), path)
    return path


def test_code_for_missing_values_is_shown_once_before_the_result_and_kept(uniot: Callable, tables, tmp_path: Path):
    words = "Warning: the value -999 occurs in 15 % of the target samples, far from all other values of feature size of"
    answer = uniot("adapt", *tables, "--out", tmp_path / "run")
    assert answer.code == 0, answer.stderr
    assert answer.stdout.count("-999") == 1
    assert answer.stdout.index(words) < answer.stdout.index("What was found")
    assert "feature size of part 2: it is probably a code" in answer.stdout
    again = uniot("adapt", *tables, "--out", tmp_path / "run")
    assert "is already finished" in again.stdout
    assert words in again.stdout
    page = tmp_path / "report.html"
    assert uniot("report", tmp_path / "run", "--out", page).code == 0
    assert "the value -999 occurs in" in page.read_text(encoding="utf-8")


def test_source_model_is_trained_with_the_same_warning(uniot: Callable, tables, tmp_path: Path):
    toy = make_toy_domains()
    x = toy.x_source.copy()
    x[::7, 2] = -999
    labelled = write(tmp_path / "coded.parquet", x, toy.y_source.tolist())
    answer = uniot("train-source", labelled, "--steps", 5, "--out", tmp_path / "source.safetensors")
    assert answer.code == 0, answer.stderr
    assert "Warning: the value -999 occurs in 15 % of the source samples" in answer.stdout
    assert "of feature size of part 2:" in answer.stdout
    assert "target samples" not in answer.stdout


@pytest.mark.parametrize("missing", ["   ", "nan", "NaN"])
def test_missing_label_of_a_table_is_refused_with_its_row(uniot: Callable, tables, tmp_path: Path, missing: str):
    toy = make_toy_domains()
    labels = toy.y_source.tolist()
    labels[4] = missing
    labelled = write(tmp_path / "some.parquet", toy.x_source, labels)
    answer = uniot("adapt", labelled, tables[1], "--out", tmp_path / "run")
    assert answer.code == 1
    assert f"y of {labelled} has no label in 1 of 150 rows, the first is row 4 ({missing!r})" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_labels_that_look_the_same_are_named(uniot: Callable, tables, tmp_path: Path):
    toy = make_toy_domains()
    labels = ["café" if name == "common-0" else name for name in toy.y_source.tolist()]
    labels[0] = unicodedata.normalize("NFD", "café")
    answer = uniot("adapt", write(tmp_path / "two.parquet", toy.x_source, labels), tables[1], "--out", tmp_path / "run")
    assert answer.code == 0, answer.stderr
    words = "Warning: class names that look the same are treated as different classes: "
    assert f"{words}'cafe\\u0301' and 'caf\\xe9'." in answer.stdout


def test_true_label_that_looks_like_a_class_is_not_scored_as_another(uniot: Callable, tables, tmp_path: Path):
    truth = tmp_path / "truth.parquet"
    labels = [f"{name} " if name == "common-0" else name for name in make_toy_domains().oracle_y_target.tolist()]
    write(truth, np.zeros((len(labels), 32)), labels)
    assert uniot("adapt", *tables, "--out", tmp_path / "run").code == 0
    answer = uniot("evaluate", tmp_path / "run", "--labels", truth)
    assert answer.code == 1
    assert "labels holds 'common-0 ' and the class 'common-0', which look the same and are different" in answer.stderr


def test_text_as_true_labels_of_numbered_classes_is_told_why(uniot: Callable, tmp_path: Path):
    toy = make_toy_domains()
    index = np.unique(toy.y_source, return_inverse=True)[1]
    np.savez(tmp_path / "source.npz", x=toy.x_source, y=index)
    np.savez(tmp_path / "target.npz", x=toy.x_target)
    np.savez(tmp_path / "truth.npz", y=np.where(toy.oracle_y_target == "common-0", "0", "other"))
    files = tmp_path / "source.npz", tmp_path / "target.npz"
    answer = uniot("adapt", *files, "--out", tmp_path / "run", "--target-labels", tmp_path / "truth.npz")
    assert answer.code == 1
    assert "oracle_y_target holds 'other' in row 30, and the classes are whole numbers." in answer.stderr
