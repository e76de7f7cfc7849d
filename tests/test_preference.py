"""A preference for known or unknown: met on the fitted target, kept by everything that answers, without refitting."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from uniot import UniDAClassifier, UniNCM
from uniot.benchmark.jobs import Options
from uniot.config import Settings
from uniot.datasets import ToyDomains, make_toy_domains
from uniot.errors import DataError, SettingsError
from uniot.export.hub import without_data
from uniot.io.arrays import scaled_rows
from uniot.io.predictions import read_predictions
from uniot.methods.registry import hyperparameters
from uniot.runs.loading import load_model
from uniot.runs.saving import save_model
from uniot.training.fit import fingerprint

SMALL = {"steps": 40, "hidden_size": 64, "feature_size": 32, "detection_start": 20, "queue_size": 400}
PREFERENCES = [{"private_prior": prior} for prior in (0, 0.3, 0.6, 1)] + [{"prefer": "known"}, {"prefer": "unknown"}]


def acting(method: str) -> dict:
    return {name: value for name, value in SMALL.items() if name in hyperparameters(method)}


@pytest.fixture(scope="module")
def toy() -> ToyDomains:
    """Classes that overlap, so that scores are not all at their limits."""
    clean = make_toy_domains(seed=1)
    rng = np.random.default_rng(0)
    spread = 0.8 * clean.x_target.std()
    return replace(clean, x_target=clean.x_target + spread * rng.normal(size=clean.x_target.shape))


@pytest.fixture(scope="module", params=["uniot", "unincm", "dance"])
def method(request: pytest.FixtureRequest) -> dict:
    return {"method": request.param, "random_state": 0, **acting(request.param)}


@pytest.fixture(scope="module")
def fitted(toy: ToyDomains, method: dict) -> UniDAClassifier:
    return UniDAClassifier(**method).fit(toy.x_source, toy.y_source, toy.x_target)


def unknown_part(labels: np.ndarray) -> float:
    return float((labels == "unknown").mean())


def test_the_estimated_prior_is_what_the_rule_calls_unknown(fitted: UniDAClassifier) -> None:
    assert 0 < fitted.private_prior_ < 1
    assert fitted.private_prior_ == unknown_part(fitted.labels_)


def test_the_fraction_is_met_on_the_fitted_target(toy: ToyDomains, fitted: UniDAClassifier) -> None:
    parts = {prior: unknown_part(fitted.predict(toy.x_target, private_prior=prior)) for prior in (0, 0.2, 0.5, 0.8, 1)}
    assert list(parts.values()) == pytest.approx(list(parts), abs=1 / len(toy.x_target))
    assert (parts[0], parts[1]) == (0, 1)


def test_more_unknown_only_adds_to_what_is_unknown(toy: ToyDomains, fitted: UniDAClassifier) -> None:
    unknown = [fitted.predict(toy.x_target, private_prior=prior) == "unknown" for prior in np.linspace(0, 1, 9)]
    for fewer, more in itertools.pairwise(unknown):
        assert (more | ~fewer).all()


@pytest.mark.parametrize("preference", PREFERENCES, ids=str)
def test_fit_and_predict_meet_a_preference_alike(
    toy: ToyDomains, method: dict, fitted: UniDAClassifier, preference: dict
) -> None:
    preferring = UniDAClassifier(**method, **preference).fit(toy.x_source, toy.y_source, toy.x_target)
    np.testing.assert_array_equal(preferring.predict(toy.x_target), preferring.labels_)
    np.testing.assert_array_equal(fitted.predict(toy.x_target, **preference), preferring.labels_)
    full = fitted.predict_full(toy.x_target, **preference)
    np.testing.assert_allclose(full.confidence, preferring.model_.target.confidence, atol=1e-6)
    np.testing.assert_array_equal(full.known, full.known_score >= 0.5)
    column = np.where(full.known, full.nearest, len(fitted.classes_))
    np.testing.assert_array_equal(fitted.predict_proba(toy.x_target, **preference).argmax(axis=1), column)
    assert preferring.private_prior_ == pytest.approx(fitted.private_prior_)
    # The accuracy is estimated for the rule; a preference makes it that of another decision.
    assert preferring.reliability_.accuracy is None
    assert set(preferring.reliability_.warnings) <= set(fitted.reliability_.warnings)
    # Groups are those of the samples that are unknown by the preference.
    np.testing.assert_array_equal(
        preferring.groups_ >= 0, (preferring.labels_ == "unknown") & bool(preferring.n_private_classes_)
    )


def test_one_preference_replaces_another(
    toy: ToyDomains, method: dict, fitted: UniDAClassifier, tmp_path: Path
) -> None:
    once = UniDAClassifier(**method, private_prior=0).fit(toy.x_source, toy.y_source, toy.x_target)
    once.save(tmp_path / "run")
    loaded = UniDAClassifier.load(tmp_path / "run")
    assert loaded.get_params()["private_prior"] == 0
    np.testing.assert_array_equal(loaded.predict(toy.x_target), once.labels_)
    for preference in ({"private_prior": 0.4}, {"prefer": "known"}):
        np.testing.assert_array_equal(
            loaded.predict(toy.x_target, **preference), fitted.predict(toy.x_target, **preference)
        )


def test_samples_that_become_unknown_join_the_nearest_group(toy: ToyDomains, fitted: UniDAClassifier) -> None:
    model = fitted.model_
    more = model.with_preference(prefer="unknown")
    joined = ~more.target.known & model.target.known
    assert joined.any()
    if model.groups.n_groups:
        np.testing.assert_array_equal(more.target.group[joined], model.groups.nearest(model.target_features[joined]))
        np.testing.assert_array_equal(more.groups.group, more.target.group[~more.target.known])
    still = ~model.target.known
    np.testing.assert_array_equal(more.target.group[still], model.target.group[still])
    none = replace(model, groups=replace(model.groups, centres=model.groups.centres[:0]))
    answers = none.predict(scaled_rows(toy.x_target, model.settings.input_norm))
    assert (answers.group == -1).all()


@pytest.mark.slow
def test_onnx_answers_as_the_run_with_its_preference(toy: ToyDomains, tmp_path: Path) -> None:
    for package in ("onnx", "onnxruntime", "onnxscript"):
        pytest.importorskip(package, reason="pip install 'uniot[onnx]'")
    import onnxruntime

    from uniot.export.onnx import OUTPUTS, export_onnx

    rows = toy.x_target.astype(np.float32)
    cases = [
        ("uniot", {"private_prior": 0.3}),
        ("uniot", {"private_prior": 0}),
        ("unincm", {"private_prior": 0.7}),
    ]
    for name, preference in cases:
        estimator = UniDAClassifier(name, random_state=0, **acting(name), **preference)
        estimator.fit(toy.x_source, toy.y_source, toy.x_target)
        export_onnx(estimator.model_, tmp_path / "model.onnx")
        session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
        answers = dict(zip(OUTPUTS, session.run(OUTPUTS, {"embeddings": rows}), strict=True))
        expected = estimator.predict_full(rows)
        for part in ("nearest", "known", "group"):
            np.testing.assert_array_equal(answers[part], getattr(expected, part), err_msg=f"{name} {part}")
        np.testing.assert_allclose(answers["confidence"], expected.confidence, atol=1e-4)
        np.testing.assert_allclose(answers["probabilities"], estimator.predict_proba(rows), atol=1e-4)


def test_two_preferences_and_wrong_ones_are_refused(toy: ToyDomains, fitted: UniDAClassifier) -> None:
    both = r"private_prior is 0\.3 and prefer is 'known', and each sets the threshold\. Give one of them, or none\."
    with pytest.raises(SettingsError, match=both):
        UniNCM(private_prior=0.3, prefer="known").fit(toy.x_source, toy.y_source, toy.x_target)
    with pytest.raises(SettingsError, match=both):
        fitted.predict(toy.x_target, private_prior=0.3, prefer="known")
    for wrong in ({"private_prior": 1.5}, {"private_prior": float("nan")}, {"prefer": "cats"}):
        with pytest.raises(SettingsError, match=f"setting {next(iter(wrong))} is"):
            fitted.predict(toy.x_target, **wrong)


def test_a_run_that_was_shared_without_its_target_keeps_its_preference_and_takes_no_other(
    toy: ToyDomains, method: dict, tmp_path: Path
) -> None:
    model = UniDAClassifier(**method, private_prior=1).fit(toy.x_source, toy.y_source, toy.x_target).model_
    save_model(without_data(model), tmp_path / "shared")
    shared = UniDAClassifier.load(tmp_path / "shared")
    assert set(shared.predict(toy.x_target)) == {"unknown"}
    assert np.isnan(shared.private_prior_)
    with pytest.raises(DataError, match=r"this run was shared without it\. Leave them out"):
        shared.predict(toy.x_target, private_prior=0.3)


def test_a_preference_that_is_not_set_is_outside_the_fingerprint() -> None:
    plain, preferring = Settings.checked(), Settings.checked(prefer="known")
    assert not {"private_prior", "prefer"} & set(plain.model_dump(exclude=plain.outside_fingerprint))
    assert fingerprint(plain, "") != fingerprint(preferring, "")


def test_a_benchmark_is_not_told_the_prior() -> None:
    with pytest.raises(SettingsError, match="private_prior cannot be chosen here"):
        Options({"private_prior": 0.3}).of("uniot")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, toy: ToyDomains) -> Path:
    folder = tmp_path_factory.mktemp("files")
    np.savez(folder / "source.npz", x=toy.x_source, y=toy.y_source)
    np.savez(folder / "target.npz", x=toy.x_target)
    return folder


@pytest.fixture(scope="module")
def adapt(uniot: Callable, files: Path) -> Callable:
    return lambda out, *more: uniot("adapt", files / "source.npz", files / "target.npz", "--out", out, *more)


def test_adapt_takes_a_preference_and_says_so(adapt: Callable, tmp_path: Path) -> None:
    done = adapt(tmp_path / "run", "--private-prior", 0.4)
    assert done.code == 0, done.stderr
    words = (
        "Preference applied: private prior 0.4. With it, 40.0 % of the unlabelled samples of the run are called unknown"
    )
    assert f"{words}; without it, " in done.stdout
    assert read_predictions(tmp_path / "run" / "predictions.csv").known.mean() == pytest.approx(0.6)
    assert "private_prior = 0.4" in (tmp_path / "run" / "settings.toml").read_text()
    # The command line replaces the preference of a file, whichever it is.
    again = adapt(tmp_path / "again", "--settings", tmp_path / "run" / "settings.toml", "--prefer", "known")
    assert again.code == 0, again.stderr
    assert "Preference applied: prefer known." in again.stdout


def test_predict_and_report_repeat_with_another_preference(
    uniot: Callable, adapt: Callable, files: Path, tmp_path: Path
) -> None:
    assert "Preference" not in adapt(tmp_path / "run").stdout
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    for option, value, part in (
        ("--private-prior", "0.6", 0.6),
        ("--private-prior", "0", 0),
        ("--prefer", "known", None),
    ):
        done = uniot("predict", tmp_path / "run", files / "target.npz", "--out", tmp_path / "new.csv", option, value)
        assert done.code == 0, done.stderr
        assert f"Preference applied: {option[2:].replace('-', ' ')} {value}." in done.stdout
        if part is not None:
            assert 1 - read_predictions(tmp_path / "new.csv").known.mean() == pytest.approx(part)
    printed = uniot("predict", tmp_path / "run", files / "target.npz", "--prefer", "unknown")
    assert "Preference" not in printed.stdout
    assert "Preference applied: prefer unknown." in printed.stderr
    both = uniot("predict", tmp_path / "run", files / "target.npz", "--prefer", "known", "--private-prior", "0.3")
    assert both.code == 1
    assert "Give one of them, or none." in both.stderr
    pytest.importorskip("matplotlib", reason="pip install 'uniot[report]'")
    told = uniot("report", tmp_path / "run", "--private-prior", 1, "--out", tmp_path / "page.html")
    assert told.code == 0, told.stderr
    assert "Preference applied: private prior 1. With it, 100.0 %" in told.stdout
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == before
    assert load_model(tmp_path / "run").threshold is None


def test_continuing_a_run_keeps_what_is_preferred_and_not_the_prior(
    uniot: Callable, adapt: Callable, tmp_path: Path
) -> None:
    for run, option, value in (("a", "--private-prior", "0.5"), ("b", "--prefer", "unknown")):
        assert adapt(tmp_path / run, option, value).code == 0
        answers = read_predictions(tmp_path / run / "predictions.csv")
        named = [
            f"{name},a new class,named,0"
            for name, group in zip(answers.names, answers.groups, strict=True)
            if group == 0
        ]
        (tmp_path / run / "labels.csv").write_text("\n".join(["path,label,decision,group", *named]) + "\n")
    without_prior = uniot("adapt", "--continue", tmp_path / "a")
    assert without_prior.code == 0, without_prior.stderr
    assert "Preference" not in without_prior.stdout
    assert "Preference applied: prefer unknown." in uniot("adapt", "--continue", tmp_path / "b").stdout
