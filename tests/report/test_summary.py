from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from uniot.discovery.class_count import NumberOfClasses
from uniot.reliability import Reliability
from uniot.report.categories import Categories
from uniot.report.summary import RunSummary, absent_classes, look_first, sentence, summarise, tiles, warnings

TOO_FEW = "fit none of your classes well; they are too few or too scattered to say whether they form a new class."


def counted(model) -> RunSummary:
    return summarise(model, Categories.of(model))


def said(model) -> str:
    return sentence(model, counted(model))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            {"interval": (2, 4)},
            "Of 25 samples, 14 are labelled with 2 of your 3 classes; the other 11 look like about 2 new kinds "
            "(2 to 4). "
            "1 of your classes was not found.",
        ),
        (
            {"groups": ()},
            "All 14 samples are labelled with 2 of your 3 classes; none is of a new kind. 1 of your classes was not "
            "found.",
        ),
        (
            {"found": (0, 0, 0)},
            "None of the 11 samples is labelled with your 3 classes: they look like about 2 new kinds.",
        ),
        (
            {"found": (4, 4, 4), "groups": (5,)},
            "Of 17 samples, 12 are labelled with your 3 classes; the other 5 look like one new kind.",
        ),
        (
            {"found": (3, 0, 0)},
            "Of 14 samples, 3 are labelled with 1 of your 3 classes; the other 11 look like about 2 new kinds. "
            "2 of your classes were not found.",
        ),
        (
            {"found": (4, 4, 4), "groups": (5,), "interval": (1, 3)},
            "Of 17 samples, 12 are labelled with your 3 classes; the other 5 look like about 1 new kind (1 to 3).",
        ),
    ],
    ids=["some", "no unknown", "no known", "one group", "one class", "perhaps more groups"],
)
def test_the_run_is_told_in_a_sentence(made_model, model, words):
    assert said(made_model(**model)) == words


@pytest.mark.parametrize(
    ("found", "n_unknown", "words"),
    [
        (
            (9, 5, 0),
            1,
            "The other 1 fits none of your classes well; one alone does not show whether there is a new class.",
        ),
        ((9, 5, 0), 2, f"The other 2 {TOO_FEW}"),
        ((0, 0, 0), 2, f"None of the 2 samples is labelled with your 3 classes. They {TOO_FEW}"),
    ],
)
def test_unknown_samples_that_were_not_grouped_are_told_as_such(made_model, found, n_unknown, words):
    model = made_model(found=found, groups=(n_unknown,))
    nothing = replace(model.groups, centres=model.groups.centres[:0], number=NumberOfClasses(0, (0, 0)))
    target = replace(model.target, group=np.full(len(model.target), -1))
    assert words in said(replace(model, groups=nothing, target=target))


@pytest.mark.parametrize(
    ("found", "words", "warned"),
    [
        (Reliability(), "", []),
        (Reliability(warnings=("only 9 target samples.",)), "", ["Warning: only 9 target samples."]),
        (Reliability(0.341, None, 0.341), "Estimated without labels: 34 % of the predictions are right.", []),
        (
            Reliability(0.5, 0.75, 0.25),
            "Estimated without labels: 50 % of the predictions are right (75 % of those called known, 25 % of those "
            "called unknown).",
            [],
        ),
    ],
)
def test_the_estimated_accuracy_and_warnings_lead_the_page(made_model, found, words, warned):
    without = said(replace(made_model(), reliability=Reliability()))
    model = replace(made_model(), reliability=found)
    assert said(model) == f"{without} {words}".strip()
    assert warnings(model) == warned


def test_estimated_errors_are_counted_not_only_those_near_the_threshold(made_model):
    model = replace(made_model(), reliability=Reliability(0.6, 0.6, 0.6))
    target = replace(
        model.target,
        confidence=np.full(len(model.target), 0.6),
        known_score=np.where(model.target.known, 0.99, 0.01),
    )
    model = replace(model, target=target)
    found = counted(model)
    assert (found.n_close, found.n_wrong) == (0, 10)
    assert "About 10 of 25 predictions are estimated to be wrong" in look_first(found)
    without = replace(model, target=target, reliability=Reliability())
    assert "The number of wrong predictions is not estimated" in look_first(counted(without))


def test_class_with_one_sample_is_found_and_named_as_a_possible_mistake(made_model):
    model = made_model(found=(9, 5, 1))
    assert said(model).endswith("1 was found in one or two samples only, which may be mistakes (cow).")
    tile = next(tile for tile in tiles(counted(model)) if "found" in tile.what)
    assert (tile.number, tile.remark) == ("3", "of your 3; 1 in one or two samples only")
    assert absent_classes(model) == []


def test_absent_classes_come_the_surest_first(made_model):
    model = replace(made_model(found=(9, 0, 0)), absence=np.array([0.1, 0.7, 0.9]))
    assert [(one.name, one.absence) for one in absent_classes(model)] == [("cow", 0.9), ("bee", 0.7)]


def test_tiles_count_what_the_sentence_tells(made_model):
    model = made_model(interval=(2, 4))
    assert [(tile.number, tile.what) for tile in tiles(counted(model))] == [
        ("25", "samples"),
        ("2", "classes found"),
        ("2", "new groups"),
        (str(counted(model).n_close), "near the threshold"),
    ]
    assert tiles(counted(model))[2].remark == "2 to 4 are plausible"


def test_close_calls_lie_near_one_half(made_model):
    model = made_model()
    known_score = np.where(model.target.known, 0.9, 0.1)
    known_score[[np.flatnonzero(model.target.known)[0], np.flatnonzero(~model.target.known)[0]]] = 0.51, 0.46
    model = replace(model, target=replace(model.target, known_score=known_score))
    assert counted(model).n_close == 2
