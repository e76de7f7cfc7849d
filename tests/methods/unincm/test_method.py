"""UniNCM: in all four settings, with parts left out, with a trained network, without its target."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from uniot import UniDAClassifier, UniNCM, load
from uniot.config import Settings
from uniot.datasets import ToyDomains, make_toy_domains
from uniot.datasets.digits import load_digit_archives
from uniot.errors import SettingsError
from uniot.methods import resolved_settings
from uniot.methods.base import Batch
from uniot.methods.registry import create_method
from uniot.methods.unincm.method import UniNCMMethod
from uniot.metrics.accuracy import h_score
from uniot.neighbours import Neighbours

SETTINGS = {"open-partial": (4, 3, 4), "open": (4, 0, 4), "partial": (4, 4, 0), "closed": (6, 0, 0)}


def draw(setting: str, seed: int = 0) -> ToyDomains:
    return make_toy_domains(*SETTINGS[setting], samples_per_class=40, dimensions=64, spread=0.8, seed=seed)


def fit(data: ToyDomains, options: dict[str, object] | None = None, **settings) -> UniDAClassifier:
    model = UniDAClassifier(random_state=0, **(options or {}), **settings)
    return model.fit(data.x_source, data.y_source, data.x_target)


def unknown_fraction(model: UniDAClassifier) -> float:
    return float((model.labels_ == "unknown").mean())


@pytest.mark.parametrize("setting", ["open-partial", "open"])
def test_private_classes_are_unknown_and_common_ones_named(setting):
    data = draw(setting)
    model = fit(data)
    assert h_score(data.oracle_y_target, model.labels_, source_classes=model.classes_) > 0.9
    assert unknown_fraction(model) == pytest.approx(0.5, abs=0.12)


@pytest.mark.parametrize("setting", ["partial", "closed"])
def test_where_nothing_is_private_nearly_everything_is_named(setting):
    data = draw(setting)
    model = fit(data)
    assert (model.labels_ == data.oracle_y_target).mean() > 0.9
    assert unknown_fraction(model) < 0.1


def test_nothing_is_trained_where_embeddings_are_given():
    model = fit(draw("open"))
    assert model.settings_.steps == 0
    assert model.history_ == {}
    assert not list(model.model_.method.parameters())
    method = create_method(model.settings_, 64, 4)
    empty = torch.zeros(0, 64)
    with pytest.raises(SettingsError, match="nothing to train"):
        method.step(Batch(empty, empty, empty, empty, 0, torch.Generator()))


def test_new_samples_are_judged_by_the_neighbours_that_were_fitted():
    data, new = draw("open-partial"), draw("open-partial")
    model = fit(data)
    moved = new.x_target + 0.01 * np.random.default_rng(1).normal(size=new.x_target.shape)
    assert (model.predict(moved) == model.labels_).mean() > 0.97


def test_run_without_its_target_keeps_landmarks_in_place_of_samples(tmp_path):
    data = draw("open-partial")
    with_target, without = fit(data), fit(data, store_target=False)
    assert np.array_equal(with_target.labels_, without.labels_)
    assert without.model_.method.fitted.value.neighbours is None
    assert (without.predict(data.x_target) == without.labels_).mean() > 0.97
    sizes = {}
    for name, model in (("with", with_target), ("without", without)):
        model.save(tmp_path / name)
        sizes[name] = (tmp_path / name / "model.safetensors").stat().st_size
    # A half for each of 64 directions and an int for each of seven neighbours.
    assert sizes["with"] - sizes["without"] > len(data.x_target) * (2 * 64 + 4 * 7)
    loaded = UniDAClassifier.load(tmp_path / "without")
    assert np.array_equal(loaded.predict_proba(data.x_target), without.predict_proba(data.x_target))
    shared = UniDAClassifier.load(tmp_path / "with")
    shared.model_.method.forget_samples()
    assert np.array_equal(shared.predict_proba(data.x_target), without.predict_proba(data.x_target))


@pytest.mark.parametrize("is_closed", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.medium
def test_on_digits_run_without_its_target_gives_the_labels_of_the_full_run(is_closed):
    target, truth, source, labels = load_digit_archives()
    in_source = np.flatnonzero((labels < 7) | is_closed)[:2000]
    drawn = np.random.default_rng(0).permutation(np.flatnonzero((truth > 2) | is_closed))
    fitted, new = (target[rows].reshape(len(rows), -1) for rows in (drawn[:900], drawn[900:]))
    model = UniNCM(n_private_classes=1, random_state=0)
    model.fit(source[in_source].reshape(len(in_source), -1), labels[in_source], fitted)
    full = [model.predict(rows) for rows in (fitted, new)]
    model.model_.method.forget_samples()
    for rows, expected in zip((fitted, new), full, strict=True):
        assert 0.3 < (expected == -1).mean() < 0.8
        assert (model.predict(rows) == expected).mean() >= 0.95


@pytest.mark.parametrize("n", [2, 4, 5, 12, 21])
def test_tiny_target_can_be_forgotten(n):
    data = draw("open-partial")
    model = UniNCM(n_private_classes=1, store_target=False, random_state=0)
    model.fit(data.x_source, data.y_source, data.x_target[:n])
    assert (model.model_.method.fitted.value.landmarks is None) == (n < 5)
    assert len(model.predict(data.x_target)) == len(data.x_target)


@pytest.mark.parametrize("n_named", [2, 4])
def test_classes_that_were_named_in_the_target_join_those_of_the_source(n_named):
    data = draw("open")
    model = fit(data)
    private = sorted(set(data.oracle_y_target) - set(data.y_source))
    named = (model.labels_ == "unknown") & np.isin(data.oracle_y_target, private[:n_named])
    x, y = np.concatenate([data.x_source, data.x_target[named]]), np.append(data.y_source, data.oracle_y_target[named])
    model = UniNCM(random_state=0).fit(x, y, data.x_target)
    truth = data.oracle_y_target
    for name in model.classes_:
        assert (model.labels_[truth == name] == name).mean() > 0.9, name
    if n_named < 4:
        assert (model.labels_[np.isin(truth, private[n_named:])] == "unknown").mean() > 0.9
    assert np.array_equal(model.predict(data.x_target), model.labels_)
    fitted = model.model_.method.fitted.value
    assert fitted.rejection is not None
    assert int(fitted.metric.from_target.sum()) == n_named


def test_a_class_that_was_confirmed_does_not_change_the_rule_for_the_others():
    data = draw("open-partial", seed=1)
    before = fit(data)
    confirmed = np.flatnonzero(data.oracle_y_target == "common-0")[:6]
    x = np.concatenate([data.x_source, data.x_target[confirmed]])
    after = UniNCM(random_state=0).fit(x, np.append(data.y_source, ["common-0"] * 6), data.x_target)
    rules = [model.model_.method.fitted.value.rejection for model in (before, after)]
    for name in ("level", "private_mean"):
        one, other = (getattr(rule, name) for rule in rules)
        torch.testing.assert_close(one, other, rtol=0.03, atol=0.01)
    for name in ("similarity_prior", "membership_prior"):
        one, other = (getattr(rule, name) for rule in rules)
        # Estimated by EM in a space to which six samples were added.
        torch.testing.assert_close(one, other, rtol=0, atol=0.05)
    assert all(torch.equal(rule.presence > 0.5, rules[0].presence > 0.5) for rule in rules)
    others = np.isin(data.oracle_y_target, ["common-1", "common-2", "common-3"])
    assert (after.labels_[others] == data.oracle_y_target[others]).mean() > 0.95
    nearness = [
        model.transform(data.x_target) @ model.model_.method.class_prototypes().numpy().T for model in (before, after)
    ]
    own = data.oracle_y_target == "common-0"
    assert nearness[1][own, 0].mean() > nearness[0][own, 0].mean() + 0.02


def test_a_source_that_is_the_target_is_learnt_from_it():
    data = draw("closed")
    model = UniNCM(random_state=0).fit(data.x_target, data.oracle_y_target, data.x_target)
    assert (model.labels_ == data.oracle_y_target).mean() > 0.95


@pytest.mark.medium
def test_every_row_of_a_source_with_thousands_of_classes_counts():
    """More classes than rows that a run keeps of its source, two rows each."""
    rng = np.random.default_rng(0)
    n_classes, d = 5100, 48
    centres = rng.normal(size=(n_classes, d))
    labels = np.tile(np.arange(n_classes), 2)
    source = centres[labels] + 0.2 * rng.normal(size=(len(labels), d))
    truth = rng.integers(0, n_classes, 600)
    target = centres[truth] + 0.3 * rng.normal(size=(len(truth), d))
    model = UniNCM(random_state=0, n_neighbours=0).fit(source, labels, target)
    metric = model.model_.method.fitted.get().metric
    assert not metric.from_target.any()
    unit = source / np.linalg.norm(source, axis=1, keepdims=True)
    means = (unit[:n_classes] + unit[n_classes:]) / 2
    np.testing.assert_allclose(metric.source_centre, means.mean(axis=0), atol=1e-6)
    expected = (means - means.mean(axis=0)) @ metric.basis.numpy()
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(metric.prototypes, expected, atol=1e-4)
    assert all(value.isfinite().all() for value in vars(model.model_.method.fitted.value.rejection).values())
    assert (model.labels_ == truth).mean() > 0.9


@pytest.mark.medium
def test_number_of_neighbours_follows_the_target():
    neighbours = {n: fit(_of_size(n)).model_.method.fitted.value.neighbours.k for n in (40, 200, 1000)}
    assert neighbours == {40: 2, 200: 6, 1000: 10}
    assert fit(_of_size(200), {"n_neighbours": 3}).model_.method.fitted.value.neighbours.k == 3


def _of_size(n: int) -> ToyDomains:
    return make_toy_domains(2, 1, 2, samples_per_class=n // 4, dimensions=16)


@pytest.mark.parametrize(
    "option", [{"n_neighbours": 0}, {"whitens": False}, {"own_centres": False}, {"estimates_prior": False}]
)
def test_every_part_can_be_switched_off(option):
    data = make_toy_domains(4, 3, 2, samples_per_class=40, dimensions=64, spread=0.8)
    whole, part = fit(data), fit(data, option)
    assert not np.array_equal(whole.confidence(data.x_target), part.confidence(data.x_target))
    assert np.array_equal(part.predict(data.x_target), part.labels_)


def test_averaging_over_neighbours_tells_private_from_common_better():
    data = make_toy_domains(4, 3, 4, samples_per_class=40, dimensions=64, spread=2.4)
    scores = [
        h_score(data.oracle_y_target, model.labels_, source_classes=model.classes_)
        for model in (fit(data), fit(data, {"n_neighbours": 0}))
    ]
    assert scores[0] > scores[1] + 0.03


def test_network_is_trained_as_uniot_trains_it():
    generator = np.random.default_rng(0)
    images = generator.random((60, 28, 28)).astype(np.float32)
    labels = np.arange(60) % 3
    for label in range(3):
        images[labels == label, 8 * label : 8 * label + 8] += 2
    images /= images.max()
    common = {
        "network": "small-cnn",
        "steps": 6,
        "queue_size": 36,
        "n_clusters": 4,
        "hidden_size": 16,
        "random_state": 0,
    }
    ours, paper = (UniDAClassifier(name, **common).fit(images, labels, images) for name in ("unincm", "uniot"))
    assert ours.settings_.steps == 6
    trained = ours.model_.method.trainer.state_dict()
    by_paper = paper.model_.method.state_dict()
    # UniNCM decides by its own rule, without UniOT's transport of the whole target.
    assert set(by_paper) - set(trained) == {name for name in by_paper if name.startswith("solved.")}
    assert all(torch.equal(value, by_paper[name]) for name, value in trained.items())
    assert np.array_equal(ours.predict(images), ours.labels_)


def test_before_its_end_it_has_no_rule():
    method = create_method(resolved_settings(Settings.checked(method="unincm"), 100), 8, 3)
    with pytest.raises(SettingsError, match="not been trained to its end"):
        method.class_prototypes()


@pytest.mark.medium
def test_report_of_a_run_that_trained_nothing_has_no_training(tmp_path, uniot):
    fit(draw("open")).save(tmp_path / "run")
    answer = uniot("report", str(tmp_path / "run"))
    assert answer.code == 0, answer.stderr
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert 'id="how-sure"' in page
    assert 'id="training"' not in page


@pytest.mark.medium
def test_large_target_is_compared_with_a_sample_of_it(monkeypatch, tmp_path):
    toy = make_toy_domains(4, 2, 3, samples_per_class=100, dimensions=32, spread=0.8)
    data = toy.x_source, toy.y_source, toy.x_target
    whole = UniNCM(random_state=0).fit(*data)
    monkeypatch.setattr(UniNCMMethod, "most_fitted_rows", len(toy.x_target) // 2)
    model = UniNCM(random_state=0).fit(*data)
    stored = model.model_.method.stored_target()
    assert stored.n_samples == len(toy.x_target) // 2
    assert 0.98 < (model.labels_ == whole.labels_).mean() <= 1
    # Every sample has a label, stored or not, and it is the label of a new sample at the same place.
    assert len(model.labels_) == len(toy.x_target)
    assert (model.predict(toy.x_target) == model.labels_).all()
    # The sample is drawn by the seed, and stays with the run.
    assert (UniNCM(random_state=0).fit(*data).labels_ == model.labels_).all()
    model.save(tmp_path / "run")
    assert (load(tmp_path / "run").predict(toy.x_target) == model.labels_).all()


def test_target_is_searched_once_after_its_own_neighbourhoods(monkeypatch):
    toy = make_toy_domains(samples_per_class=30, dimensions=16)
    searched, search = [], Neighbours._search
    monkeypatch.setattr(Neighbours, "_search", lambda own, rows: searched.append(len(rows)) or search(own, rows))
    UniNCM(random_state=0, n_private_classes=2).fit(toy.x_source, toy.y_source, toy.x_target)
    blocks = -(-len(toy.x_target) // 128)
    # For the scatter, for the stored rows, and for the rows that decisions are made from.
    assert len(searched) == 3 * blocks
