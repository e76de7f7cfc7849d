"""The estimator as its users meet it: scikit-learn's conventions, any input, the same answers everywhere."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone, is_classifier
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.estimator_checks import check_dataframe_column_names_consistency, parametrize_with_checks
from sklearn.utils.validation import check_is_fitted

from uniot import UniDAClassifier, UniNCM, UniOT, load
from uniot.datasets import ToyDomains, make_toy_domains
from uniot.errors import DataError, NotFittedError, RunFolderError, SettingsError
from uniot.methods.registry import METHODS, hyperparameters
from uniot.metrics.accuracy import h_score

SMALL = {"steps": 80, "hidden_size": 64, "feature_size": 32, "detection_start": 20, "queue_size": 400}


@pytest.fixture(scope="module")
def toy() -> ToyDomains:
    return make_toy_domains(seed=1)


@pytest.fixture(scope="module", params=["uniot", "unincm"])
def small(request: pytest.FixtureRequest) -> dict:
    return {"method": request.param, **(SMALL if request.param == "uniot" else {})}


@pytest.fixture(scope="module")
def fitted(toy: ToyDomains, small: dict) -> UniDAClassifier:
    return UniDAClassifier(random_state=0, **small).fit(toy.x_source, toy.y_source, toy.x_target)


def test_common_classes_are_labelled_and_private_ones_are_unknown(toy: ToyDomains, fitted: UniDAClassifier) -> None:
    assert h_score(toy.oracle_y_target, fitted.labels_, source_classes=fitted.classes_) > 0.9


@pytest.mark.parametrize(("estimator", "method"), [(UniOT, "uniot"), (UniNCM, "unincm")])
def test_constructor_has_what_acts_with_its_defaults(estimator: type, method: str) -> None:
    parameters = {name: one.default for name, one in inspect.signature(estimator).parameters.items()}
    acting = hyperparameters(method) if method == "unincm" else hyperparameters(method, "small-cnn")
    shared = {"n_private_classes", "private_prior", "prefer", "unknown_label", "random_state"}
    own = {"trainer"} if method == "unincm" else {"network", "augmentation", "logger", "input_norm"}
    assert set(parameters) == set(acting) | shared | own
    assert {name: parameters[name] for name in acting} == acting


@pytest.mark.parametrize("method", METHODS)
def test_get_params_lists_what_acts_for_each_method(method: str) -> None:
    listed = UniDAClassifier(method).get_params()
    assert listed.items() >= hyperparameters(method).items()
    idle = {"steps", "queue_size", "feature_size", "input_norm", "store_target", "backbone_learning_rate"} - set(listed)
    for name in idle:
        with pytest.raises(SettingsError, match=f"{name} does nothing for the method '{method}'.*that act are"):
            UniDAClassifier(method, **{name: 1})
    with_memory = {"uniot", "cmu", "tnt", "dance", "mlnet", "glc", "lead", "maths", "unijdot"}
    assert ("queue_size" in listed) == (method.split("-", maxsplit=1)[0] in with_memory)
    assert ("feature_size" in listed) == ("steps" in listed and method != "dance")


def test_another_method_can_be_set_and_takes_its_own_hyperparameters() -> None:
    model = clone(UniDAClassifier("uan", steps=5)).set_params(method="dance", margin=0.2)
    assert (model.get_params()["margin"], model.get_params()["steps"]) == (0.2, 5)
    assert "threshold" not in model.get_params()
    with pytest.raises(SettingsError, match="margin does nothing for the method 'uniot'"):
        model.set_params(method="uniot")
    assert UniNCM(trainer=UniOT(network="small-cnn")).set_params(trainer__steps=3).get_params()["trainer__steps"] == 3


def test_load_returns_the_class_of_the_method(toy: ToyDomains, fitted: UniDAClassifier, tmp_path: Path) -> None:
    fitted.save(tmp_path / "run")
    loaded = load(tmp_path / "run")
    assert type(loaded) is {"uniot": UniOT, "unincm": UniNCM}[fitted.settings_.method]
    other = UniNCM if type(loaded) is UniOT else UniOT
    with pytest.raises(SettingsError, match=r"Open it with `uniot.load\(folder\)`"):
        other.load(tmp_path / "run")


def test_decision_function_decides(toy: ToyDomains, fitted: UniDAClassifier) -> None:
    for preference in ({}, {"private_prior": 0.7}, {"private_prior": 0}):
        scores = fitted.decision_function(toy.x_target, **preference)
        assert scores.shape == (len(toy.x_target), len(fitted.classes_) + 1)
        assert np.isfinite(scores).all()
        names = np.append(fitted.classes_, "unknown")
        np.testing.assert_array_equal(names[scores.argmax(axis=1)], fitted.predict(toy.x_target, **preference))


def test_transform_returns_unit_rows_with_a_name_per_column(toy: ToyDomains, fitted: UniDAClassifier) -> None:
    rows = fitted.transform(toy.x_target)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-4)
    assert rows.shape[1] == len(fitted.get_feature_names_out())
    if fitted.settings_.method == "uniot":
        assert rows.shape[1] == 32


def test_get_params_clone_and_repr_follow_scikit_learn(fitted: UniDAClassifier) -> None:
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert not hasattr(copy, "labels_")
    assert f"method='{fitted.settings_.method}'" in repr(copy) or fitted.settings_.method == "unincm"
    assert is_classifier(copy)
    check_is_fitted(fitted)


def test_predict_on_the_fitted_rows_equals_labels(toy: ToyDomains, fitted: UniDAClassifier) -> None:
    np.testing.assert_array_equal(fitted.predict(toy.x_target), fitted.labels_)
    one_by_one = [fitted.predict(toy.x_target[i : i + 1])[0] for i in range(20)]
    np.testing.assert_array_equal(one_by_one, fitted.labels_[:20])


def test_the_largest_probability_is_what_predict_says(toy: ToyDomains, fitted: UniDAClassifier) -> None:
    probabilities = fitted.predict_proba(toy.x_target)
    assert probabilities.shape == (len(toy.x_target), len(fitted.classes_) + 1)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    names = np.append(fitted.classes_, "unknown")
    np.testing.assert_array_equal(names[probabilities.argmax(axis=1)], fitted.labels_)


def test_known_score_is_at_least_one_half_where_known(toy: ToyDomains, fitted: UniDAClassifier) -> None:
    score = fitted.known_score(toy.x_target)
    assert ((score >= 0) & (score <= 1)).all()
    np.testing.assert_array_equal(score >= 0.5 - 1e-6, fitted.labels_ != "unknown")


def test_confidence_is_the_probability_of_the_answer(toy: ToyDomains, fitted: UniDAClassifier) -> None:
    probabilities, labels = fitted.predict_proba(toy.x_target), fitted.predict(toy.x_target)
    column = np.array([[*fitted.classes_, "unknown"].index(label) for label in labels])
    np.testing.assert_array_equal(fitted.confidence(toy.x_target), probabilities[np.arange(len(column)), column])
    np.testing.assert_allclose(fitted.model_.target.confidence, fitted.confidence(toy.x_target), atol=1e-6)
    is_unknown = labels == "unknown"
    assert is_unknown.any()
    assert (fitted.confidence(toy.x_target)[is_unknown] >= 0.5).all()


def test_every_unknown_row_has_a_group_and_no_known_one(toy: ToyDomains, fitted: UniDAClassifier) -> None:
    np.testing.assert_array_equal(fitted.groups_ >= 0, fitted.labels_ == "unknown")
    assert set(fitted.groups_[fitted.groups_ >= 0]) == set(range(fitted.n_private_classes_))
    np.testing.assert_array_equal(fitted.predict_group(toy.x_target) >= 0, fitted.labels_ == "unknown")


@pytest.mark.parametrize("n_groups", [0, 1, 4])
def test_the_number_of_private_classes_can_be_given(toy: ToyDomains, n_groups: int, small: dict) -> None:
    model = UniDAClassifier(random_state=0, n_private_classes=n_groups, **small).fit(
        toy.x_source, toy.y_source, toy.x_target
    )
    assert model.n_private_classes_ == n_groups


@pytest.mark.parametrize("scale", [1000, 0.001])
def test_scale_of_all_embeddings_changes_no_label(
    toy: ToyDomains, fitted: UniDAClassifier, scale: float, small: dict
) -> None:
    scaled = UniDAClassifier(random_state=0, **small).fit(toy.x_source * scale, toy.y_source, toy.x_target * scale)
    np.testing.assert_array_equal(scaled.labels_, fitted.labels_)


@pytest.mark.parametrize("kind", ["float32", "float16", "torch", "bfloat16", "frame", "list", "int"])
def test_embeddings_of_any_numeric_kind_are_taken(toy: ToyDomains, kind: str, small: dict) -> None:
    convert = {
        "float32": lambda x: x.astype(np.float32),
        "float16": lambda x: x.astype(np.float16),
        "torch": lambda x: torch.from_numpy(x).requires_grad_(),
        "bfloat16": lambda x: torch.from_numpy(x).bfloat16(),
        "frame": pd.DataFrame,
        "list": lambda x: x.tolist(),
        "int": lambda x: (x * 100).astype(np.int32),
    }[kind]
    model = UniDAClassifier(random_state=0, **small).fit(
        convert(toy.x_source), toy.y_source.tolist(), convert(toy.x_target)
    )
    assert isinstance(model.labels_, np.ndarray)
    assert model.n_features_in_ == 32
    assert h_score(toy.oracle_y_target, model.labels_, source_classes=model.classes_) > 0.85


def test_integer_classes_call_the_unknown_minus_one(toy: ToyDomains, small: dict) -> None:
    numbers = np.unique(toy.y_source, return_inverse=True)[1]
    model = UniDAClassifier(random_state=0, **small).fit(toy.x_source, numbers, toy.x_target)
    assert model.labels_.dtype == np.int64
    assert -1 in model.labels_


def test_unknown_label_can_be_chosen_and_may_be_longer_than_any_class(toy: ToyDomains, small: dict) -> None:
    model = UniDAClassifier(random_state=0, unknown_label="something else entirely", **small)
    model.fit(toy.x_source, toy.y_source, toy.x_target)
    assert "something else entirely" in model.labels_


def test_same_seed_gives_the_same_and_another_seed_another(
    toy: ToyDomains, fitted: UniDAClassifier, small: dict
) -> None:
    again = UniDAClassifier(random_state=0, **small).fit(toy.x_source, toy.y_source, toy.x_target)
    other = UniDAClassifier(random_state=1, **small).fit(toy.x_source, toy.y_source, toy.x_target)
    np.testing.assert_array_equal(again.confidence(toy.x_target), fitted.confidence(toy.x_target))
    # The universal variant draws nothing where embeddings are few and narrow.
    differs = not np.array_equal(other.confidence(toy.x_target), fitted.confidence(toy.x_target))
    assert differs == (small["method"] == "uniot")


def test_fitting_leaves_the_random_state_of_torch_and_numpy_alone(toy: ToyDomains, small: dict) -> None:
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002 (the global state is what is looked at)
    before = torch.random.get_rng_state().clone(), np.random.get_state()[1].copy()  # noqa: NPY002
    UniDAClassifier(random_state=0, **small).fit(toy.x_source, toy.y_source, toy.x_target)
    assert torch.equal(before[0], torch.random.get_rng_state())
    np.testing.assert_array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002


def test_a_saved_model_answers_as_before(toy: ToyDomains, fitted: UniDAClassifier, tmp_path) -> None:
    fitted.save(tmp_path / "run")
    loaded = UniDAClassifier.load(tmp_path / "run")
    np.testing.assert_array_equal(loaded.labels_, fitted.labels_)
    np.testing.assert_array_equal(loaded.groups_, fitted.groups_)
    np.testing.assert_array_equal(loaded.predict_proba(toy.x_target), fitted.predict_proba(toy.x_target))
    np.testing.assert_array_equal(loaded.predict_group(toy.x_target), fitted.predict_group(toy.x_target))
    assert loaded.settings_ == fitted.settings_
    if "n_clusters" in loaded.get_params():
        # What the data decided has become explicit: a clone repeats the run.
        assert loaded.get_params()["n_clusters"] == fitted.settings_.method_options["n_clusters"]


def test_true_target_labels_reach_the_history_and_nothing_else(
    toy: ToyDomains, fitted: UniDAClassifier, small: dict
) -> None:
    watched = UniDAClassifier(random_state=0, **small).fit(
        toy.x_source, toy.y_source, toy.x_target, oracle_y_target=toy.oracle_y_target
    )
    np.testing.assert_array_equal(watched.confidence(toy.x_target), fitted.confidence(toy.x_target))
    assert "oracle_recall" not in fitted.history_


def test_the_history_tells_how_well_the_detection_does(toy: ToyDomains) -> None:
    watched = UniOT(random_state=0, **SMALL).fit(
        toy.x_source, toy.y_source, toy.x_target, oracle_y_target=toy.oracle_y_target
    )
    recall = np.array(watched.history_["oracle_recall"])
    specificity = np.array(watched.history_["oracle_specificity"])
    assert np.isnan(recall[:21]).all()
    assert np.nanmean(recall[-20:]) > 0.5
    assert np.nanmean(specificity[-20:]) > 0.5


def test_class_mass_is_that_after_the_last_step(fitted: UniDAClassifier, small: dict) -> None:
    if small["method"] == "unincm":
        assert fitted.class_mass_ is None
        return
    np.testing.assert_array_equal(fitted.class_mass_, fitted.model_.method.loss.common.class_mass.numpy())
    assert not np.allclose(fitted.class_mass_, 1 / len(fitted.classes_))


def test_settings_show_what_the_data_decided(fitted: UniDAClassifier, toy: ToyDomains, small: dict) -> None:
    if small["method"] == "unincm":
        assert fitted.settings_.steps == 0
        return
    assert fitted.settings_.method_options["n_clusters"] == len(toy.x_target) // 4
    assert fitted.settings_.queue_size == 396  # whole batches of 36
    assert fitted.settings_.steps == 80


def test_a_target_smaller_than_a_batch_is_taken(toy: ToyDomains, small: dict) -> None:
    model = UniDAClassifier(random_state=0, **small).fit(toy.x_source, toy.y_source, toy.x_target[::10])
    assert len(model.labels_) == 15
    assert model.settings_.batch_size == 15


def test_constant_embeddings_are_all_alike_and_do_not_fail(small: dict) -> None:
    model = UniDAClassifier(random_state=0, **small).fit(np.ones((20, 8)), [0, 1] * 10, np.ones((30, 8)))
    assert len(set(model.labels_.tolist())) == 1
    assert np.isfinite(model.confidence(np.ones((2, 8)))).all()


def test_a_row_of_zeros_is_taken(toy: ToyDomains, fitted: UniDAClassifier) -> None:
    assert np.isfinite(fitted.confidence(np.zeros((1, 32)))).all()


def test_asking_before_fitting_says_what_to_do() -> None:
    with pytest.raises(NotFittedError, match=r"Call fit\(X_source, y_source, X_target\) first"):
        UniNCM().predict(np.ones((2, 3)))


class TestBadInput:
    """Every message says what was expected, what came, and what to do."""

    def fit(self, x: object, y: object, target: object, **parameters: object) -> UniDAClassifier:
        return UniOT(random_state=0, **{**SMALL, **parameters}).fit(x, y, target)

    def test_labels_and_rows_of_different_length(self, toy: ToyDomains) -> None:
        with pytest.raises(DataError, match="y_source has 149 labels for 150 rows of X_source"):
            self.fit(toy.x_source, toy.y_source[:-1], toy.x_target)

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_nan_and_infinity_are_named_with_their_place(self, toy: ToyDomains, value: float) -> None:
        broken = toy.x_target.copy()
        broken[7, 3] = value
        with pytest.raises(DataError, match=rf"X_target holds {value} in row 7, column 3"):
            self.fit(toy.x_source, toy.y_source, broken)

    def test_zero_rows(self, toy: ToyDomains) -> None:
        with pytest.raises(DataError, match=r"X_target has shape \(0, 32\).*at least one sample"):
            self.fit(toy.x_source, toy.y_source, np.zeros((0, 32)))

    def test_one_class(self, toy: ToyDomains) -> None:
        with pytest.raises(DataError, match="only one class, 'only'.*at least two"):
            self.fit(toy.x_source, ["only"] * len(toy.x_source), toy.x_target)

    def test_one_target_sample(self, toy: ToyDomains) -> None:
        with pytest.raises(DataError, match="a single sample.*use `predict` for single samples"):
            self.fit(toy.x_source, toy.y_source, toy.x_target[:1])

    def test_different_widths(self, toy: ToyDomains) -> None:
        with pytest.raises(DataError, match=r"X_source has samples of shape \(32,\) and X_target of \(5,\)"):
            self.fit(toy.x_source, toy.y_source, toy.x_target[:, :5])

    def test_other_width_in_predict(self, fitted: UniDAClassifier) -> None:
        with pytest.raises(DataError, match="X has 5 features, but UniDAClassifier is expecting 32 features"):
            fitted.predict(np.ones((3, 5)))

    def test_object_array(self, toy: ToyDomains) -> None:
        with pytest.raises(DataError, match="X_source has dtype object.*Give numbers"):
            self.fit(toy.x_source.astype(object), toy.y_source, toy.x_target)

    def test_text(self, toy: ToyDomains) -> None:
        with pytest.raises(DataError, match="X_source has dtype <U.*Give numbers"):
            self.fit(toy.x_source.astype(str), toy.y_source, toy.x_target)

    def test_ragged_rows(self, toy: ToyDomains) -> None:
        with pytest.raises(DataError, match="rows of equal length"):
            self.fit([[1.0, 2.0], [3.0]], ["a", "b"], toy.x_target)

    def test_a_flat_array(self, toy: ToyDomains) -> None:
        with pytest.raises(DataError, match=r"X_source has shape \(32,\).*one row per sample"):
            self.fit(toy.x_source[0], toy.y_source[:1], toy.x_target)

    def test_no_target(self, toy: ToyDomains) -> None:
        with pytest.raises(DataError, match="X_target is missing"):
            UniNCM().fit(toy.x_source, toy.y_source)

    def test_mixed_and_missing_labels(self, toy: ToyDomains) -> None:
        labels = toy.y_source.astype(object)
        labels[3] = None
        with pytest.raises(DataError, match=r"y_source has no label in 1 of \d+ rows, the first is row 3 \(None\)"):
            self.fit(toy.x_source, labels, toy.x_target)

    def test_masks(self, toy: ToyDomains) -> None:
        masked = np.ma.masked_where(np.arange(len(toy.y_source)) == 3, toy.y_source)
        with pytest.raises(DataError, match=r"y_source has no label in 1 of \d+ rows, the first is row 3 \(masked\)"):
            self.fit(toy.x_source, masked, toy.x_target)
        with (
            pytest.raises(DataError, match="y_source has no label in 1 of"),
            pytest.warns(DataConversionWarning, match="column-vector"),
        ):
            self.fit(toy.x_source, masked[:, None], toy.x_target)
        with pytest.raises(DataError, match="X_target is a masked array with 32 masked values, the first in row 0"):
            self.fit(
                toy.x_source, toy.y_source, np.ma.array(toy.x_target, mask=np.arange(150 * 32).reshape(150, 32) < 32)
            )

    def test_fractional_labels(self, toy: ToyDomains) -> None:
        with pytest.raises(DataError, match="y_source holds 0.5 in row 0"):
            self.fit(toy.x_source, np.full(len(toy.x_source), 0.5), toy.x_target)

    def test_a_class_called_unknown(self, toy: ToyDomains) -> None:
        labels = np.where(toy.y_source == "common-0", "unknown", toy.y_source)
        with pytest.raises(
            DataError, match="a source class is called 'unknown'.*Rename the class, or, in Python, set unknown_label"
        ):
            self.fit(toy.x_source, labels, toy.x_target)

    def test_unknown_label_of_another_kind(self, toy: ToyDomains) -> None:
        with pytest.raises(SettingsError, match="unknown_label is -1 and the classes are text"):
            self.fit(toy.x_source, toy.y_source, toy.x_target, unknown_label=-1)

    def test_a_setting_out_of_range(self, toy: ToyDomains) -> None:
        with pytest.raises(SettingsError, match="setting temperature is -1"):
            self.fit(toy.x_source, toy.y_source, toy.x_target, temperature=-1)

    def test_oracle_labels_of_another_length(self, toy: ToyDomains) -> None:
        with pytest.raises(DataError, match="oracle_y_target has 2 labels for 150 target rows"):
            UniOT(**SMALL).fit(toy.x_source, toy.y_source, toy.x_target, oracle_y_target=["a", "b"])

    def test_a_folder_with_another_finished_run(self, toy: ToyDomains, fitted: UniDAClassifier, tmp_path) -> None:
        fitted.save(tmp_path)
        with pytest.raises(RunFolderError, match="contains a finished run of other data or other settings"):
            UniOT(random_state=9, **SMALL).fit(toy.x_source, toy.y_source, toy.x_target, run=tmp_path)

    def test_images_outside_zero_to_one(self) -> None:
        images = np.full((10, 8, 8), 255)
        with pytest.raises(DataError, match=r"values from 255 to 255.*from 0 to 1"):
            self.fit(images, [0, 1] * 5, images, network="small-cnn")


def test_a_finished_run_in_the_folder_is_taken_as_it_is(
    toy: ToyDomains, fitted: UniDAClassifier, tmp_path, small: dict
) -> None:
    fitted.save(tmp_path)
    steps: list[int] = []
    again = UniDAClassifier(random_state=0, **small)
    again.fit(toy.x_source, toy.y_source, toy.x_target, run=tmp_path, on_step=lambda step, *_: steps.append(step))
    assert steps == []
    np.testing.assert_array_equal(again.labels_, fitted.labels_)


@settings(max_examples=30)
@given(
    n_target=st.integers(2, 50),
    n_source=st.integers(2, 30),
    width=st.integers(1, 6),
    seed=st.integers(0, 100),
    scale=st.sampled_from([1e-30, 1e-3, 1.0, 1e6, 1e30]),
    method=st.sampled_from(["uniot", "unincm"]),
)
def test_any_finite_data_get_an_answer_for_every_row(
    n_target: int, n_source: int, width: int, seed: int, scale: float, method: str
) -> None:
    random = np.random.default_rng(seed)
    source, target = random.normal(size=(n_source, width)) * scale, random.normal(size=(n_target, width)) * scale
    labels = np.arange(n_source) % 2
    sizes = {"steps": 4, "hidden_size": 8, "feature_size": 4, "detection_start": 0, "queue_size": 20}
    model = UniDAClassifier(method, random_state=0, **(sizes if method == "uniot" else {})).fit(source, labels, target)
    assert set(model.labels_.tolist()) <= {0, 1, -1}
    assert np.isfinite(model.confidence(target)).all()
    np.testing.assert_array_equal(model.predict(target), model.labels_)


class _OwnTarget:
    """Scikit-learn's checks give one array: it is the source, and the target too."""

    def fit(self, X: object, y: object = None) -> object:
        return super().fit(X, y, X)


