"""Numbers that outweigh all others are named before the fit; ordinary data of any kind are not."""

from __future__ import annotations

import os
import warnings
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_wine
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from uniot import UniDAClassifier, UniNCM
from uniot.data_quality.feature_values import feature_warnings
from uniot.datasets import make_toy_domains
from uniot.errors import UniotWarning

DATA = Path(os.environ.get("UNIOT_DATA", Path(__file__).parents[3] / "shared" / "data"))


def normal(n_rows: int = 200, n_features: int = 32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n_rows, n_features))


def coded(part: float, code: float = -999.0, **shape: int) -> np.ndarray:
    rows = normal(**shape)
    return np.where(np.random.default_rng(1).random(rows.shape) < part, code, rows)


def warned(rows: np.ndarray, **options) -> tuple[str, ...]:
    return feature_warnings({"source": np.asarray(rows)}, **options)


# --- codes for missing values ------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [0.005, 0.02, 0.1, 0.6])
@pytest.mark.parametrize("code", [-999.0, 99.0, 1e30, -3.4e38])
def test_code_for_missing_values_is_named_however_often_it_occurs(part, code):
    (words,) = warned(coded(part, code))
    assert words.startswith(f"the value {code:g} occurs in ")
    assert "probably a code for missing values" in words


def test_code_of_wide_embeddings_is_named_although_no_single_one_decides():
    (words,) = warned(coded(0.02, n_rows=100, n_features=1000))
    assert words.startswith(
        "the value -999 occurs in 100 % of the source samples, far from all other values of feature"
    )


def test_code_is_named_with_its_collections_and_features():
    rows = coded(0.1)
    rows[:, 3:] = normal()[:, 3:]
    names = ["age", "income", "height", *(f"x{place}" for place in range(29))]
    (words,) = feature_warnings({"source": normal(seed=2), "target": rows}, names)
    part = 100 * (rows == -999).any(axis=1).mean()
    assert words.startswith(
        f"the value -999 occurs in {part:.2g} % of the target samples, far from all other values of features age, "
        "income, height: it is probably a code for missing values"
    )
    assert "source samples" not in words


def test_two_codes_are_both_named():
    rows = np.where(np.random.default_rng(3).random((200, 32)) < 0.05, 99999.0, coded(0.05))
    assert [words.split(" occurs")[0] for words in warned(rows)] == ["the value -999", "the value 99999"]


def test_code_beside_levels_is_named():
    levels = np.random.default_rng(0).integers(1, 6, size=(200, 10)).astype(float)
    levels[::20, 4] = -999
    (words,) = warned(levels)
    assert words.startswith(
        "the value -999 occurs in 5 % of the source samples, far from all other values of feature 4"
    )


def test_a_value_that_is_rare_or_ordinary_elsewhere_is_no_code():
    rows = normal()
    rows[0, 0] = -999
    assert not warned(rows)
    tall = normal(1000)
    tall[:, 0] = np.arange(1000) - 999.0
    tall[:5, 1] = -999
    assert not any("code" in words for words in warned(tall))


# --- outliers ----------------------------------------------------------------------------------------------


def test_outliers_are_named_with_the_part_of_the_samples():
    rng = np.random.default_rng(4)
    rows = np.where(rng.random((400, 32)) < 0.01, 1e6 * rng.normal(size=(400, 32)), normal(400))
    (words,) = warned(rows)
    part = 100 * (np.abs(rows) > 100).any(axis=1).mean()
    assert words.startswith(f"{part:.2g} % of the source samples have outliers that outweigh all their other values")


def test_few_outliers_are_none_of_the_data():
    rows = normal(400)
    rows[np.arange(19), np.arange(19)] = 1e6 * np.arange(1, 20)
    assert not warned(rows)


def test_rows_of_any_norm_are_no_outliers():
    assert not warned(normal() * 10 ** np.random.default_rng(0).uniform(-3, 3, (200, 1)))


