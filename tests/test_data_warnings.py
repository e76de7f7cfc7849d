from __future__ import annotations

import warnings

import numpy as np
import pytest

from uniot import UniDAClassifier
from uniot.datasets import make_toy_domains
from uniot.errors import UniotWarning
from uniot.reliability import data_warnings

FEATURES = np.eye(8, dtype=np.float32)
GOOD = {"features": FEATURES, "known": np.array([True, False]), "n_target": 100, "classes": list("abcde")}


def warned(**changed) -> tuple[str, ...]:
    return data_warnings(**(GOOD | {"class_sizes": [3, 9, 9, 9, 9]} | changed))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"n_target": 99}, "only 99 target samples; results are unreliable below 100."),
        ({"n_target": 2}, "only 2 target samples; results are unreliable below 100."),
        ({"known": np.array([False, False])}, "no target sample is known: every one is called unknown."),
        ({"classes": list("abcd"), "class_sizes": [9] * 4}, "only 4 source classes: how much of the target is unknown"),
        (
            {"features": FEATURES[[0] * 5 + [1, 2]]},
            "many target samples are identical, only 3 distinct ones among 7 target samples: copies add no evidence.",
        ),
        (
            {"features": FEATURES[[0] * 5]},
            "many target samples are identical, only 1 distinct one among 5 target samples",
        ),
        (
            {"class_sizes": [2, 3, 3, 3, 3]},
            "1 class has fewer than 3 labelled samples, so that its labels are unreliable: a.",
        ),
        (
            {"class_sizes": [1, 1, 9, 9, 9]},
            "2 classes have fewer than 3 labelled samples, so that their labels are unreliab",
        ),
    ],
)
def test_each_doubt_is_told_in_words(changed, words):
    (told,) = warned(**changed)
    assert told.startswith(words)


def test_good_data_give_no_warning():
    assert warned() == ()
    assert warned(features=FEATURES[[0, 0, 1, 2]]) == ()
    assert warned(features=np.sign(np.arange(-4.5, 5))[:, None]) == (), "signs of one feature are no copies"


def test_fit_warns_of_what_the_command_line_and_the_report_repeat():
    toy = make_toy_domains()
    few = np.concatenate(
        [np.flatnonzero(toy.y_source == toy.y_source[0])[:2], np.flatnonzero(toy.y_source != toy.y_source[0])]
    )
    copies = np.repeat(toy.x_target[:20], 4, axis=0)
    for method in ("unincm", "source-only"):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            model = UniDAClassifier(method, **({} if method == "unincm" else {"steps": 20}), random_state=0).fit(
                toy.x_source[few], toy.y_source[few], copies
            )
        said = [str(one.message) for one in told if issubclass(one.category, UniotWarning)]
        assert said == list(model.reliability_.warnings)
        for words in ("only 80 target samples", "only 20 distinct ones", "1 class has fewer than 3 labelled"):
            assert any(words in one for one in said), words


@pytest.mark.parametrize("offset", [0, 1e4, 1e6])
def test_common_offset_makes_no_sample_a_copy(offset):
    rows = np.random.default_rng(0).normal(size=(200, 32)) + offset
    unit = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    assert warned(features=unit) == ()
    (told,) = warned(features=np.repeat(unit[:50], 4, axis=0))
    assert "only 50 distinct ones among 200 target samples" in told


def test_common_offset_of_both_collections_changes_no_label_and_gives_no_warning():
    toy = make_toy_domains()
    near, far = (
        UniDAClassifier("unincm", random_state=0).fit(toy.x_source + offset, toy.y_source, toy.x_target + offset)
        for offset in (100, 1e4)
    )
    assert (near.labels_ == far.labels_).all()
    assert near.reliability_.warnings == far.reliability_.warnings == ()