class UniOTOnItself(_OwnTarget, UniOT): ...


class UniNCMOnItself(_OwnTarget, UniNCM): ...


class UniDAClassifierOnItself(_OwnTarget, UniDAClassifier): ...


_UNKNOWN_COLUMN = "scores and probabilities have a column for unknown, so that two classes have three columns, not one"
_REJECTS = "a sample may be rejected, so that predictions hold a label that is not among the classes"
_METHOD_DECIDES = "the names of the parameters depend on the method, so that a wrong method cannot wait for fit"
EXPECTED_FAILURES = {
    "check_dtype_object": "object arrays are refused: text and missing values hide in them",
    "check_classifiers_classes": _REJECTS,
    "check_classifiers_train": f"{_REJECTS}; {_UNKNOWN_COLUMN}",
    "check_decision_proba_consistency": _UNKNOWN_COLUMN,
}
EXPECTED_OF_ANY_METHOD = {
    "check_do_not_raise_errors_in_init_or_set_params": _METHOD_DECIDES,
    "check_set_params": _METHOD_DECIDES,
}
CHECKED = [
    UniOTOnItself(
        steps=5, hidden_size=8, feature_size=4, detection_start=1, queue_size=20, n_clusters=3, n_private_classes=1
    ),
    UniNCMOnItself(n_private_classes=1),
    UniDAClassifierOnItself("dance", steps=5, n_private_classes=1),
]