# --- scale -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [1e3, 1e4, 1e200])
def test_feature_in_another_unit_is_named(factor):
    rows = normal()
    rows[:, 7] *= factor
    (words,) = warned(rows)
    assert words.startswith("feature 7 has ")
    assert "of the variance of the source, so that the other 31 features hardly count" in words
    assert "Standardise the features" in words


def test_a_feature_that_every_sample_has_is_not_named_for_a_single_outlier():
    rows = normal()
    rows[5, 7] = 1e9
    assert not warned(rows)


def test_unscaled_wine_is_warned_of_and_scaled_wine_is_not():
    wine = load_wine(as_frame=True)["data"]
    (words,) = warned(wine.to_numpy(), feature_names=list(wine.columns))
    assert words.startswith("feature proline has 99.78 % of the variance of the source")
    assert not warned(StandardScaler().fit_transform(wine))


@pytest.mark.parametrize("decay", [0.7, 0.8, 0.95])
def test_spectrum_of_principal_components_is_no_other_unit(decay):
    assert not warned(normal(n_features=50) * decay ** np.arange(50))


# --- units -------------------------------------------------------------------------------------------------


def test_features_of_the_target_in_other_units_are_named():
    factors = 10 ** np.random.default_rng(0).uniform(-1, 1, 32)
    (words,) = feature_warnings({"source": normal(), "target": normal(seed=1) * factors})
    assert words.startswith(
        "the features of source and target do not seem to have the same units: the spread of half of them"
    )


def test_another_scale_of_the_whole_target_is_no_other_unit():
    assert not feature_warnings({"source": normal(), "target": 1e4 * normal(seed=1)})


# --- one feature, and precision ----------------------------------------------------------------------------


def test_single_feature_is_named():
    (words,) = warned(normal(n_features=1))
    assert words.startswith("each sample has a single feature")


def test_two_features_are_named():
    (words,) = warned(normal(n_features=2))
    assert words.startswith("each sample has only two features")


@pytest.mark.parametrize(("offset", "n_warnings"), [(0, 0), (1e4, 0), (1e5, 0), (1e7, 1), (1e9, 1)])
def test_offset_that_float32_cannot_resolve_is_named(offset, n_warnings):
    words = warned(normal() + offset)
    assert len(words) == n_warnings
    assert not n_warnings or words[0].startswith("the samples of the source differ by a part of")


def test_one_row_that_many_samples_have_is_named():
    rows = normal()
    rows[::4] = rows[0]
    (words,) = warned(rows)
    assert words.startswith("25 % of the source samples are equal to one and the same sample, and the others are not")
    rows[::4] = 0
    (words,) = warned(rows)
    assert words.startswith("25 % of the source samples are zero in all features")
    rows[:, 1:] = 1
    assert not warned(np.round(rows)), "rows of levels are repeated"


# --- no false alarm ----------------------------------------------------------------------------------------


def ordinary() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    digits = load_digits()["data"]
    return {
        "toy": make_toy_domains().x_source,
        "digits": digits,
        "digits as bytes": digits.astype(np.uint8),
        "standardised digits": StandardScaler().fit_transform(digits),
        "rectified": np.maximum(normal(), 0),
        "mostly zero": np.where(rng.random((200, 300)) < 0.97, 0, rng.lognormal(size=(200, 300))),
        "binary": rng.integers(0, 2, (200, 40)),
        "rarely one": (rng.random((200, 400)) < 0.01).astype(float),
        "one-hot": np.eye(50)[rng.integers(0, 50, 400)],
        "one-hot beside numbers": np.hstack([np.eye(20)[rng.integers(0, 20, 400)], normal(400, 5)]),
        "standardised one-hot": StandardScaler().fit_transform(np.eye(10)[rng.integers(0, 10, 400)]),
        "counts": rng.negative_binomial(0.3, 0.1, (400, 300)),
        "rare counts": rng.poisson(0.02, (400, 1000)),
        "levels": rng.integers(1, 6, (200, 10)),
        "half precision": normal().astype(np.float16),
        "rounded": np.round(normal(), 1),
        "clipped": normal().clip(-1, 1),
        "constant": np.full((50, 10), 3.0),
        "constant features": np.where(np.arange(32) < 30, 3.0, normal()),
        "log-normal": rng.lognormal(size=(400, 50)),
        "unit rows": normal() / np.linalg.norm(normal(), axis=1, keepdims=True),
        "two samples": normal(2),
        "one sample": normal(1),
    }


