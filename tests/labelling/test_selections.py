"""Selections as text, which reports, addresses and the command line have in common."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uniot.annotations.selections import MOST_LETTERS, MOST_SELECTED, Selection, rows_text, selection_text
from uniot.errors import DataError

DIGEST = "1a2b3c4d" + 56 * "e"


@given(st.sets(st.integers(0, 10_000), min_size=1, max_size=60))
def test_rows_come_back_from_their_text(rows):
    assert Selection.parse(selection_text(rows, DIGEST), DIGEST, 10_001) == Selection("rows", tuple(sorted(rows)))


def test_ranges_are_short():
    assert rows_text([9, 3, 4, 5, 4, 12, 11]) == "3-5,9,11-12"


def test_as_many_rows_as_may_be_selected_fit():
    rows = range(9_000_000, 9_000_000 + 2 * MOST_SELECTED, 2)
    text = selection_text(rows, DIGEST)
    assert len(text) <= MOST_LETTERS
    assert len(Selection.parse(text, DIGEST, 10**7).rows) == MOST_SELECTED


def test_the_other_kinds():
    assert Selection.parse("doubtful", DIGEST, 3) == Selection("doubtful")
    assert Selection.parse("like-2", DIGEST, 3) == Selection("like", (2,))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rows-ffffffff:1", "belongs to another run"),
        ("rows-1a2b3c4d:0-999999999", "at most 5,000 rows"),
        ("rows-1a2b3c4d:9-3", "Give ranges such as 3-9"),
        ("rows-1a2b3c4d:3", "there is no row 3: this run has rows 0 to 2"),
        ("like-3", "there is no row 3"),
        ("rows-1a2b3c4d:", "is no selection"),
        ("rows-1a2b3c4d:1,,2", "is no selection"),
        ("rows-1a2b3c4d:01", "is no selection"),
        ("rows-1a2b3c4d:١", "is no selection"),
        ("like--1", "is no selection"),
        ("doubtful\n", "is no selection"),
        ("../../etc/passwd", "is no selection"),
        ("", "is no selection"),
    ],
)
def test_what_is_no_selection_of_this_run_is_refused(text, words):
    with pytest.raises(DataError, match=words):
        Selection.parse(text, DIGEST, 3)