@pytest.mark.filterwarnings("ignore::uniot.errors.UniotWarning")
@parametrize_with_checks(
    CHECKED,
    expected_failed_checks=lambda estimator: (
        EXPECTED_FAILURES | (EXPECTED_OF_ANY_METHOD if isinstance(estimator, UniDAClassifier) else {})
    ),
)
def test_scikit_learn_accepts_the_estimator(estimator: object, check: Callable) -> None:
    check(estimator)


@pytest.mark.filterwarnings("ignore::uniot.errors.UniotWarning")
@pytest.mark.parametrize("estimator", CHECKED, ids=lambda one: type(one).__name__)
def test_columns_of_a_data_frame_are_those_of_the_fit(estimator: object) -> None:
    check_dataframe_column_names_consistency(type(estimator).__name__, estimator)


def test_target_columns_in_another_order_are_an_error(toy: ToyDomains) -> None:
    source, target = (pd.DataFrame(x).add_prefix("x") for x in (toy.x_source, toy.x_target))
    with pytest.raises(DataError, match=r"in the same order as they were in fit\.\nGive X_target with the columns"):
        UniNCM().fit(source, toy.y_source, target[target.columns[::-1]])
    model = UniNCM().fit(source, toy.y_source, target)
    assert model.feature_names_in_.tolist() == source.columns.tolist()
    assert not hasattr(model.fit(toy.x_source, toy.y_source, toy.x_target), "feature_names_in_")


def test_a_failed_set_params_changes_nothing() -> None:
    model = UniDAClassifier("dance", margin=0.2)
    for wrong in ({"method": "uan"}, {"method": 3.0}, {"method": "unheard-of"}, {"epsilon": 1.0}):
        with pytest.raises(SettingsError):
            model.set_params(**wrong)
        assert (model.method, model.get_params()["margin"]) == ("dance", 0.2)
