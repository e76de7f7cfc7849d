"""What a report knows of the labelling page: places, rows of cells, and the page that is served."""

from __future__ import annotations

import re

import numpy as np
import pytest

from uniot.annotations.annotations import Annotations
from uniot.errors import RunFolderError
from uniot.labelling.samples import TargetSamples
from uniot.report.acting import place_of, rows_of_cells
from uniot.report.page import content_policy, render
from uniot.report.values import ReportValues
from uniot.runs import Run

POLICY = re.compile(r'http-equiv="Content-Security-Policy" content="([^"]*)"')


@pytest.fixture(scope="module")
def run(made_run, made_model) -> Run:
    return made_run(made_model())


@pytest.fixture(scope="module")
def values(run) -> ReportValues:
    return ReportValues.of(run)


def test_the_labelling_page_knows_the_digest_of_the_report(run):
    assert run.digest == TargetSamples.of_run(run).digest


def test_categories_are_called_as_on_the_labelling_page(values):
    places = {category.name: place_of(category, 2) for category in values.categories.found}
    assert places == {"ant": "class-0", "bee": "class-1", "Group 0": "group-0", "Group 1": "group-1"}


def test_a_cell_has_the_samples_of_its_true_class_and_label(run):
    model = run.model
    labels = model.target.labels(model.classes, model.unknown)
    truth = np.where(np.arange(len(labels)) % 5 == 0, "elk", labels)
    with Run.writer(run.folder) as writer:
        writer.write_true_labels(run.predictions.names, truth)
    rows_of = rows_of_cells(Run.open(run.folder), "unknown")
    for label in ("ant", "unknown"):
        wanted = np.flatnonzero((truth == "elk") & (labels == label)).tolist()
        assert list(rows_of("elk", label, len(wanted))) == wanted
        # Scores of other decisions than these: nobody knows which samples were counted.
        assert rows_of("elk", label, len(wanted) + 1) == ()
    run.files.true_labels.unlink()
    assert rows_of_cells(Run.open(run.folder), "unknown")("elk", "ant", 1) == ()


def test_true_labels_of_an_earlier_run_in_the_folder_are_not_those_of_this_one(run):
    names = [f"other/{name}" for name in run.predictions.names]
    with Run.writer(run.folder) as writer:
        writer.write_true_labels(names, ["ant"] * len(names))
    with pytest.raises(RunFolderError, match="is not about the samples of this run"):
        _ = Run.open(run.folder).true_labels
    run.files.true_labels.unlink()


def test_a_file_asks_nobody_and_names_no_folder_but_its_own(values, run):
    page = render(values)
    assert "connect-src" not in page
    assert str(run.folder.parent) not in page
    assert f"uniot label {run.files.title} --open" in page


def test_a_page_that_is_served_may_ask_its_own_server_alone(values):
    (policy,) = POLICY.findall(render(values, live=3))
    assert policy.replace("&#39;", "'") == content_policy(live=True)
    assert "connect-src 'self';" in content_policy(live=True)
    assert "script-src 'sha256-" in content_policy(live=True)


def test_points_stay_where_they_are_while_people_label(run, values):
    target = TargetSamples.of_run(run)
    state = target.initial_state()
    state.category[:3], state.by_hand[:3] = 1, True
    annotations: Annotations = target.annotations(state)
    later = ReportValues.of(run.annotated(annotations), drawn=values.map)
    assert later.run.model.labelled_by_people[:3].all()
    assert not run.model.labelled_by_people.any()
    np.testing.assert_array_equal(later.map.position, values.map.position)
    of_row = later.categories.of_row[later.map.rows[later.map.of_target]]
    np.testing.assert_array_equal(later.map.category[later.map.of_target], of_row)
