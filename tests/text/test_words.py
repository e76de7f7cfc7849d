"""Typical words of groups, and suggested names."""

from __future__ import annotations

import numpy as np
import pytest

from uniot.errors import DataError
from uniot.text import Terms, read_terms, suggest_names, typical_words
from uniot.text.suggestions import MOST_TERMS, different
from uniot.text.words import words_of_name

ANIMALS = ["the black cat is at home", "is the cat on the sofa", "the cat is my friend", "is it the cat of Anna"]
VEHICLES = ["the fast train is late", "is the train at the station", "the train is full", "is it the train to Bern"]
PLANTS = ["the old tree is green", "is the tree on the hill", "the tree is my shade", "is it the tree of Anna"]
TEXTS = [*ANIMALS, *VEHICLES, *PLANTS] * 5
GROUPS = [0] * 4 + [1] * 4 + [2] * 4


@pytest.fixture
def groups():
    return np.array(GROUPS * 5)


def test_a_typical_word_is_frequent_in_its_group_and_rare_elsewhere(groups):
    words = typical_words(TEXTS, groups, 3)
    assert [found[0] for found in words] == ["cat", "train", "tree"]


def test_words_that_all_groups_share_are_typical_of_none_in_any_language(groups):
    german = [text.replace("the", "der").replace("is", "ist").replace("it", "es") for text in TEXTS]
    for texts, silent in ((TEXTS, {"the", "is", "it"}), (german, {"der", "ist", "es"})):
        for found in typical_words(texts, groups, 3):
            assert not silent & {word for term in found for word in term.split()}


def test_known_classes_are_compared_with_and_not_described(groups):
    assert [found[:1] for found in typical_words(TEXTS, groups, 1)] == [("cat",)]


def test_groups_without_texts_or_repeated_words_have_no_words():
    assert typical_words(["one", "two", "three"], np.array([0, 1, -1]), 2) == [(), ()]
    assert typical_words(TEXTS, np.full(len(TEXTS), -1), 1) == [()]
    assert typical_words([], np.array([], dtype=int), 0) == []


def test_a_pair_takes_the_place_of_a_word_that_hardly_occurs_without_it():
    texts = ["please top up", "top up today", "a top up failed"] * 4 + [
        "where are you",
        "are you there",
        "you are late",
    ] * 4
    words = typical_words(texts, np.repeat([0, 1], 12), 2)
    assert "top up" in words[0]
    assert not {"top", "up"} & set(words[0])


def test_the_result_does_not_depend_on_the_order_of_the_texts(groups):
    order = np.random.default_rng(0).permutation(len(TEXTS))
    assert typical_words([TEXTS[row] for row in order], groups[order], 3) == typical_words(TEXTS, groups, 3)


def test_names_of_files_say_something_only_if_a_word_stands_out():
    names = [f"shots/redMug_{number:02}.jpg" for number in range(6)] + [
        f"shots/IMG_{number}.jpg" for number in range(60)
    ]
    groups = np.array([0] * 6 + [1] * 30 + [2] * 30)
    assert words_of_name(names[0]) == "shots red Mug"
    found = typical_words([words_of_name(name) for name in names], groups, 3, standing_out=True)
    assert found == [("red mug",), (), ()]


def test_names_are_the_nearest_terms_of_a_word_list():
    terms = Terms(("north", "east", "easts", "west"), np.array([[0, 1], [1, 0], [1, 0.01], [-1, 0]], dtype=np.float32))
    rows = np.array([[1, 0.1], [0.9, 0.2], [0, 1]], dtype=np.float32)
    names = suggest_names([""] * 3, np.array([0, 0, 1]), 2, rows=rows, terms=terms, most=2)
    assert names == [("easts", "north"), ("north", "easts")]


def test_without_a_word_list_names_are_typical_words(groups):
    names = suggest_names(TEXTS, groups, 3)
    assert all(len(found) <= 5 for found in names)
    assert [found[0] for found in names] == ["cat", "train", "tree"]


def test_the_plural_of_a_name_is_not_another_name():
    assert different(["fee", "fees", "Fee", "feedback"]) == ("fee", "feedback")


def test_terms_of_another_network_are_refused():
    terms = Terms(("a",), np.ones((1, 3), dtype=np.float32))
    with pytest.raises(DataError, match="the terms have 3 numbers each and the samples 2"):
        suggest_names([""], np.array([0]), 1, rows=np.ones((1, 2), dtype=np.float32), terms=terms)


def test_a_word_list_is_read_without_blanks_and_repetitions(tmp_path):
    path = tmp_path / "terms.txt"
    path.write_text("card  arrival\n\ntop up\ncard arrival\n", encoding="utf-8")
    assert read_terms(path) == ("card arrival", "top up")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "has no terms"),
        ("x" * 300, "line 1 of .* has 300 letters, too many for a name"),
        ("\n".join(map(str, range(MOST_TERMS + 1))), "has more than 100,000 terms"),
    ],
)
def test_a_file_that_is_no_word_list_is_refused(tmp_path, content, words):
    path = tmp_path / "terms.txt"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=words):
        read_terms(path)