@pytest.mark.parametrize("name", ordinary())
def test_ordinary_numbers_give_no_warning(name):
    assert warned(ordinary()[name]) == ()


def real() -> dict[str, list[np.ndarray]]:
    def domains(file: str, *names: str) -> list[np.ndarray]:
        with np.load(DATA / file) as arrays:
            return [arrays[f"{name}_x"] for name in names]

    with np.load(DATA / "cells" / "pbmc_three_protocols.npz") as cells:
        genes, protocol = cells["x"], cells["protocol"]
    components = PCA(50, random_state=0).fit_transform(genes.astype(np.float32))
    protocols = np.unique(protocol)
    return {
        "Office-31": domains("office31/resnet50_features.npz", "amazon", "dslr", "webcam"),
        "PACS": domains("pacs/efficientnet_lite0_features.npz", "photo", "art_painting", "cartoon", "sketch"),
        "plants": domains("plants/efficientnet_lite0_features.npz", "laboratory", "field"),
        "sentences": domains("sentences/banking77_minilm.npz", "train", "test"),
        "genes": [genes[protocol == name] for name in protocols],
        "50 components of genes": [components[protocol == name] for name in protocols],
    }


@pytest.mark.skipif(not DATA.is_dir(), reason=f"{DATA} is absent: set UNIOT_DATA")
def test_embeddings_of_photographs_sentences_and_cells_give_no_warning():
    for name, collections in real().items():
        for source, target in combinations(collections, 2):
            assert feature_warnings({"source": source, "target": target}) == (), name


# --- what a user sees --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["unincm", "source-only"])
def test_fit_names_the_code_before_it_fits_and_keeps_the_warning(method, monkeypatch):
    toy = make_toy_domains()
    rows = toy.x_target.copy()
    rows[::7, 2] = -999
    seen: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error", UniotWarning)
        monkeypatch.setattr("uniot.training.fit.build_method", lambda *_: seen.append("fitted"))
        with pytest.raises(UniotWarning, match="the value -999 occurs in 15 % of the target samples"):
            UniDAClassifier(method, random_state=0).fit(toy.x_source, toy.y_source, rows)
    assert not seen


def test_warning_has_the_names_of_a_data_frame_and_the_caller():
    pandas = pytest.importorskip("pandas")
    toy = make_toy_domains()
    names = [f"column-{place}" for place in range(32)]
    source, target = (pandas.DataFrame(rows, columns=names) for rows in (toy.x_source, toy.x_target))
    target.loc[::7, "column-2"] = -999
    with pytest.warns(UniotWarning, match="far from all other values of feature column-2: it is probably") as told:
        model = UniNCM(random_state=0).fit(source, toy.y_source, target)
    assert told[0].filename == __file__
    assert [str(one.message) for one in told] == list(model.reliability_.warnings)


@pytest.mark.medium
def test_source_model_and_its_target_are_warned_of_alike():
    toy = make_toy_domains()
    x_source, x_target = toy.x_source.copy(), toy.x_target.copy()
    x_source[::7, 2], x_target[::7, 3] = -999, -999
    estimator = UniDAClassifier("glc", steps=5, random_state=0)
    with pytest.warns(UniotWarning, match="of the source samples, far from all other values of feature 2:") as told:
        model = estimator.fit_source(x_source, toy.y_source)
    assert told[0].filename == __file__
    with pytest.warns(UniotWarning, match="of the target samples, far from all other values of feature 3:") as told:
        estimator.fit_target(x_target, model)
    assert told[0].filename == __file__
    assert [str(one.message) for one in told] == list(estimator.reliability_.warnings)
