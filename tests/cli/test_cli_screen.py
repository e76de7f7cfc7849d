"""What is shown while work goes on, and how it is worded."""

from __future__ import annotations

import logging
import re
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.columns import Columns
from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

import uniot
from uniot.adaptation.collections import Collection, Collections
from uniot.cli.adapt import _titles
from uniot.cli.evaluate import show_scores
from uniot.cli.screen import (
    Clock,
    console,
    fitting_progress,
    print_line,
    reading_progress,
    show_private_classes,
    working,
    working_in_parts,
)
from uniot.discovery.class_count import NumberOfClasses
from uniot.images.files import ImageFile
from uniot.io.text import counted, listed, plural
from uniot.io.visible import VisibleStream, visible
from uniot.labelling import Names
from uniot.metrics.evaluate import evaluate

from hostile_names import HOSTILE, MODES, check, control_characters, printing  # isort: skip

PLACES = {"source": "labelled", "target": "elsewhere/unlabelled"}

LOSSES = {"step": 3, "loss": 4.75, "loss_source": 1.25, "loss_common": 0.5, "loss_private": 3.0}


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
    assert capsys.readouterr().err == "Reading labelled: image 8/20\nReading labelled: image 20/20, computed before\n"


def test_images_that_people_labelled_are_counted_with_the_source(capsys):
    annotations = Names(["a", "b", "c"], np.array(["mug", "", "pen"]), np.array(["named", "discarded", "class"]))
    target = Collection(Path("new"), ["a", "b", "c"], files=[ImageFile(Path(name), name) for name in "abc"])
    source = Collection(Path("labelled"), [], np.array([], dtype=str), [])
    with reading_progress(_titles(Collections(source, target).annotated(annotations))) as progress:
        progress("source")(50, 50, 0, 1.0)
        progress("target")(20, 20, 0, 1.0)
    assert capsys.readouterr().err.splitlines() == [
        "Reading labelled and 2 images that you labelled: image 50/50, computed before",
        "Reading new: image 20/20, computed before",
    ]


def test_speed_is_told_from_the_first_batch_on(capsys):
    with reading_progress(PLACES) as of:
        tell = of("source")
        tell(8, 20, 0, 40.0)
        tell(12, 20, 4, 30.4)
        tell(20, 20, 20, 25.0)
    assert capsys.readouterr().err.splitlines() == [
        "Reading labelled: image 8/20",
        "Reading labelled: image 12/20, 30 images/s",
        "Reading labelled: image 20/20, 25 images/s",
    ]


def test_collection_is_announced_while_the_network_is_prepared(capsys):
    with reading_progress(PLACES) as of:
        of("source")(0, 20, 0, 0.0)
        of("target")(0, 0, 0, 0.0)
    assert capsys.readouterr().err == "Reading labelled: 20 images …\nReading elsewhere/unlabelled …\n"


def test_number_of_images_is_left_out_until_it_is_known(capsys):
    with reading_progress(PLACES) as of:
        tell = of("source")
        tell(94, 0, 16, 20.0)
        tell(100, 100, 100, 20.0)
    assert capsys.readouterr().err.splitlines() == [
        "Reading labelled: image 94, 20 images/s",
        "Reading labelled: image 100/100, 20 images/s",
    ]


def test_two_collections_are_told_one_after_the_other(capsys):
    with reading_progress(PLACES) as of:
        for collection in PLACES:
            tell = of(collection)
            for done in range(1, 21):
                tell(done, 20, done, 10.0)
    told = [line.partition("/20")[0] for line in capsys.readouterr().err.splitlines()]
    shown = (*range(1, 20, 2), 20)
    assert told == [f"Reading {place}: image {done}" for place in PLACES.values() for done in shown]


# --- bars ---------------------------------------------------------------------------------------------------


def test_fit_without_training_is_described_and_has_no_bar(terminal, capsys):
    terminal(100)
    with fitting_progress("UniNCM"):
        pass
    shown = plain(capsys.readouterr().err)
    assert "Fitting UniNCM" in shown
    assert "training" not in shown


