"""Two runs compared: what changed, for whom, and that what people said still holds."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from uniot.errors import DataError
from uniot.io.predictions import Prediction
from uniot.labelling.publishing import import_run
from uniot.report.comparison import RunComparison
from uniot.report.comparison_page import render_comparison
from uniot.runs import Run


def changed(model, **values):
    """The same model with another target: `known={3: False}` calls sample 3 unknown."""
    target: Prediction = model.target
    parts = {name: getattr(target, name).copy() for name in values}
    for name, rows in values.items():
        for row, value in rows.items():
            parts[name][row] = value
    return replace(model, target=replace(target, **parts), fingerprint="later")


@pytest.fixture(scope="module")
def model(made_model):
    return made_model()


def rows_of(model, label: int | None) -> list[int]:
    """Rows of a class, or of the unknown samples."""
    target = model.target
    chosen = ~target.known if label is None else target.known & (target.nearest == label)
    return np.flatnonzero(chosen).tolist()


def test_each_kind_of_change_is_counted(made_run, model):
    ant, unknown = rows_of(model, 0), rows_of(model, None)
    later = changed(
        model,
        known={ant[0]: False, unknown[0]: True},
        nearest={ant[1]: 1, unknown[0]: 1},
        group={ant[0]: 0, unknown[0]: -1},
    )
    found = RunComparison.of(made_run(model), made_run(later))
    kinds = {row: found.kind[row] for row in np.flatnonzero(found.changed).tolist()}
    assert kinds == {ant[0]: "unknown", unknown[0]: "labelled", ant[1]: "class"}
    assert found.sentences == [
        "Of the 25 samples that both runs have, 3 changed: 1 now labelled, 1 now unknown, 1 with another label."
    ]
    assert {(one.before, one.after) for one in found.transitions} >= {("ant", "bee"), ("ant", "unknown (group 0)")}


def test_groups_of_other_numbers_are_the_same_groups(made_run, model):
    unknown = rows_of(model, None)
    swapped = {row: 1 - int(model.target.group[row]) for row in unknown}
    assert not RunComparison.of(made_run(model), made_run(changed(model, group=swapped))).changed.any()
    # One sample that stays in group 0 while its group became group 1 is elsewhere now.
    first = next(row for row in unknown if model.target.group[row] == 0)
    found = RunComparison.of(made_run(model), made_run(changed(model, group=swapped | {first: 0})))
    assert np.flatnonzero(found.changed).tolist() == [first]
    assert found.transitions[0].kind == "group"


def test_a_named_group_that_became_a_class_is_no_change(made_run, model, tmp_path):
    before, after = made_run(model), made_run(model)
    table = tmp_path / "names.csv"
    members = [row for row in rows_of(model, None) if model.target.group[row] == 0]
    lines = [f"{before.predictions.names[row]},kettle" for row in members]
    table.write_text("\n".join(["path,label", *lines]) + "\n", encoding="utf-8")
    import_run(before.folder, table)
    found = RunComparison.of(Run.open(before.folder), after)
    assert found.before.labels[members[0]] == "kettle"
    assert set(np.flatnonzero(found.changed).tolist()) == set(members)
    # What a person said and the second run does not know is said to be overruled.
    assert found.overruled.tolist() == members
    assert "have another label now" in found.sentences[-1]
    import_run(after.folder, table)
    found = RunComparison.of(Run.open(before.folder), Run.open(after.folder))
    assert not found.changed.any()
    assert f"All {len(members)} samples that people had labelled keep their label." in found.sentences


def test_truth_says_who_became_right_and_wrong(made_run, model):
    ant, bee, unknown = rows_of(model, 0), rows_of(model, 1), rows_of(model, None)
    later = changed(model, known={unknown[0]: True, ant[0]: False}, nearest={unknown[0]: 1}, group={unknown[0]: -1})
    truth = np.full(25, "elk", dtype=object)
    truth[ant], truth[bee], truth[unknown[0]] = "ant", "bee", "bee"
    found = RunComparison.of(made_run(model), made_run(later), truth)
    of = {one.name: (one.count, one.before, one.after, one.mended, one.broken) for one in found.classes}
    n_elk = len(unknown) - 1
    assert of == {"ant": (9, 9, 8, 0, 1), "bee": (6, 5, 6, 1, 0), "elk": (n_elk, n_elk, n_elk, 0, 0)}
    assert "96.0 % were right before and 96.0 % are now: 1 became right and 1 became wrong." in found.sentences[1]
    assert "the probability 1." in found.sentences[2]


def test_runs_share_some_samples_or_none(made_run, made_model, model):
    first = made_run(model)
    fewer = made_run(made_model(found=(9, 5, 0), groups=(3, 2)))
    found = RunComparison.of(first, fewer)
    assert len(found) == 19
    assert "6 samples are only in the first run." in found.sentences
    other = made_run(model, names=[f"other/{row}" for row in range(25)])
    with pytest.raises(DataError, match="have no sample in common: 'shelf/000.jpg' and 'other/0'"):
        RunComparison.of(first, other)


def test_the_page_escapes_names_and_has_no_script(made_run, made_model):
    classes = ("<script>alert(1)</script>", "b\"'&amp;", "cow")
    model = made_model(classes=classes)
    names = [f"<img src=x onerror=alert({row})>" for row in range(25)]
    first = rows_of(model, 0)[0]
    later = changed(model, nearest={first: 1})
    runs = made_run(model, names=names, pictures=True), made_run(later, names=names, pictures=True)
    page = render_comparison(RunComparison.of(*runs, np.full(25, classes[0], dtype=object)))
    assert "<script" not in page
    assert "<img src=x" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "script-src" not in page
    assert "default-src 'none'; img-src data:;" in page
    assert all(source.startswith("data:") for source in re.findall(r'src="([^"]*)"', page))
    assert f"uniot label {runs[1].files.title} --open --select rows-{runs[1].digest[:8]}:{first}" in page
    assert str(runs[1].folder.parent) not in page


def test_the_command_writes_the_page_and_says_what_changed(made_run, model, uniot, tmp_path):
    later = changed(model, nearest={rows_of(model, 0)[0]: 1})
    first, second = made_run(model), made_run(later)
    truth: Path = tmp_path / "truth.csv"
    lines = [f"{name},ant" for name in second.predictions.names]
    truth.write_text("\n".join(["path,label", *lines]) + "\n", encoding="utf-8")
    answer = uniot("compare", first.folder, second.folder, "--labels", truth)
    assert answer.code == 0, answer.stderr
    assert "Of the 25 samples that both runs have, 1 changed: 1 with another label." in answer.stdout
    assert "0 became right and 1 became wrong" in answer.stdout.replace("\n", " ")
    assert (second.folder / "compare.html").is_file()
    answer = uniot("compare", first.folder, tmp_path / "nothing")
    assert answer.code == 1
    answer = uniot("compare", first.folder, second.folder, "--out", tmp_path)
    assert "is a folder" in answer.stderr
