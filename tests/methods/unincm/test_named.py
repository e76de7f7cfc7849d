"""Classes that were named in the target have a line of their own: new samples that are of no class stay unknown."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from uniot import UniNCM, load
from uniot.datasets import make_toy_domains
from uniot.errors import RunFolderError
from uniot.export.onnx import export_onnx
from uniot.io.tensor_files import StoredTensors
from uniot.methods.unincm.fit import UniNCMFit
from uniot.methods.unincm.named import _OTHERS_BELOW, _OWN_BELOW, fit_named_classes
from uniot.training import large_targets


def clusters(n_classes: int, each: int, noise: float, seed: int = 0, width: int = 32):
    generator = torch.Generator().manual_seed(seed)
    centres = F.normalize(torch.randn(n_classes, width, generator=generator), dim=1).repeat_interleave(each, 0)
    rows = centres + noise * torch.randn(len(centres), width, generator=generator)
    return F.normalize(rows, dim=1), torch.arange(n_classes).repeat_interleave(each)


class Named:
    """A run whose groups were all named by their true classes, and new samples; one private class is unseen."""

    def __init__(self, seed: int = 0, prefix: str = "", **options) -> None:
        toy = make_toy_domains(4, 2, 5, samples_per_class=60, dimensions=64, spread=0.9, seed=seed)
        truth = toy.oracle_y_target
        private = sorted(set(truth) - set(toy.y_source))
        self.unseen, self.named_classes = private[:2], private[2:]
        fitted = ~np.isin(truth, self.unseen) & (np.arange(len(truth)) % 2 == 0)
        self.target, self.truth = toy.x_target[fitted], truth[fitted]
        self.new, self.new_truth = toy.x_target[~fitted], truth[~fitted]
        self.first = UniNCM(random_state=0).fit(toy.x_source, toy.y_source, self.target)
        self.rows = (self.first.labels_ == "unknown") & np.isin(self.truth, self.named_classes)
        x = np.concatenate([toy.x_source, self.target[self.rows]])
        y = np.append(toy.y_source, [prefix + name for name in self.truth[self.rows]])
        self.after = UniNCM(random_state=0, **options).fit(x, y, self.target)


@pytest.fixture(scope="module")
def named() -> Named:
    return Named()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_unseen_classes_stay_unknown_after_all_groups_were_named(seed):
    run = Named(seed)
    before, after = run.first.predict(run.new), run.after.predict(run.new)
    unseen = np.isin(run.new_truth, run.unseen) & (before == "unknown")
    assert unseen.sum() > 50
    assert (after[unseen] == "unknown").mean() >= 0.9
    own = np.isin(run.new_truth, run.named_classes)
    assert (after[own] == run.new_truth[own]).mean() > 0.6


def test_what_was_known_before_the_names_is_labelled_as_before(named):
    for samples in (named.target, named.new):
        before, after = named.first.predict(samples), named.after.predict(samples)
        assert np.array_equal(after[before != "unknown"], before[before != "unknown"])
        assert set(after[before == "unknown"]) <= {"unknown", *named.named_classes}


def test_the_order_of_the_names_changes_no_label(named):
    first = Named(prefix="a ")  # before the classes of the source
    assert first.after.classes_[0].startswith("a ")
    labels = np.char.replace(first.after.predict(first.new).astype(str), "a ", "")
    assert (labels == named.after.predict(named.new)).all()


def test_labels_probabilities_and_odds_agree_about_named_classes(named):
    probabilities = named.after.predict_proba(named.new)
    columns = np.array([*named.after.classes_, "unknown"])
    assert np.array_equal(columns[probabilities.argmax(axis=1)], named.after.predict(named.new))
    assert np.allclose(probabilities.sum(axis=1), 1)
    assert np.allclose(np.linalg.norm(named.after.transform(named.new), axis=1), 1, atol=1e-5)


def test_a_saved_run_and_one_without_its_target_have_the_same_line(named, tmp_path):
    named.after.save(tmp_path / "run")
    expected = named.after.predict(named.new)
    assert np.array_equal(load(tmp_path / "run").predict(named.new), expected)
    without = Named(store_target=False)
    assert (without.after.predict(named.new) == expected).mean() > 0.9
    line, other = (one.after.model_.method.fitted.get().named for one in (named, without))
    assert torch.equal(line.means, other.means)
    assert line.threshold == other.threshold


@pytest.mark.slow
def test_an_exported_run_has_the_line(named, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    export_onnx(named.after.model_, tmp_path / "run.onnx")
    session = runtime.InferenceSession(tmp_path / "run.onnx")
    rows = named.new[:64].astype(np.float32)
    nearest, known, *_ = session.run(None, {"embeddings": rows})
    labels = np.where(known, named.after.classes_[nearest], "unknown")
    assert np.array_equal(labels, named.after.predict(rows))


def test_a_part_of_a_large_target_is_decided_like_the_rest(named, monkeypatch):
    whole = named.after.model_
    monkeypatch.setattr(type(whole.method), "most_fitted_rows", 100)
    part = UniNCM(random_state=0)
    labelled = np.flatnonzero(named.rows)
    x = np.concatenate([whole.source.features[:0], named.target[labelled]])
    toy = make_toy_domains(4, 2, 5, samples_per_class=60, dimensions=64, spread=0.9, seed=0)
    part.fit(np.concatenate([toy.x_source, x]), np.append(toy.y_source, named.truth[labelled]), named.target)
    assert not part.model_.method.has_unit_rows
    assert large_targets.PartOfTarget.of(part.model_.method, [0] * 101, 0) is not None
    assert np.array_equal(part.labels_, part.predict(named.target))


@given(seed=st.integers(0, 200), each=st.integers(2, 9), n_named=st.integers(1, 4))
def test_the_threshold_is_the_higher_of_both_bounds(seed, each, n_named):
    rows, classes = clusters(4, each, 0.4, seed)
    line = fit_named_classes(rows, classes, torch.arange(4) < n_named)
    own, others = [], []
    for row, index in zip(rows, classes, strict=True):
        # A class of fewer than ten samples has one mean.
        to_others = [
            F.normalize(rows[classes == other].sum(dim=0), dim=0) @ row for other in range(4) if other != index
        ]
        others.append(float(max(to_others)))
        if index < n_named:
            own.append(float(F.normalize(rows[classes == index].sum(dim=0) - row, dim=0) @ row))
    bounds = [
        sorted(values)[round(part * (len(values) - 1))] for values, part in ((others, _OTHERS_BELOW), (own, _OWN_BELOW))
    ]
    assert float(line.threshold) == pytest.approx(max(bounds), abs=1e-5)
    at = torch.tensor(float(line.threshold))
    assert len(line.means) == n_named
    assert torch.equal(line.odds(rows)[:, 0] >= 1, (rows @ line.means.t()).max(dim=1).values.double() >= at)


def test_samples_of_no_class_are_below_the_line_and_odds_rise_with_the_cosine():
    rows, classes = clusters(4, 40, 0.15)
    line = fit_named_classes(rows, classes, torch.tensor([True, True, False, False]))
    fresh, _ = clusters(6, 40, 0.15, seed=99)
    assert float((line.odds(fresh)[:, 0] < 1).float().mean()) > 0.95
    own, _ = clusters(4, 80, 0.15)
    assert float((line.odds(own[:160])[:, 0] >= 1).float().mean()) > 0.7
    mean, away = line.means[0], F.normalize(torch.randn(32, generator=torch.Generator().manual_seed(5)), dim=0)
    path = F.normalize(torch.stack([(1 - t) * away + t * mean for t in torch.linspace(0, 1, 9)]), dim=1)
    assert (line.odds(path)[:, 0].diff() >= 0).all()


def test_a_named_class_of_one_sample_and_one_of_copies_give_finite_odds():
    rows, classes = clusters(2, 12, 0.2)
    one = fit_named_classes(
        torch.cat([rows, rows[:1] * -1]), torch.cat([classes, torch.tensor([2])]), torch.arange(3) > 1
    )
    assert torch.isfinite(one.odds(rows)).all()
    copies = fit_named_classes(
        rows[:1].expand(8, -1), torch.zeros(8, dtype=torch.long), torch.ones(1, dtype=torch.bool)
    )
    assert float(copies.odds(rows[:1])) >= 1
    assert torch.isfinite(copies.odds(rows)).all()


def test_a_line_without_samples_or_without_a_named_class_is_refused(named):
    value = named.after.model_.method.fitted.get()
    stored = value.tensors()
    width, n_classes = named.target.shape[1], len(named.after.classes_)
    assert torch.equal(UniNCMFit.read(StoredTensors("here", stored), width, n_classes).named.means, value.named.means)
    empty = stored | {"named.means": torch.zeros(0, width)}
    with pytest.raises(RunFolderError, match="here has named classes without samples"):
        UniNCMFit.read(StoredTensors("here", empty), width, n_classes)
    line = {name: tensor for name, tensor in stored.items() if name.startswith("named.")}
    plain = named.first.model_.method.fitted.get().tensors() | line
    with pytest.raises(RunFolderError, match="does not have one rejection rule per class"):
        UniNCMFit.read(StoredTensors("here", plain), width, len(named.first.classes_))


def test_classes_on_opposite_sides_of_a_line_are_fitted():
    rows = torch.tensor([[1.0], [-1.0]])
    line = fit_named_classes(rows, torch.tensor([0, 1]), torch.tensor([True, True]))
    assert float(line.threshold) == -1
    assert (line.odds(rows) >= 1).all()
