"""What is shown while work goes on, and how it is worded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import uniot
from uniot.cli.progress import reading_progress, training_progress, working
from uniot.cli.screen import show_scores
from uniot.evaluation import evaluate
from uniot.words import counted, listed, plural

PLACES = {"source": Path("labelled"), "target": Path("elsewhere/unlabelled")}

LOSSES = {"step": 3, "loss_source": 1.25, "loss_common": 0.5, "loss_private": 3.0}


@pytest.fixture
def terminal(monkeypatch):
    """Standard error is taken for a terminal of so many columns."""

    def of(columns: int) -> None:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", str(columns))

    return of


def plain(text: str) -> str:
    """Without what moves the cursor and colours the text."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


# --- lines --------------------------------------------------------------------------------------------------


def test_that_all_came_from_the_store_is_said_only_at_the_end(capsys):
    with reading_progress(PLACES) as of:
        tell = of("source")
        tell(8, 20, 0, 40.0)
        tell(20, 20, 0, 50.0)
    assert capsys.readouterr().err == "labelled: images 8/20\nlabelled: images 20/20  from the store\n"


def test_speed_is_told_from_the_first_batch_on(capsys):
    with reading_progress(PLACES) as of:
        tell = of("source")
        tell(8, 20, 0, 40.0)
        tell(12, 20, 4, 30.4)
        tell(20, 20, 20, 25.0)
    assert capsys.readouterr().err.splitlines() == [
        "labelled: images 8/20",
        "labelled: images 12/20  30 images/s",
        "labelled: images 20/20  25 images/s",
    ]


def test_number_of_images_is_left_out_until_it_is_known(capsys):
    with reading_progress(PLACES) as of:
        tell = of("source")
        tell(94, 0, 16, 20.0)
        tell(100, 100, 100, 20.0)
    assert capsys.readouterr().err == "labelled: images 94  20 images/s\nlabelled: images 100/100  20 images/s\n"


def test_two_collections_are_told_one_after_the_other(capsys):
    with reading_progress(PLACES) as of:
        for collection in PLACES:
            tell = of(collection)
            for done in range(1, 21):
                tell(done, 20, done, 10.0)
    told = [line.partition("/20")[0] for line in capsys.readouterr().err.splitlines()]
    shown = (*range(1, 20, 2), 20)
    assert told == [f"{place}: images {done}" for place in PLACES.values() for done in shown]


# --- bars ---------------------------------------------------------------------------------------------------


def test_nothing_is_shown_of_a_training_that_has_not_begun(terminal, capsys):
    terminal(100)
    with training_progress():
        pass
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("columns", "losses"), [(100, True), (80, True), (79, False), (50, False)])
def test_bar_of_a_training_stays_where_there_is_no_room_for_the_losses(terminal, capsys, columns, losses):
    terminal(columns)
    with training_progress() as on_step:
        on_step(3, 10, LOSSES)
    shown = plain(capsys.readouterr().err)
    assert re.search(r"training ━+\S* +3/10", shown)
    assert ("source 1.250  common 0.500  private 3.000" in shown) == losses


def test_bar_of_images_shows_no_number_that_is_not_known(terminal, capsys):
    terminal(100)
    with reading_progress(PLACES) as of:
        tell = of("source")
        tell(94, 0, 16, 20.4)
    shown = plain(capsys.readouterr().err)
    assert re.search(r"reading labelled ━+ 94 20 images/s", shown)
    assert "None" not in shown
    assert "/0" not in shown


def test_bars_of_both_collections_show_their_own_numbers(terminal, capsys):
    terminal(100)
    with reading_progress(PLACES) as of:
        for collection, total in (("source", 8), ("target", 20)):
            tell = of(collection)
            tell(total // 2, total, 1, 20.0)
            tell(total, total, total, 20.0)
    shown = plain(capsys.readouterr().err)
    assert re.findall(r"(\d+/\d+) 20 images/s", shown.replace("\n", " "))[-1] == "20/20"
    assert re.search(r"reading labelled ━+ +8/8", shown)
    assert re.search(r"reading elsewhere/unlabelled ━+ +20/20", shown)


def test_what_takes_a_while_is_told_in_words(capsys):
    with working("Writing the graph") as next_part:
        next_part("Comparing")
    assert capsys.readouterr().err == "Writing the graph …\nComparing …\n"


# --- words --------------------------------------------------------------------------------------------------


def test_one_is_singular():
    assert [counted(number, "image") for number in (0, 1, 2)] == ["0 images", "1 image", "2 images"]
    assert [plural(number, "class", "classes") for number in (0, 1, 2)] == ["classes", "class", "classes"]
    assert counted(2113, "class", "classes") == "2,113 classes"


def test_long_lists_end_with_how_many_are_left_out():
    assert [listed("abc", most) for most in (2, 3)] == ["a, b and 1 more", "a, b, c"]


# A number in braces and a plural after it; `3 of 5 images` is right for one as well.
NUMBER_AND_PLURAL = re.compile(
    r"(?<!of )\{[^{}]*(?:len\(|n_|count\b|number\b)[^{}]*\} (?:\w+ )?"
    r"(?:samples|images|classes|groups|files|kinds|names|pictures|figures)\b"
)
SOURCE = Path(uniot.__file__).parent


def test_no_message_counts_things_without_the_helper_for_one_of_them():
    found = [
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for folder in ("cli", "report", "labelling", "hub")
        for path in sorted((SOURCE / folder).rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if NUMBER_AND_PLURAL.search(line) and "counted(" not in line and "plural(" not in line
    ]
    assert found == []


def test_scores_and_their_meanings_are_in_the_same_unit(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    show_scores(
        evaluate(
            ["a", "b", "x", "x", "a", "y"],
            ["a", "b", "unknown", "unknown", "a", "unknown"],
            source_classes=["a", "b"],
            known_score=[0.9, 0.8, 0.1, 0.2, 0.7, 0.3],
            groups=[-1, -1, 0, 0, -1, 1],
        )
    )
    told = capsys.readouterr().out
    assert told.startswith("Scores in per cent (in metrics.json from 0 to 1)")
    assert re.search(r"auroc +100\.0 .*50 % is no better than a coin", told)
    assert re.search(r"adjusted_rand +100\.0 .*100 % are the true classes", told)
