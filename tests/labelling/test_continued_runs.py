"""What people labelled, and what moved with it, holds in the next run and on its page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from uniot.adaptation.collections import Collection, Collections
from uniot.config import Settings
from uniot.datasets import make_toy_domains
from uniot.errors import SettingsError
from uniot.labelling.exporting import decided
from uniot.labelling.names import Names
from uniot.labelling.samples import TargetSamples
from uniot.labelling.state import AnnotationState, assign, move, rename
from uniot.methods.registry import check_start
from uniot.runs.loading import load_model
from uniot.runs.saving import save_model
from uniot.training.domains import domains_from_arrays, inputs_of
from uniot.training.fit import FitContext, fit

SETTINGS = Settings(method="unincm", seed=0)


@pytest.fixture(scope="module")
def toy():
    return make_toy_domains(n_common=3, n_source_private=1, n_target_private=3, seed=1)


@pytest.fixture(scope="module")
def first(toy):
    return fit(domains_from_arrays(toy.x_source, toy.y_source, toy.x_target, SETTINGS), SETTINGS)


def target_of(model) -> TargetSamples:
    return TargetSamples.of(model, [str(row) for row in range(len(model.target))])


def names(**decisions: tuple[str, str]) -> Names:
    labels, kinds = zip(*decisions.values(), strict=True)
    return Names(list(decisions), np.array(labels), np.array(kinds))


def next_run(toy, given: Names):
    samples = [str(row) for row in range(len(toy.x_target))]
    numbers = [str(row) for row in range(len(toy.x_source))]
    source = Collection(Path("source.npz"), numbers, toy.y_source, rows=toy.x_source)
    collections = Collections(source, Collection(Path("target.npz"), samples, rows=toy.x_target)).annotated(given)
    domains, left = collections.domains(SETTINGS), collections.target.names
    return fit(domains, SETTINGS, FitContext(answers=given.answers(left, domains.classes))), left


def test_samples_that_moved_with_a_label_are_inferred(first):
    target, state = target_of(first), AnnotationState.initial(target_of(first).start)
    known = np.flatnonzero(first.target.known)
    clicked, moved = known[0], known[1:4]
    group = state.next_group
    after, by_hand = state.category.copy(), state.by_hand.copy()
    after[[clicked, *moved]], by_hand[clicked] = group, True
    state.apply(assign(state, np.arange(len(after)), after, by_hand))
    state.apply(rename(state, group, "calculator"))
    lines = {name: (label, decision) for name, label, decision, _ in decided(target, state)}
    assert lines[str(clicked)] == ("calculator", "named")
    assert {lines[str(row)] for row in moved} == {("calculator", "inferred")}
    assert len(lines) == 4


def test_samples_that_moved_to_a_known_class_are_inferred_and_untouched_ones_are_not_listed(first):
    target, state = target_of(first), AnnotationState.initial(target_of(first).start)
    unknown = np.flatnonzero(~first.target.known)[:3]
    state.apply(move(state, unknown[:1], -2))
    state.apply(assign(state, unknown[1:], np.full(2, -2), np.zeros(2, dtype=bool)))
    label = target.classes[0]
    assert [(name, *rest[:2]) for name, *rest in decided(target, state)] == [
        (str(unknown[0]), label, "class"),
        (str(unknown[1]), label, "inferred"),
        (str(unknown[2]), label, "inferred"),
    ]


def test_a_group_that_was_split_and_named_is_named(first):
    target, state = target_of(first), AnnotationState.initial(target_of(first).start)
    rows = state.members(0)[:3]
    state.apply(assign(state, rows, np.full(3, state.next_group), np.zeros(3, dtype=bool)))
    state.apply(rename(state, int(state.category[rows[0]]), "kettle"))
    assert {decision for _, _, decision, _ in decided(target, state)} == {"named"}


def test_what_is_inferred_later_does_not_replace_what_a_person_decided():
    before = names(a=("cup", "class"), b=("cup", "inferred"), c=("cup", "inferred"), d=("", "unknown"))
    later = names(a=("pan", "inferred"), b=("pan", "inferred"), c=("pot", "named"), d=("pan", "inferred"))
    both = before.followed_by(later)
    assert dict(zip(both.names, both.labels.tolist(), strict=True)) == {"a": "cup", "b": "pan", "c": "pot", "d": ""}
    assert both.decisions.tolist() == ["class", "inferred", "named", "unknown"]


def test_a_new_class_that_is_confirmed_later_stays_new():
    both = names(a=("pot", "named"), b=("pot", "inferred")).followed_by(names(a=("pot", "class"), b=("pot", "class")))
    assert both.decisions.tolist() == ["named", "class"]
    assert both.new_classes == ["pot"]


def test_an_unknown_sample_that_is_discarded_later_is_discarded():
    both = names(a=("", "unknown")).followed_by(names(a=("", "discarded")))
    assert both.decisions.tolist() == ["discarded"]


def test_every_label_holds_in_the_next_run_and_in_its_folder(toy, first, tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(toy.x_target))[:40]
    labels = rng.choice([*first.classes.tolist(), "kettle"], 40)
    labels[0] = "kettle"
    kinds = ["inferred" if row % 2 else "named" if label == "kettle" else "class" for row, label in enumerate(labels)]
    given = {str(row): (label, kind) for row, label, kind in zip(rows.tolist(), labels.tolist(), kinds, strict=True)}
    given[str(rows[5])] = ("", "discarded")
    model, samples = next_run(toy, names(**given))
    save_model(model, tmp_path / "run")
    for one in (model, load_model(tmp_path / "run"), load_model(tmp_path / "run").with_preference(private_prior=0.9)):
        called = dict(zip(samples, one.labels(one.target).tolist(), strict=True))
        kept = {name: label for name, (label, kind) in given.items() if kind != "discarded"}
        assert {name: called[name] for name in kept} == kept
        assert str(rows[5]) not in called
    kept_answers = load_model(tmp_path / "run").answers
    assert kept_answers.inferred.sum() == 20 - (kinds[5] == "inferred")
    assert len(kept_answers) == 39
    assert not len(kept_answers.evidence)  # a new class: no answer moves the line


def test_labels_of_known_classes_move_the_line_and_inferred_ones_do_not(toy, first):
    unknown = np.flatnonzero(~first.target.known)[:20]
    by_hand, _ = next_run(toy, names(**{str(row): (first.classes[0], "class") for row in unknown}))
    inferred, _ = next_run(toy, names(**{str(row): (first.classes[0], "inferred") for row in unknown}))
    assert by_hand.posterior is not None
    assert inferred.posterior is None


def test_what_people_called_unknown_stays_unknown_and_moves_the_line(toy, first):
    known = np.flatnonzero(first.target.known)[:5]
    model, _ = next_run(toy, names(**{str(row): ("", "unknown") for row in known}))
    assert not model.target.known[known].any()
    assert len(model.answers.evidence) == 5


def test_what_people_called_unknown_stays_unknown_beside_a_new_class(toy, first, tmp_path):
    known, other = np.flatnonzero(first.target.known)[:5], np.flatnonzero(~first.target.known)
    group = other[first.target.group[other] == 0]
    given = {str(row): ("", "unknown") for row in [*known, group[0]]} | {
        str(row): ("pot", "named") for row in group[1:]
    }
    model, _ = next_run(toy, names(**given))
    save_model(model, tmp_path / "run")
    for one in (model, load_model(tmp_path / "run"), model.with_preference(prefer="known")):
        assert set(one.labels(one.target)[[*known, group[0]]]) == {"unknown"}
        assert set(one.labels(one.target)[group[1:]]) == {"pot"}
    assert not len(model.answers.evidence)


def test_names_of_all_groups_leave_the_labels_of_known_samples_as_they_were(toy, first):
    rows = np.flatnonzero(~first.target.known)
    model, _ = next_run(toy, names(**{str(row): (f"new-{first.target.group[row]}", "named") for row in rows}))
    known = first.target.known
    assert np.array_equal(model.labels(model.target)[known], first.labels(first.target)[known])


def test_a_person_who_says_unknown_is_in_the_table_without_a_label(first):
    target, state = target_of(first), target_of(first).initial_state()
    known, unknown = np.flatnonzero(first.target.known)[0], np.flatnonzero(~first.target.known)[0]
    state.apply(move(state, [known], 0))
    state.apply(move(state, [unknown], int(target.start[unknown])))
    assert sorted(decided(target, state)) == sorted(
        [(str(known), "", "unknown", 0), (str(unknown), "", "unknown", int(target.start[unknown]))]
    )


def test_the_page_of_the_next_run_begins_with_its_labels_and_inferred_ones_never_move_the_line(toy, first):
    unknown = np.flatnonzero(~first.target.known)[:21].tolist()
    label = str(first.classes[0])
    given = {str(row): (label, "inferred") for row in unknown[1:]} | {str(unknown[0]): (label, "class")}
    model, _ = next_run(toy, names(**given))
    target = target_of(model)
    state = target.initial_state()
    assert {name: (label, decision) for name, label, decision, _ in decided(target, state)} == given
    assert model.with_annotations(target.annotations(state)).answers is model.answers
    state.apply(move(state, [unknown[1]], -3))
    after = model.with_annotations(target.annotations(state))
    assert after.answers.evidence.by_row == {unknown[0]: 0, unknown[1]: 1}
    assert set(after.labels(after.target)[unknown[2:]]) == {label}


def test_inferred_labels_count_in_scores_and_labels_of_people_do_not(toy, first):
    unknown = np.flatnonzero(~first.target.known)[:2].tolist()
    label = str(first.classes[0])
    model, _ = next_run(toy, names(**{str(unknown[0]): (label, "class"), str(unknown[1]): (label, "inferred")}))
    assert np.flatnonzero(model.labelled_by_people).tolist() == unknown[:1]


def test_a_later_answer_about_an_inferred_sample_moves_the_line(toy, first):
    row = int(np.flatnonzero(~first.target.known)[0])
    model, _ = next_run(toy, names(**{str(row): (str(first.classes[0]), "inferred")}))
    told = model.with_answers(model.answers.told([row], [0]))
    assert model.posterior is None
    assert told.posterior is not None


def test_no_group_of_the_next_run_is_empty(toy, first):
    rows = np.flatnonzero(~first.target.known)
    model, _ = next_run(toy, names(**{str(row): (f"new-{first.target.group[row]}", "named") for row in rows}))
    sizes = np.bincount(model.target.group[~model.target.known], minlength=model.groups.n_groups)
    assert (sizes > 0).all()


@pytest.mark.parametrize(
    ("method", "trains", "words"),
    [
        ("dance", False, "dance cannot continue from the weights of another run; only UniOT and UniNCM can"),
        ("uniot", True, "only UniOT and UniNCM continue from weights that UniOT trained, and this run is of unincm"),
        ("unincm", True, "only UniOT and UniNCM continue from weights that UniOT trained, and this run is of unincm"),
    ],
)
def test_a_method_that_cannot_continue_says_so_before_the_work(first, method, trains, words):
    with pytest.raises(SettingsError, match=words):
        check_start(method, first.method, trains=trains)
    check_start("unincm", first.method, trains=False)


def test_a_new_sample_far_from_everything_has_no_name_before_the_next_run(toy, first):
    target, state = target_of(first), target_of(first).initial_state()
    for group in range(first.groups.n_groups):
        state.apply(rename(state, group, f"new-{group}"))
    page = first.with_annotations(target.annotations(state))
    generator = np.random.default_rng(0)
    strange = generator.normal(size=(200, toy.x_target.shape[1])) * toy.x_target.std() + toy.x_target.mean(axis=0)
    called = page.predict(inputs_of(strange, page))
    unknown = ~first.predict(inputs_of(strange, first)).known
    assert unknown.sum() > 50
    assert (page.labels(called)[unknown] == "unknown").mean() > 0.9
    assert (called.group_confidence[called.group < 0] == 0).all()
    # Samples of the target have the names of their groups.
    again = page.labels(page.predict(inputs_of(toy.x_target, page)))
    assert np.array_equal(again, page.labels(page.target))
