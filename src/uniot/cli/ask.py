"""`uniot ask`: questions about single samples of a finished run, on a page, in the terminal or in a table."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from uniot.cli.options import check_writable
from uniot.cli.page import (
    LOCALHOST,
    PACKAGES,
    AllowNetwork,
    OpenBrowser,
    PageHost,
    PageOptions,
    PagePort,
    serve_page,
)
from uniot.cli.screen import is_interactive, print_line, show_next, working
from uniot.errors import SettingsError
from uniot.io.text import command, counted, plural, quoted
from uniot.io.visible import visible
from uniot.runs.files import check_run_folder

if TYPE_CHECKING:
    from uniot.labelling.questions import Question
    from uniot.labelling.session import LabellingSession
    from uniot.runs import Run
    from uniot.runs.texts import Texts

_MOST_CLASSES_LISTED = 40
# A longer text is cut: the question shall stay on the screen.
_MOST_LETTERS, _MOST_LETTERS_IN_TABLE = 800, 2000
_INDENT = "   "


def ask(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    questions: Annotated[
        int | None, typer.Option(min=1, help="Write this number of questions to the file of --out instead of asking.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="With --questions: the .csv file to write.")] = None,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget",
            help="Withdraw all answers since the run was made; it decides by its own rule again.",
        ),
    ] = False,
    in_terminal: Annotated[
        bool, typer.Option("--terminal", help="Ask in the terminal, and not on a page in your browser.")
    ] = False,
    open_browser: OpenBrowser = False,
    port: PagePort = 0,
    host: PageHost = LOCALHOST,
    allow_network: AllowNetwork = False,
) -> None:
    """Ask you about single samples: is this one of your classes? Every answer improves the threshold to the unknown.

    The questions are on the page of `uniot label`, in your browser. With --terminal, if the run has neither images
    nor texts, or if the answers come from a pipe, they are asked in the terminal; an option of the page, such as
    --open, opens it for any run.

    Keys, in the terminal each with Enter: y for the nearest class, c for another class, n for none of them, s if you
    cannot tell, u to undo; in the terminal, q to stop. Every answer is saved at once, and used by `uniot predict`,
    `report`, `evaluate`, `export` and predictions.csv.

    Example: `uniot ask run/ --open`

    In a spreadsheet: `uniot ask run/ --questions 10 --out questions.csv`, then `uniot tell run/ questions.csv`
    """
    if (questions is None) != (out is None):
        raise SettingsError("--questions and --out belong together: uniot ask run/ --questions 10 --out questions.csv")
    if forget and questions is not None:
        raise SettingsError("--forget withdraws answers, and --questions asks for new ones. Give only one of them.")
    page = PageOptions(open_browser, port, host, allow_network)
    if page and (in_terminal or forget or questions is not None):
        other = "--terminal" if in_terminal else "--forget" if forget else "--questions"
        raise SettingsError(f"--open, --port, --host and --allow-network are for the page, and {other} opens none.")
    if out is not None:
        check_writable(out, (".csv",))
    if not (in_terminal or forget or questions is not None) and (page or _can_show_page(run)):
        check_not_written(run)
        serve_page(run, page, command("ask", run), "questions")
        return
    with open_session(run) as (opened, session):
        if forget:
            _forget(session)
        elif questions is not None and out is not None:
            _write_questions(session, questions, out, run)
        else:
            _ask_in_terminal(session, opened, run)


def _can_show_page(run: Path) -> bool:
    """Return whether to ask on the page: a person is at the terminal, and there is more to see than names."""
    from importlib.util import find_spec

    from uniot.runs.files import RunFiles
    from uniot.runs.pictures import Pictures

    can_show = is_interactive() and all(map(find_spec, PACKAGES))
    return can_show and (RunFiles(run).shown.is_file() or Pictures.open(run) is not None)


def check_not_written(run: Path) -> None:
    """Raise RunFolderError if another process writes the run, such as `uniot adapt`."""
    from uniot.runs import Run

    with Run.writer(run):
        pass


@contextmanager
def open_session(run: Path) -> Iterator[tuple[Run, LabellingSession]]:
    """Open the answers of a run; afterwards its tables are up to date."""
    check_run_folder(run)
    with working("Loading the run"):
        from uniot.labelling.publishing import Publisher
        from uniot.labelling.samples import TargetSamples
        from uniot.labelling.session import LabellingSession
        from uniot.labelling.store import LabelStore, label_lock
        from uniot.runs import Run

        opened = Run.open(run)
        opened.require_target("to ask about")
        check_not_written(run)
        target = TargetSamples.of_run(opened)
    with label_lock(run), closing(LabelStore.of_run(opened, target.digest)) as store:
        session = LabellingSession(target, store)
        with Publisher(session, opened.saved_model):
            yield opened, session
    if session.problem:
        print_line(f"Warning: the answers are saved, but the tables are not: {session.problem}", err=True)


def _forget(session: LabellingSession) -> None:
    from uniot.labelling.actions import ForgetAnswers

    print_line(session.act(ForgetAnswers(kind="forget"), session.revision).message)
    show_share(session)


def _write_questions(session: LabellingSession, n: int, out: Path, run: Path) -> None:
    from uniot.io.csv_tables import write_table

    questions, texts = session.questions(n), session.target.texts
    columns = ("path", *(() if texts is None else (texts.kind,)), "label", "nearest", "answer")
    lines = [(one.name, *_text_cell(texts, one.row), one.believed, _nearest(one), None) for one in questions]
    write_table(out, columns, lines, keep_empty=True)
    if len(questions) < n:
        print_line(f"Only {counted(len(questions), 'sample')} {plural(len(questions), 'has', 'have')} no answer yet.")
    print_line(
        f"{quoted(out)} is written, {counted(len(questions), 'question')}. Fill in the column `answer`: a class, "
        f"{session.target.unknown} for none of them, ? if you cannot tell. Next: {command('tell', run, out)}"
    )


def _text_cell(texts: Texts | None, row: int) -> tuple[str, ...]:
    return () if texts is None else (texts.short("target", row, _MOST_LETTERS_IN_TABLE),)


def _nearest(question: Question) -> str:
    return ", ".join(f"{name} {cosine:.2f}" for name, cosine in question.nearest)


def _ask_in_terminal(session: LabellingSession, opened: Run, run: Path) -> None:
    n_answered = 0
    while True:
        asked = session.questions()
        if not asked:
            print_line("Every sample has an answer.")
            break
        question = asked[0]
        _show_question(question, opened, n_answered + 1)
        said = _typed(session, question)
        if said == "stop":
            break
        if said == "undo":
            n_answered -= _undo(session, n_answered)
            continue
        session.tell({question.row: said})
        n_answered += 1
        show_share(session)
        _show_whether_settled(session)
    n_unsure, n_said = int(session.state.cannot_tell.sum()), int(session.state.by_hand.sum())
    if n_unsure and not n_said:
        print_line(f"All {counted(n_unsure, 'answer')} are “cannot tell”, so that nothing changes.")
    show_next_after_answers(run, session)


def _show_question(question: Question, opened: Run, number: int) -> None:
    print_line("")
    print_line(f"{number}. {question.name}")
    path = None if opened.pictures is None else opened.pictures.path("target", question.row)
    if path is not None:
        print_line(f"{_INDENT}{path}")
    if opened.texts is not None:
        for line in _text_lines(opened.texts, question.row):
            print_line(line)
    print_line(f"   now: {question.believed}; nearest: {_nearest(question)}")
    print_line(
        f"   y {question.nearest[0][0]} | c another class | n none of your classes | s cannot tell | u undo | q stop"
    )


def _text_lines(texts: Texts, row: int) -> list[str]:
    """Return the text of a sample as lines that fit into the terminal; an address in a single line, to be clicked."""
    from shutil import get_terminal_size
    from textwrap import wrap

    # Escaped before it is broken: what cannot be seen takes more letters then.
    text = visible(texts.short("target", row, _MOST_LETTERS))
    if texts.are_links:
        return [f"{_INDENT}{text}"]
    width = max(20, min(100, get_terminal_size().columns - 1))
    # The bar tells the text from the lines of the question, which it might imitate.
    bar = f"{_INDENT}| "
    return wrap(text, width, initial_indent=bar, subsequent_indent=bar, break_on_hyphens=False)


def _typed(session: LabellingSession, question: Question) -> int | Literal["undo", "stop"]:
    """Return the index of the answer that a person types, "undo" or "stop"; asks again after anything else."""
    from uniot.rejection.answers import CANNOT_TELL, UNKNOWN

    answers = {"y": session.target.classes.index(question.nearest[0][0]), "n": UNKNOWN, "s": CANNOT_TELL}
    while True:
        line = _read_line()
        if line is None or line == "q":
            return "stop"
        if line == "u":
            return "undo"
        key, _, rest = line.partition(" ")
        index = _chosen_class(session, rest.strip()) if key == "c" else answers.get(line)
        if index is not None:
            return index
        print_line("Type y, c, n, s, u or q, and Enter.")


def _chosen_class(session: LabellingSession, text: str) -> int | None:
    """Return the index of the class that a person types by name or number; None to go back."""
    from uniot.rejection.answers import no_such_class

    classes = session.target.classes
    while True:
        if not text:
            shown = [f"{number} {name}" for number, name in enumerate(classes[:_MOST_CLASSES_LISTED], start=1)]
            more = len(classes) - len(shown)
            others = f" and {more} more" if more else ""
            print_line(f"Which class? {', '.join(shown)}{others}. Type a name or a number; only Enter goes back.")
            text = _read_line() or ""
            if not text:
                return None
        index = session.target.class_named(text)
        if index is None and text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= len(classes):
            index = int(text) - 1
        if index is not None:
            return index
        sentence = no_such_class(text, classes)
        print_line(sentence[:1].upper() + sentence[1:])
        text = ""


def _read_line() -> str | None:
    """Return a line of standard input without blanks around it; None at its end."""
    line = sys.stdin.readline()
    return line.strip() if line else None


def _undo(session: LabellingSession, n_answered: int) -> int:
    """Undo the last of some answers; return how many are undone, 0 or 1. Other actions are undone on the page."""
    from uniot.labelling.actions import Undo

    step = session.to_undo
    if not n_answered or step is None:
        print_line("There is no answer to undo.")
        return 0
    print_line(session.act(Undo(kind="undo", of=step.id), session.revision).message)
    show_share(session)
    return 1


def show_next_after_answers(run: Path, session: LabellingSession) -> None:
    """Print what to do after some answers."""
    following = {command("report", run): "a page to look at"}
    if session.estimate().unknown:
        following[command("label", run)] = "look at the unknown, and name the new groups"
    following[command("ask", run)] = "more questions"
    show_next(following)


def show_share(session: LabellingSession) -> None:
    """Print the estimated share of unknown samples after the answers."""
    print_line(session.estimate().sentence)


def _show_whether_settled(session: LabellingSession) -> None:
    if session.questions() and session.is_settled:
        print_line("More answers will hardly change this; q stops.")