def test_fit_with_training_is_described_before_and_after_the_bar(terminal, capsys):
    terminal(100)
    with fitting_progress("UniOT") as on_step:
        on_step(1, 2, LOSSES)
        on_step(2, 2, LOSSES)
    shown = plain(capsys.readouterr().err)
    assert shown.index("Fitting UniOT") < shown.index("training") < shown.index("Labelling with UniOT")


def test_nothing_is_shown_of_a_fit_in_another_process(terminal, capsys):
    terminal(100)
    with fitting_progress("UniOT", shown=False) as on_step, working("Loading", shown=False):
        assert on_step is None
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("columns", "losses"), [(100, True), (80, True), (79, False), (50, False)])
def test_bar_of_a_training_stays_where_there_is_no_room_for_the_losses(terminal, capsys, columns, losses):
    terminal(columns)
    with fitting_progress("UniOT") as on_step:
        on_step(3, 10, LOSSES)
    shown = plain(capsys.readouterr().err)
    assert re.search(r"training ━+\S* +3/10", shown)
    assert ("loss 4.750" in shown) == losses


def test_bar_of_images_shows_no_number_that_is_not_known(terminal, capsys):
    terminal(100)
    with reading_progress(PLACES) as of:
        tell = of("source")
        tell(94, 0, 16, 20.4)
    shown = plain(capsys.readouterr().err)
    assert re.search(r"reading labelled ━+ 94 20 images/s", shown)
    assert "None" not in shown
    assert "/0" not in shown


def test_bar_says_that_the_network_is_prepared_until_the_first_image_is_read(terminal, capsys):
    terminal(100)
    with reading_progress(PLACES) as of:
        of("source")(0, 20, 0, 0.0)
    assert re.search(r"reading labelled ━+ +0/20 preparing the network", plain(capsys.readouterr().err))


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


def test_parts_are_counted_in_a_terminal_and_are_lines_in_a_file(terminal, capsys):
    with working_in_parts(2) as next_part:
        next_part("Reading the run")
        next_part("Drawing")
    assert capsys.readouterr().err == "Reading the run …\nDrawing …\n"
    terminal(60)
    with working_in_parts(2) as next_part:
        next_part("Reading [red]the run")
        next_part("Drawing")
    shown = plain(capsys.readouterr().err)
    assert re.search(r"Drawing +━+\S* +1/2 0:00:0", shown)
    assert max(map(len, shown.splitlines())) <= 60


def test_what_takes_more_than_a_moment_shows_its_seconds(monkeypatch):
    clock, began = Clock("Loading [red]PyTorch"), time.monotonic()
    assert clock.__rich__().plain == "Loading [red]PyTorch"
    monkeypatch.setattr("uniot.cli.screen.time.monotonic", lambda: began + 12.5)
    assert clock.__rich__().plain == "Loading [red]PyTorch, 12 s"


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
    assert told.startswith("Scores in per cent; 100 is best")
    assert re.search(r"auroc +100\.0 .*50 is guessing", told)
    assert re.search(r"adjusted_rand +100\.0 .*100 are the true classes", told)


