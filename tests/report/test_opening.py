"""The first screen: how sure the result is, what the answers changed, and what to do next."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from uniot.errors import RunFolderError
from uniot.labelling.actions import NameGroup
from uniot.labelling.samples import TargetSamples
from uniot.labelling.session import LabellingSession
from uniot.labelling.store import LabelStore
from uniot.rejection.answers import CANNOT_TELL, UNKNOWN
from uniot.reliability import Reliability
from uniot.report.categories import Categories
from uniot.report.opening import Opening, answers_so_far, class_accuracies, next_steps, right_labels
from uniot.report.page import render
from uniot.report.summary import summarise
from uniot.report.values import ReportValues
from uniot.runs.run import Run


def session_of(run: Run, act) -> Run:
    """The run after a person did something on its page."""
    target = TargetSamples.of_run(run)
    with closing(LabelStore.of_run(run, target.digest)) as store:
        act(LabellingSession(target, store))
    return Run.open(run.folder)


def opening_of(run: Run) -> Opening:
    categories = Categories.of(run.model)
    return Opening.of(run, categories, summarise(run.model, categories), None)


def commands_of(run: Run) -> list[str]:
    return [step.command for step in opening_of(run).steps]


@pytest.fixture(scope="module")
def estimated(made_model):
    """A model whose confidences are calibrated to its estimated accuracy."""
    model = replace(made_model(), reliability=Reliability(0.75, 0.7, 0.8))
    confidence = np.where(model.target.known, np.where(model.target.nearest == 0, 0.9, 0.5), 0.8)
    return replace(model, target=replace(model.target, confidence=confidence))


def test_accuracies_of_classes_add_up_to_the_estimate_of_the_run(made_run, estimated):
    lines = class_accuracies(made_run(estimated), Categories.of(estimated))
    assert [(one.name, one.count) for one in lines] == [("bee", 5), ("unknown", 11), ("ant", 9)]
    assert sum(one.count * one.estimated for one in lines) == pytest.approx(estimated.target.confidence.sum())
    assert [one.n_wrong for one in lines] == [2, 2, 1]
    assert all(one.measured is None for one in lines)


def test_true_labels_measure_each_class_and_unknown_is_right_for_other_classes(made_run, estimated):
    run = made_run(estimated)
    target, names = estimated.target, np.array(estimated.class_names)
    truth = np.where(target.known, names[target.nearest], "elk")
    wrong = int(np.flatnonzero(target.known & (target.nearest == 1))[0])
    truth[wrong] = "elk"
    with Run.writer(run.folder) as writer:
        writer.write_true_labels(run.predictions.names, truth.tolist())
    run = Run.open(run.folder)
    assert np.flatnonzero(~right_labels(run.model, run.true_labels)).tolist() == [wrong]
    measured = {one.name: one.measured for one in class_accuracies(run, Categories.of(run.model))}
    assert measured == {"bee": 0.8, "unknown": 1.0, "ant": 1.0}
    assert opening_of(run).measured == pytest.approx(24 / 25)
    assert '<option value="truth">' in render(ReportValues.of(run))


def test_true_labels_of_other_samples_are_refused(made_run):
    run = made_run()
    with Run.writer(run.folder) as writer:
        writer.write_true_labels(["elsewhere.jpg"], ["ant"])
    with pytest.raises(RunFolderError, match=r"true_labels.csv is not about the samples .* `uniot evaluate` again"):
        _ = Run.open(run.folder).true_labels


def test_without_true_labels_the_map_does_not_offer_their_colours(made_run):
    assert '<option value="truth">' not in render(ReportValues.of(made_run()))


def test_answers_say_what_they_were_and_what_they_changed(made_run, made_model):
    run = made_run(made_model())
    target = run.model.target
    known, unknown = np.flatnonzero(target.known), np.flatnonzero(~target.known)
    as_before, other = int(known[0]), int(unknown[0])
    said = {as_before: int(target.nearest[as_before]), other: 2, int(known[1]): UNKNOWN, int(known[2]): CANNOT_TELL}
    answered = session_of(run, lambda session: session.tell(said))
    found = answers_so_far(answered)
    assert (found.n_of_classes, found.n_unknown, found.n_cannot_tell) == (2, 1, 1)
    assert (found.n_right, found.n_decided) == (1, 3)
    assert found.before.unknown == pytest.approx(11 / 25)
    assert found.after.unknown == pytest.approx(float((~answered.model.target.known).mean()))
    words = " ".join(found.sentences)
    assert "4 samples answered: 2 of your classes, 1 of none of them, 1 cannot be told." in words
    assert "The run had 1 of 3 right before" in words
    assert "Unknown: 44 % (" in words
    assert "Your answers so far" in render(ReportValues.of(answered))
    assert not opening_of(answered).is_estimated


def test_classes_that_the_answers_made_vanish_are_named(made_run, made_model):
    run = made_run(made_model())
    target = run.model.target
    of_first = np.flatnonzero(target.known & (target.nearest == 0)).tolist()
    answered = session_of(run, lambda session: session.tell(dict.fromkeys(of_first, UNKNOWN)))
    found = answers_so_far(answered)
    assert "ant" in found.lost
    assert f"not found now: {', '.join(found.lost)}. If you expect" in " ".join(found.sentences)
    assert not set(found.lost) & set(answered.model.labels(answered.model.target).tolist())


def test_without_answers_nothing_is_said_about_them(made_run):
    run = made_run()
    assert answers_so_far(run) is None
    assert "Your answers so far" not in render(ReportValues.of(run))


def test_a_preference_of_the_report_hides_what_answers_changed(made_run):
    run = session_of(made_run(), lambda session: session.tell({0: UNKNOWN}))
    assert answers_so_far(Run.open(run.folder)) is not None
    assert answers_so_far(Run.open(run.folder, private_prior=0.5)) is None


def test_a_wide_interval_calls_for_questions_first(made_run, made_model):
    run = made_run(made_model())
    low, high = run.model.shown_share_interval
    assert high - low > 0.2
    assert commands_of(run)[:2] == ["uniot ask run", "uniot label run"]
    assert (
        opening_of(run).steps[0].why
        == f"From {100 * low:.0f} to {100 * high:.0f} % may be unknown; your answers narrow it down."
    )
    assert commands_of(made_run(made_model(), pictures=True))[0] == "uniot ask run --open"


def test_named_groups_lead_to_the_next_run(made_run, made_model):
    run = made_run(made_model(groups=(7,)))
    named = session_of(run, lambda session: session.act(NameGroup(kind="name", group=0, name="kettle"), seen=0))
    assert "uniot adapt --continue run" in commands_of(named)
    assert "uniot label run" not in commands_of(named)
    assert "1 group has a name." in " ".join(answers_so_far(named).sentences)


def test_probably_wrong_labels_lead_to_the_least_sure_classes(made_run, estimated):
    run = made_run(estimated)
    found = replace(summarise(run.model, Categories.of(run.model)), n_groups=0, n_wrong=6)
    vars(run)["model"] = replace(run.model, feature_rows=np.arange(len(run.model.target)))  # its share is not known
    steps = next_steps(run, found, None)
    assert (steps[0].title, steps[0].link) == ("Check the least sure classes", "accuracy")
    assert steps[-1].command == "uniot predict run new.npz"


def test_the_page_has_the_name_of_its_folder_and_no_other_path(made_run):
    run = made_run()
    assert str(run.folder.parent) not in render(ReportValues.of(run))
