"""Data frames of any library, and pipelines of scikit-learn."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import uniot
from uniot import UniDAClassifier, UniNCM
from uniot.datasets import make_toy_domains
from uniot.errors import DataError
from uniot.io.labels import as_labels

TOY = make_toy_domains(seed=1)
COLUMNS = [f"d{place}" for place in range(TOY.x_source.shape[1])]
SOURCE, TARGET = (pd.DataFrame(x, columns=COLUMNS) for x in (TOY.x_source, TOY.x_target))
LABELS = UniNCM(random_state=0).fit(TOY.x_source, TOY.y_source, TOY.x_target).labels_.tolist()

LIBRARIES = {
    "pandas": (lambda frame: frame, pd.Series),
    "polars": (pl.from_pandas, pl.Series),
    "polars frame": (pl.from_pandas, lambda y: pl.DataFrame({"y": list(y)})),
    "arrow": (pa.Table.from_pandas, lambda y: pa.chunked_array([list(y)])),
}


@pytest.mark.parametrize(("frame", "series"), LIBRARIES.values(), ids=list(LIBRARIES))
def test_frames_give_the_labels_of_arrays(frame: Callable, series: Callable, tmp_path):
    model = UniNCM(random_state=0).fit(frame(SOURCE), series(TOY.y_source), frame(TARGET))
    assert model.labels_.tolist() == LABELS
    assert model.feature_names_in_.tolist() == COLUMNS
    model.save(tmp_path / "run")
    loaded = uniot.load(tmp_path / "run")
    assert loaded.predict(frame(TARGET)).tolist() == LABELS
    assert loaded.feature_names_in_.tolist() == COLUMNS
    with pytest.raises(DataError, match="must be in the same order"):
        loaded.predict(frame(TARGET[COLUMNS[::-1]]))
    both, said = pd.concat([SOURCE, TARGET]), [*TOY.y_source, *["?"] * len(TARGET)]
    domain = np.repeat([1, -1], [len(SOURCE), len(TARGET)])
    assert UniNCM(random_state=0).fit(frame(both), series(said), sample_domain=domain).labels_.tolist() == LABELS


@pytest.mark.parametrize(("frame", "series"), LIBRARIES.values(), ids=list(LIBRARIES))
def test_columns_without_numbers_are_refused_in_one_sentence(frame: Callable, series: Callable):
    texts = {f"t{place}": "text" for place in range(30)}
    with pytest.raises(
        DataError, match=r"X_source has 30 columns without numbers, .*: t0, t1, .*t11 and 18 more\."
    ) as error:
        UniNCM().fit(frame(SOURCE.assign(**texts)), series(TOY.y_source), frame(TARGET.assign(**texts)))
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(("frame", "series"), LIBRARIES.values(), ids=list(LIBRARIES))
def test_missing_numbers_and_labels_are_named(frame: Callable, series: Callable):
    with pytest.raises(DataError, match="X_source holds nan in row 3, column 0"):
        UniNCM().fit(frame(SOURCE.assign(d0=[1.0, 2, 3, None, *SOURCE.d0[4:]])), series(TOY.y_source), frame(TARGET))
    with pytest.raises(DataError, match=r"has no label in 1 of 150 rows, the first is row 0"):
        UniNCM().fit(frame(SOURCE), series([None, *TOY.y_source[1:]]), frame(TARGET))


def test_column_names_that_differ_are_listed_a_dozen_at_most():
    with pytest.raises(DataError) as error:
        UniNCM().fit(SOURCE, TOY.y_source, TARGET.add_prefix("x" * 300))
    assert "… and 27 more" in str(error.value)
    assert len(str(error.value)) < 1200


def test_booleans_and_decimals_among_numbers_are_numbers():
    frame = pl.DataFrame({"a": [True, False], "b": [1.5, 2.5], "c": [1, None]})
    from uniot.io.frames import frame_values

    np.testing.assert_array_equal(frame_values(frame, "X"), [[1, 1.5, 1], [0, 2.5, np.nan]])


def test_labels_of_several_columns_are_refused():
    with pytest.raises(DataError, match=r"y has 2 columns: a, b\. Give one column of labels"):
        as_labels(pl.DataFrame({"a": [1], "b": [2]}), "y")


def test_pandas_user_needs_no_other_library():
    code = (
        "import sys; sys.modules['polars'] = sys.modules['pyarrow'] = None\n"
        "import pandas as pd, numpy as np\n"
        "from uniot.io.arrays import as_inputs\n"
        "print(as_inputs(pd.DataFrame({'a': [1, 2]}), 'X').tolist(), 'narwhals' in sys.modules)\n"
        "import uniot.io.arrays\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[[1], [2]] True"


def test_texts_are_to_be_embedded_first():
    with pytest.raises(DataError, match=r"X_source holds texts\. Embed them first: .*TextEncoder"):
        UniNCM().fit(["a text", "another"], ["a", "b"], ["a third"])


@pytest.mark.parametrize("unknown", [None, "new"])
def test_output_labels_name_the_columns_of_probabilities(unknown):
    model = UniNCM(random_state=0, unknown_label=unknown).fit(TOY.x_source, TOY.y_source, TOY.x_target)
    assert model.output_labels_.tolist() == [*model.classes_.tolist(), unknown or "unknown"]
    probabilities = model.predict_proba(TOY.x_target)
    assert probabilities.shape[1] == len(model.output_labels_)
    np.testing.assert_array_equal(model.output_labels_[probabilities.argmax(axis=1)], model.predict(TOY.x_target))
    scores = model.decision_function(TOY.x_target)
    np.testing.assert_array_equal(model.output_labels_[scores.argmax(axis=1)], model.predict(TOY.x_target))


def test_output_labels_of_numbers_are_numbers():
    y = np.unique(TOY.y_source, return_inverse=True)[1]
    model = UniNCM(random_state=0).fit(TOY.x_source, y, TOY.x_target)
    assert model.output_labels_.tolist() == [0, 1, 2, 3, 4, -1]


@pytest.mark.parametrize("estimator", [UniNCM(random_state=0), UniDAClassifier("calibrated", random_state=0)])
def test_pipeline_that_would_leave_the_target_untransformed_is_refused(estimator):
    pipeline = Pipeline([("scale", StandardScaler()), ("model", estimator)])
    with pytest.raises(
        DataError, match=r"transforms X by scale and would leave X_target .*model__sample_domain=domain"
    ):
        pipeline.fit(TOY.x_source, TOY.y_source, model__X_target=TOY.x_target)


def test_pipeline_transforms_both_domains_by_sample_domain():
    both = np.concatenate([TOY.x_source, TOY.x_target])
    said = [*TOY.y_source, *["?"] * len(TOY.x_target)]
    domain = np.repeat([1, -1], [len(TOY.x_source), len(TOY.x_target)])
    pipeline = make_pipeline(StandardScaler(), UniNCM(random_state=0)).fit(both, said, unincm__sample_domain=domain)
    scaler = StandardScaler().fit(both)
    direct = UniNCM(random_state=0).fit(scaler.transform(TOY.x_source), TOY.y_source, scaler.transform(TOY.x_target))
    assert pipeline[-1].labels_.tolist() == direct.labels_.tolist()
    assert pipeline.predict(TOY.x_target).tolist() == direct.labels_.tolist()


def test_pipeline_without_a_transformation_takes_the_target():
    pipeline = make_pipeline("passthrough", UniNCM(random_state=0))
    pipeline.fit(TOY.x_source, TOY.y_source, unincm__X_target=TOY.x_target)
    assert pipeline[-1].labels_.tolist() == LABELS