def test_scores_of_groups_are_dashes_if_no_group_was_found(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    rows = (["a", "b", "x"], ["a", "b", "unknown"])
    show_scores(evaluate(*rows, source_classes=["a", "b"], groups=[-1, -1, -1]))
    told = capsys.readouterr().out
    for score in ("hungarian_accuracy", "purity", "nmi_honest", "adjusted_rand"):
        assert re.search(rf"{score} +– ", told)
    assert "Note: the run found no group among the unknown, so the scores of groups are undefined." in told


@pytest.mark.parametrize(
    ("n_unknown", "asked", "words"),
    [
        (
            11,
            None,
            "11 fit none of your classes well; they are too few or too scattered to say whether they form a new class. "
            "If you know how many there are, run again with --private-classes. Look at them with `uniot label run`.",
        ),
        (
            1,
            None,
            "1 fits none of your classes well; one alone does not show whether there is a new class. Look at it with "
            "`uniot label run`.",
        ),
        (2, 0, "2 fit none of your classes well; grouping was switched off. Look at them with `uniot label run`."),
        (0, None, ""),
    ],
)
def test_unknown_without_a_group_are_described_with_what_to_do(capsys, n_unknown, asked, words):
    model = SimpleNamespace(
        groups=SimpleNamespace(number=NumberOfClasses(0, (0, 1)), n_groups=0),
        target=SimpleNamespace(known=np.arange(20) >= n_unknown),
        settings=SimpleNamespace(n_private_classes=asked),
        absent_classes=np.array([]),
    )
    show_private_classes(model, Path("run"))
    assert capsys.readouterr().out.strip() == words


# --- names ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_warning_is_a_line_of_text(mode):
    with printing(mode):
        own = warnings.formatwarning(HOSTILE, UserWarning, uniot.__file__, 1)
        other = warnings.formatwarning(HOSTILE, UserWarning, "elsewhere.py", 1)
    assert own == f"Warning: {visible(HOSTILE)}\n"
    assert other == f"elsewhere.py:1: UserWarning: {visible(HOSTILE)}\n"
    check(own + other)


@pytest.mark.parametrize("mode", MODES)
def test_log_line_and_traceback_are_text(mode):
    # A traceback may have several lines, and tabs.
    name = HOSTILE.replace("\n\t", "")
    with printing(mode) as stream:
        logging.lastResort.handle(logging.makeLogRecord({"msg": name, "levelno": logging.WARNING}))
        try:
            raise RuntimeError(name)
        except RuntimeError:
            sys.excepthook(*sys.exc_info())
    assert control_characters(stream.getvalue(), mode) == set()
    assert stream.getvalue().count(visible(name)) == 2
    assert "RuntimeError: " in stream.getvalue()


@pytest.mark.parametrize("mode", MODES)
def test_line_during_a_progress_bar_is_text(mode):
    """While rich shows a bar, its own streams obey colours and links in what others print."""
    link = "\x1b]8;;http://evil\x1b\\\\link\x1b]8;;\x1b\\\\"
    with printing(mode) as stream:
        with reading_progress({"source": HOSTILE}) as of:
            of("source")(1, 10, 1, 1.0)
            print_line(f"{link}{HOSTILE}", err=True)
            sys.stdout.write(f"{link}\x1b[38;5;201m\n")
            of("source")(10, 10, 10, 1.0)
        assert isinstance(sys.stderr, VisibleStream)
        assert sys.stderr.rich_proxied_file is stream
    check(stream.getvalue(), mode)
    assert stream.getvalue().count(r"\x1b]8;;http://evil") == 2


@pytest.mark.parametrize("mode", MODES)
def test_title_of_a_progress_bar_may_have_braces_and_markup(mode):
    with printing(mode) as stream:
        with reading_progress({"source": "[red]{0}"}) as of:
            of("source")(1, 10, 1, 1.0)
        with working("[red]{1}") as then:
            then("[bold]{2}")
    assert re.search(r"[Rr]eading \[red\]\{0\}", stream.getvalue())
    assert "[bold]{2}" in stream.getvalue()
    assert control_characters(stream.getvalue(), mode) == set()


@pytest.mark.parametrize("mode", MODES)
def test_whatever_is_printed_on_the_console_is_text(mode):
    table = Table(title=HOSTILE, caption=HOSTILE, show_footer=True)
    table.add_column(HOSTILE, footer=HOSTILE)
    table.add_row(HOSTILE)
    # `Text` drops some control characters by itself, and keeps line breaks.
    name = HOSTILE.replace("\n\t", "").replace("\r", "")
    with printing(mode, columns=2000) as stream:
        for printed in (HOSTILE, table, Panel(HOSTILE), Group(HOSTILE, HOSTILE)):
            console().print(printed)
        check(stream.getvalue(), mode)
        assert stream.getvalue().count(visible(HOSTILE)) == 9
        console().print(Text(name), Columns([Text(name)]), Panel(Text(name), title=HOSTILE), sep="\n")
    assert control_characters(stream.getvalue(), mode) == set()


@pytest.mark.parametrize("mode", MODES)
def test_own_colours_stay_on_a_terminal(mode):
    with printing(mode) as stream:
        console().print("name", style="bold red")
    assert ("\x1b[1;31mname\x1b[0m" in stream.getvalue()) == (mode == "terminal")
