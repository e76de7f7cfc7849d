"""`uniot ask` and `uniot tell`: answers in the terminal and in a table."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.request import HTTPCookieProcessor, build_opener

import numpy as np
import pytest

from uniot.datasets import make_toy_domains
from uniot.io.files import only_one_writer
from uniot.io.shown import Shown
from uniot.labelling import read_names
from uniot.labelling.store import label_lock
from uniot.runs import Run
from uniot.runs.pictures import write_pixels

Asked = Callable[..., tuple[int, str, str]]
# `uniot.cli.ask` is the function.
ASK = sys.modules["uniot.cli.ask"]
UNKNOWN_SHARE = r"Unknown: \d+ %, between \d+ and \d+ %\."


@pytest.fixture(scope="module")
def truth() -> np.ndarray:
    toy = make_toy_domains(3, 2, 2, seed=1)
    return np.where(np.isin(toy.oracle_y_target, np.unique(toy.y_source)), toy.oracle_y_target, "unknown")


@pytest.fixture(scope="module")
def collections(tmp_path_factory) -> tuple[Path, Path]:
    """Classes that overlap, so that the run is wrong about some samples."""
    folder = tmp_path_factory.mktemp("data")
    toy = make_toy_domains(3, 2, 2, seed=1)
    noise = 1.6 * toy.x_target.std() * np.random.default_rng(0).normal(size=toy.x_target.shape)
    source, target = folder / "source.npz", folder / "target.npz"
    np.savez(source, x=toy.x_source, y=toy.y_source)
    np.savez(target, x=toy.x_target + noise, ids=[f"photos/{row:03d}.jpg" for row in range(len(toy.x_target))])
    return source, target


@pytest.fixture(scope="module")
def adapted(uniot, collections, tmp_path_factory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("adapted") / "run"
    code, said, told = uniot("adapt", *collections, "--out", out)
    assert code == 0, told
    return out, said


@pytest.fixture
def run(adapted, tmp_path) -> Path:
    return Path(shutil.copytree(adapted[0], tmp_path / "run"))


@pytest.fixture
def asked(uniot, run, monkeypatch) -> Asked:
    """`asked("n", "q")` answers the questions of `uniot ask run/` with these lines."""

    def typed(*lines: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        return uniot("ask", run)

    return typed


def labels(run: Path) -> np.ndarray:
    return Run.open(run).predictions.labels


def answers(run: Path) -> dict[int, int]:
    return Run.open(run).model.answers.by_row


def questions(uniot, run: Path, table: Path, n: int = 10) -> list[dict[str, str]]:
    code, _, told = uniot("ask", run, "--questions", n, "--out", table)
    assert code == 0, told
    with table.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write(table: Path, lines: list[dict[str, str]]) -> Path:
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, lines[0])
        writer.writeheader()
        writer.writerows(lines)
    return table


def row_of(line: dict[str, str]) -> int:
    return int(line["path"][-7:-4])


def test_adapt_ends_with_the_share_and_asks_if_it_is_not_settled(adapted):
    _, said = adapted
    assert re.search(UNKNOWN_SHARE, said)
    assert f"Answers narrow this down: uniot ask {adapted[0]}" in said


def test_answers_in_the_terminal_are_saved_and_used(asked, run):
    code, said, _ = asked("n", "y", "c common-2", "c", "1", "s", "q")
    assert code == 0
    found = answers(run)
    assert sorted(found.values()) == [-2, -1, 0, 1, 2]
    assert said.count("Unknown: ") == 5
    model = Run.open(run).model
    assert (labels(run) == model.labels(model.target)).all()
    assert "q stop" in said


@pytest.fixture
def at_terminal(uniot, run, monkeypatch) -> Asked:
    """`at_terminal("--open")` is `uniot ask run/ --open` of a person at a terminal, who types q."""

    def typed(*options: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO("q\n"))
        monkeypatch.setattr(ASK, "is_interactive", lambda: True)
        return uniot("ask", run, *options)

    return typed


@pytest.fixture
def served(monkeypatch) -> list[dict[str, object]]:
    """The options of pages that are served, which end at once."""
    found: list[dict[str, object]] = []

    def serve(run, *, on_ready, **options):
        found.append(options)
        on_ready("http://127.0.0.1:9/?token=t")

    monkeypatch.setattr("uniot.labelling.server.serve", serve)
    return found


@pytest.fixture
def with_images(run) -> Path:
    model = Run.open(run).model
    n_source = int(model.source.rows.max()) + 1
    write_pixels(run, np.zeros((n_source, 8, 8)), np.zeros((len(model.target), 8, 8)))
    return run


def test_a_run_with_images_is_asked_on_the_page(at_terminal, with_images, served):
    code, said, told = at_terminal("--port", 8123)
    assert (code, served) == (0, [{"host": "127.0.0.1", "port": 8123, "allow_network": False}])
    assert "Answer here: http://127.0.0.1:9/?token=t#questions" in said
    assert "now: " not in said
    assert f"Ended; nothing was answered yet. Next: uniot ask {with_images}" in told
    assert at_terminal()[0] == 0
    assert served[1] == {"host": "127.0.0.1", "port": 0, "allow_network": False}


def test_after_answers_on_the_page_the_next_step_is_said(at_terminal, with_images, served):
    labels = with_images / "labels.csv"
    labels.write_text("path,label,decision\nphotos/001.jpg,common-1,class\n", encoding="utf-8")
    assert f"{with_images / 'labels.sqlite'}. Next: uniot report {with_images}" in at_terminal()[2]
    labels.write_text("path,label,decision\nphotos/001.jpg,kettle,named\n", encoding="utf-8")
    assert f"Next: uniot adapt --continue {with_images}" in at_terminal()[2]


@pytest.mark.usefixtures("with_images")
def test_with_images_the_terminal_asks_if_it_is_told_to_or_the_answers_come_from_a_pipe(at_terminal, asked, served):
    assert "now: " in asked("q")[1]
    assert "now: " in at_terminal("--terminal")[1]
    assert served == []


def test_without_images_the_terminal_asks_unless_the_page_is_wanted(at_terminal, served, monkeypatch):
    assert "now: " in at_terminal()[1]
    assert served == []
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert at_terminal("--open")[0] == 0
    assert opened == ["http://127.0.0.1:9/?token=t#questions"]
    assert at_terminal("--host", "0.0.0.0", "--allow-network")[0] == 0
    assert served[1] == {"host": "0.0.0.0", "port": 0, "allow_network": True}


@pytest.mark.usefixtures("with_images")
def test_without_the_packages_of_the_page_the_terminal_asks(at_terminal, served, monkeypatch):
    monkeypatch.setattr(ASK, "PACKAGES", ("fastapi", "no_such_package"))
    assert "now: " in at_terminal()[1]
    assert served == []


@pytest.mark.usefixtures("with_images")
def test_a_run_that_another_process_writes_is_not_asked_on_the_page(at_terminal, run, served):
    with only_one_writer(run):
        code, _, told = at_terminal()
    assert (code, "another uniot process is writing to" in told) == (1, True)
    assert served == []


@pytest.mark.parametrize("option", [("--terminal",), ("--forget",), ("--questions", 3, "--out", "q.csv")])
def test_options_of_the_page_need_the_page(at_terminal, option):
    code, _, told = at_terminal("--open", *option)
    assert code == 1
    assert f"are for the page, and {option[0]} opens none." in " ".join(told.split())


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
@pytest.mark.usefixtures("interruptible")
@pytest.mark.slow
def test_the_page_of_a_person_at_a_terminal_is_served_until_it_is_interrupted(with_images):
    import pty

    mine, theirs = pty.openpty()
    command = [sys.executable, "-m", "uniot", "ask", str(with_images)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=environment) as server:
        os.close(theirs)
        said = ""
        try:
            while "#questions" not in said:
                said += os.read(mine, 4096).decode()
            address = re.search(r"Answer here: (http://127\.0\.0\.1:\d+/\?token=[\w-]{43})#questions", said)
            assert address is not None
            with build_opener(HTTPCookieProcessor()).open(address[1]) as page:
                assert '"opens_at": "questions"' in page.read().decode()
        finally:
            server.send_signal(signal.SIGINT)
        told = server.communicate(timeout=20)[1].decode()
    os.close(mine)
    assert (server.returncode, "Traceback" in told) == (0, False)
    assert "Ended; nothing was answered yet." in told


def test_the_end_of_the_input_stops(asked, run):
    code, said, _ = asked("n")
    assert code == 0
    assert len(answers(run)) == 1
    assert "Next: uniot report" in said


def test_undo_takes_back_answers_of_this_session_only(asked, run):
    assert asked("n", "y", "q")[0] == 0
    before = answers(run)
    code, said, _ = asked("u", "n", "u", "u", "q")
    assert code == 0
    assert answers(run) == before
    assert said.count("There is no answer to undo.") == 2
    assert "Undone: 1 sample answered “unknown”" in said


def test_a_class_with_a_typing_error_is_offered_and_other_keys_are_explained(asked, run):
    code, said, _ = asked("what", "c comon-1", "", "c", "9", "common-1", "q")
    assert code == 0
    assert "Type y, c, n, s, u or q, and Enter." in said
    assert "There is no class 'comon-1'. Did you mean 'common-1'?" in said
    assert "There is no class '9'. The classes are common-0, common-1" in said
    assert list(answers(run).values()) == [1]


def test_it_says_when_more_answers_will_hardly_change_anything(asked, run, truth):
    lines, said, right = [], "", (labels(run) == truth).mean()
    for _ in range(25):
        code, said, _ = asked(*lines, "q")
        assert code == 0
        if "More answers will hardly change this" in said:
            break
        row = int(said.split("photos/")[-1][:3])
        lines = ["n"] if truth[row] == "unknown" else [f"c {truth[row]}"]
    assert "More answers will hardly change this" in said
    assert (labels(run) == truth).mean() >= right
    before = labels(run)
    row = int(said.split("photos/")[-1][:3])
    asked("n" if truth[row] == "unknown" else f"c {truth[row]}", "q")
    assert (labels(run) != before).mean() < 0.05


def test_cannot_tell_alone_changes_nothing(asked, run):
    before = labels(run)
    code, said, _ = asked("s", "s", "s", "q")
    assert code == 0
    assert "All 3 answers are “cannot tell”, so that nothing changes." in said
    assert (labels(run) == before).all()
    assert len(answers(run)) == 3


def test_questions_are_written_answered_in_a_table_and_read_back(uniot, run, tmp_path, truth):
    lines = questions(uniot, run, tmp_path / "questions.csv")
    assert len(lines) == 10
    assert list(lines[0]) == ["path", "label", "nearest", "answer"]
    assert {line["answer"] for line in lines} == {""}
    for line in lines[:8]:
        line["answer"] = truth[row_of(line)]
    lines[8]["answer"] = "?"
    code, said, _ = uniot("tell", run, write(tmp_path / "answers.csv", lines))
    assert code == 0
    assert "10 samples answered" in said
    assert list(answers(run).values()).count(-2) == 2
    for line in lines[:8]:
        assert labels(run)[row_of(line)] == truth[row_of(line)]


def test_of_two_answers_about_a_sample_the_last_counts_and_that_is_said(uniot, run, tmp_path):
    lines = questions(uniot, run, tmp_path / "questions.csv", 1)
    table = write(tmp_path / "a.csv", [lines[0] | {"answer": "common-0"}, lines[0] | {"answer": "unknown"}])
    code, said, _ = uniot("tell", run, table)
    assert code == 0
    assert "1 sample has several answers; the last one counts." in said
    assert list(answers(run).values()) == [-1]


def test_more_questions_than_samples_are_as_many_as_there_are(uniot, run, tmp_path, truth):
    code, said, _ = uniot("ask", run, "--questions", 10_000, "--out", tmp_path / "all.csv")
    assert code == 0
    assert f"Only {len(truth)} samples have no answer yet." in said


def test_forgetting_restores_the_decision_of_the_rule(asked, uniot, run):
    before = labels(run)
    asked("n", "y", "c common-1", "y", "y", "q")
    code, said, _ = uniot("ask", run, "--forget")
    assert code == 0
    assert "Answers about 5 samples forgotten" in said
    assert (labels(run) == before).all()
    assert not answers(run)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("path,answer\nphotos/000.jpg,comon-1\n", "line 2: there is no class 'comon-1'. Did you mean 'common-1'?"),
        ("row,answer\n5000,unknown\n", "line 2 is about row '5000', and the run has rows 0 to 149."),
        ("row,answer\n-1,unknown\n", "line 2 is about row '-1', and the run has rows 0 to 149."),
        ("path,answer\nother/x.jpg,unknown\n", "1 of 1 samples are not in this run, for example 'other/x.jpg'."),
        ("path,label\nphotos/000.jpg,unknown\n", "the header is 'path, label'. It needs path (or sample or row) and"),
        ('path,answer\n"photos/000.jpg,unknown\n', "is not CSV"),
        ("path,answer\n", "it contains no answer."),
        ("path,answer\nphotos/000.jpg\n", ""),
    ],
)
def test_a_table_that_cannot_be_used_changes_nothing(uniot, run, tmp_path, table, words):
    file = tmp_path / "answers.csv"
    file.write_text(table)
    code, _, told = uniot("tell", run, file)
    if words:
        assert code == 1
        assert f"Error: {file}: " in told
        assert words in told
        assert not answers(run)
    else:
        assert list(answers(run).values()) == [-2]


def test_a_file_that_is_no_text_or_no_file_is_reported(uniot, run, tmp_path):
    file = tmp_path / "answers.csv"
    file.write_bytes(b"path,answer\n\xff\xfe\x00,unknown\n")
    code, _, told = uniot("tell", run, file)
    assert (code, f"Error: {file} cannot be read" in told) == (1, True)
    code, _, told = uniot("tell", run, tmp_path / "missing.csv")
    assert (code, "missing.csv cannot be read (No such file or directory)" in told) == (1, True)


def test_a_shared_run_cannot_be_asked(uniot, run, tmp_path):
    assert uniot("push", run, tmp_path / "shared")[0] == 0
    code, _, told = uniot("ask", tmp_path / "shared")
    assert (code, "was shared without its target, so there is nothing to ask about" in told) == (1, True)


def test_a_run_that_another_process_uses_cannot_be_asked(uniot, run, asked):
    with label_lock(run):
        code, _, told = asked("n")
    assert (code, "another `uniot label` or `uniot ask` has" in told) == (1, True)
    with only_one_writer(run):
        code, _, told = asked("n")
    assert (code, "another uniot process is writing to" in told) == (1, True)
    assert not answers(run)


def test_options_that_contradict_each_other_are_refused(uniot, run, tmp_path):
    code, _, told = uniot("ask", run, "--questions", 3)
    assert (code, "--questions and --out belong together" in told) == (1, True)
    code, _, told = uniot("ask", run, "--questions", 3, "--out", tmp_path / "q.csv", "--forget")
    assert (code, "Give only one of them" in told) == (1, True)


@pytest.mark.parametrize("preference", [("--private-prior", 0), ("--private-prior", 1), ("--prefer", "known")])
def test_estimates_of_another_decision_are_not_printed(uniot, collections, tmp_path, monkeypatch, preference):
    out = tmp_path / "run"
    code, said, _ = uniot("adapt", *collections, "--out", out, *preference)
    assert code == 0
    for words in ("Estimated without labels", "Unknown: ", "are probably", "% unknown:", "answers settle"):
        assert words not in said
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\ny\nq\n"))
    code, said, _ = uniot("ask", out)
    assert code == 0
    assert said.count("%, by the preference of the run.") == 2
    assert uniot("report", out)[0] == 0
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Estimated without labels" not in page
    assert "labelled with none; " not in page


def test_the_report_gives_the_interval_after_answers(uniot, run, asked):
    asked("n", "y", "q")
    low, high = Run.open(run).model.private_share_interval
    assert uniot("report", run)[0] == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    assert f"unknown; {100 * low:.0f} to {100 * high:.0f} % are plausible" in page
    assert "Estimated without labels" not in page


def test_scores_say_how_many_samples_a_person_decided(uniot, run, asked, tmp_path, truth):
    asked("n", "y", "q")
    table = tmp_path / "truth.csv"
    lines = "".join(f"photos/{row:03d}.jpg,{label}\n" for row, label in enumerate(truth))
    table.write_text(f"path,label\n{lines}")
    code, said, _ = uniot("evaluate", run, "--labels", table)
    assert code == 0
    assert "2 samples that they labelled are left out of the scores." in said
    assert json.loads((run / "metrics.json").read_text())["n_left_out"] == 2


def test_the_next_run_keeps_the_answers_unknown_ones_too_and_can_be_asked_further(uniot, run, tmp_path, truth):
    lines = questions(uniot, run, tmp_path / "questions.csv")
    rows = [int(Path(line["path"]).stem) for line in lines]
    told = write(tmp_path / "told.csv", [line | {"answer": truth[row]} for line, row in zip(lines, rows, strict=True)])
    assert uniot("tell", run, told)[0] == 0
    code, said, wrong = uniot("adapt", "--continue", run, "--out", tmp_path / "next")
    assert code == 0, wrong
    n_unknown = int((truth[rows] == "unknown").sum())
    assert 0 < n_unknown < len(rows)
    words = " ".join(said.split())
    assert f"{len(rows) - n_unknown} samples that you labelled" in words
    assert f"{n_unknown} samples that you called unknown stay unknown." in words
    assert (labels(tmp_path / "next")[rows] == truth[rows]).all()
    evidence = Run.open(tmp_path / "next").model.answers.evidence
    assert sorted(evidence.rows.tolist()) == sorted(rows)
    # The next question is about another sample, and its answer leaves those before as they are.
    line = questions(uniot, tmp_path / "next", tmp_path / "more.csv", 1)[0]
    row = int(Path(line["path"]).stem)
    assert row not in rows
    assert uniot("tell", tmp_path / "next", write(tmp_path / "more.csv", [line | {"answer": truth[row]}]))[0] == 0
    assert (labels(tmp_path / "next")[[*rows, row]] == truth[[*rows, row]]).all()
    assert sorted(Run.open(tmp_path / "next").model.answers.evidence.rows.tolist()) == sorted([*rows, row])
    # What the run was made with stays: names.csv gives it to the run after it as well.
    code, said, _ = uniot("ask", tmp_path / "next", "--forget")
    assert code == 0
    n_given = len(read_names(tmp_path / "next" / "names.csv").names)
    assert n_given >= len(rows)
    assert f"Answers about 1 sample forgotten; labels of {n_given} samples stay, because this run was" in said
    assert (labels(tmp_path / "next")[rows] == truth[rows]).all()
    assert sorted(Run.open(tmp_path / "next").model.answers.evidence.rows.tolist()) == sorted(rows)
    # So it does if it was changed since.
    other = next(str(one) for one in truth if one not in ("unknown", truth[rows[0]]))
    changed = write(tmp_path / "changed.csv", [lines[0] | {"answer": other}])
    assert uniot("tell", tmp_path / "next", changed)[0] == 0
    assert labels(tmp_path / "next")[rows[0]] == other
    assert "Answers about 1 sample forgotten; labels of" in uniot("ask", tmp_path / "next", "--forget")[1]
    assert (labels(tmp_path / "next")[rows] == truth[rows]).all()


@pytest.fixture
def text_run(run) -> Path:
    """The run with a text for each sample; that of each question is wicked, long and of several lines."""
    opened = Run.open(run)
    wicked = "\x1b]0;owned\x07 \u202eevil\n2. photos/forged.jpg\n   now: known " + "word " * 1000
    with Run.writer(run) as writer:
        writer.write_shown(None, Shown("text", [f"{row}: {wicked}" for row in range(opened.n_target)]))
    return run


def test_the_terminal_shows_the_text_cut_wrapped_and_visible(text_run, asked, monkeypatch):
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_, **__: os.terminal_size((60, 24)))
    code, said, _ = asked("q")
    assert code == 0
    lines = said.split("\n")
    first = next(number for number, line in enumerate(lines) if line.startswith("1. photos/"))
    last = next(number for number, line in enumerate(lines) if line.startswith("   now: "))
    text = lines[first + 1 : last]
    assert all(line.startswith("   | ") and len(line) < 60 for line in text)
    text = [line.removeprefix("   | ") for line in text]
    assert "\\x1b]0;owned\\x07 \\u202eevil 2. photos/forged.jpg now: known word" in " ".join(" ".join(text).split())
    assert text[-1].endswith("…")
    assert 10 < len(text) < 20


def test_a_link_stays_in_one_line(run, asked, monkeypatch):
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_, **__: os.terminal_size((40, 24)))
    address = "https://example.org/a/long/address/that/is/longer/than/the/terminal"
    with Run.writer(run) as writer:
        writer.write_shown(None, Shown("link", [address] * Run.open(run).n_target))
    assert f"\n   {address}\n" in asked("q")[1]


def test_a_table_of_questions_has_a_column_with_the_text(uniot, text_run, tmp_path):
    out = tmp_path / "questions.csv"
    assert uniot("ask", text_run, "--questions", "3", "--out", out)[0] == 0
    with out.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert list(lines[0]) == ["path", "text", "label", "nearest", "answer"]
    assert all("evil 2. photos/forged.jpg" in line["text"] and len(line["text"]) <= 2000 for line in lines)
    assert uniot("tell", text_run, out)[0] == 0


def test_texts_are_asked_about_on_the_page(text_run, monkeypatch):
    monkeypatch.setattr(ASK, "is_interactive", lambda: True)
    assert ASK._can_show_page(text_run)
    (text_run / "shown.json").unlink()
    assert not ASK._can_show_page(text_run)
