"""The section of labels that look wrong and of near-duplicates."""

from __future__ import annotations

from uniot.data_quality.checks import (
    NearDuplicate,
    SuspectLabel,
    write_near_duplicates,
    write_suspect_labels,
)
from uniot.report.faults import read_faults
from uniot.report.page import render
from uniot.report.values import ReportValues
from uniot.runs import RunFiles

HOSTILE = "<script>window.broken = 1</script>"


def test_clean_run_has_no_section(made_run, tmp_path):
    run = made_run(folder=tmp_path)
    assert read_faults(run) is None
    assert 'id="faults"' not in render(ReportValues.of(run))


def test_section_shows_samples_with_pictures_and_pairs_between_collections_first(made_run, tmp_path):
    labels = [SuspectLabel(f"bee/{row}.jpg", row, "bee", HOSTILE, 0.9 - row / 10, row < 2) for row in range(3)]
    pairs = [
        NearDuplicate("target", "x", 2, "ant", "y", 3, "unknown", 1.0),
        NearDuplicate("both", "bee/5.jpg", 5, "bee", "shelf/005.jpg", 5, "ant", 0.99),
    ]
    write_suspect_labels(RunFiles(tmp_path).suspect_labels, labels)
    write_near_duplicates(RunFiles(tmp_path).near_duplicates, pairs)
    run = made_run(folder=tmp_path, pictures=True)
    faults = read_faults(run)
    assert (faults.n_labels, faults.n_clear, faults.n_pairs) == (3, 2, 2)
    assert [one.line.sample for one in faults.labels] == ["bee/0.jpg", "bee/1.jpg", "bee/2.jpg"]
    assert all(one.picture.startswith("data:image/jpeg") for one in faults.labels)
    assert [one.line.where for one in faults.pairs] == ["both", "target"]
    # ConfusionRow 5 of the source and row 5 of the target are two different pictures.
    assert len(set(faults.pairs[0].pictures)) == 2
    page = render(ReportValues.of(run))
    assert "2 of 3 listed are clear" in page
    assert HOSTILE not in page
    assert "bee/2.jpg" in page


def test_row_that_does_not_exist_is_shown_without_a_picture(made_run, tmp_path):
    write_suspect_labels(RunFiles(tmp_path).suspect_labels, [SuspectLabel("gone.jpg", 10**9, "bee", "ant", 0.6, False)])
    run = made_run(folder=tmp_path, pictures=True)
    assert read_faults(run).labels[0].picture is None


def test_long_lists_are_cut_with_a_count(made_run, tmp_path):
    labels = [SuspectLabel(str(row), row, "bee", "ant", 0.5, False) for row in range(45)]
    write_suspect_labels(RunFiles(tmp_path).suspect_labels, labels)
    run = made_run(folder=tmp_path)
    assert "… and 5 more: see suspect_labels.csv" in render(ReportValues.of(run))
