"""`uniot ask` and `uniot tell`: a person's answers about samples of a finished run."""

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
from uniot.errors import DataError, SettingsError
from uniot.io.text import command, counted, plural, quoted

if TYPE_CHECKING:
    from uniot.labelling.questions import Question
    from uniot.labelling.session import LabellingSession
    from uniot.runs import Run
    from uniot.runs.pictures import Pictures

_MOST_CLASSES_LISTED = 40


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
    """Ask you about single images: is this one of your classes? Every answer improves the line to the unknown.

    The questions are on the page of `uniot label`, in your browser. With --terminal, if the run has no images, or if
    the answers come from a pipe, they are asked in the terminal; an option of the page, such as --open, opens it for
    any run.

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
        _check_not_written(run)
        serve_page(run, page, command("ask", run), "questions")
        return
    with _session(run) as (opened, session):
        if forget:
            _forget(session)
        elif questions is not None and out is not None:
            _write_questions(session, questions, out, run)
        else:
            _ask_in_terminal(session, opened.pictures, run)


def tell(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    answers: Annotated[
        Path, typer.Argument(help="Table with path and answer, as `uniot ask --questions` writes it, filled in.")
    ],
) -> None:
    """Read answers about single images from a table: a class, `unknown` for none of them, `?` or nothing if unsure.

    All answers are used, or none if one of them cannot be.

    Example: `uniot tell run/ questions.csv`
    """
    from uniot.labelling.formats import parse_answers, read_text

    text = read_text(answers)
    with _session(run) as (_, session):
        try:
            found = parse_answers(text, session.target)
        except DataError as error:
            raise DataError(f"{answers}: {error}") from None
        if found.n_repeated:
            print_line(
                f"{counted(found.n_repeated, 'sample')} {plural(found.n_repeated, 'has', 'have')} several answers; the "
                "last one counts."
            )
        outcome = session.tell(found.answers)
        print_line(outcome.message)
        _show_share(session)
    show_next({command("report", run): "a page to look at", command("ask", run): "more questions"})


def _can_show_page(run: Path) -> bool:
    """Return whether the questions are asked on the page: a person is at the terminal, and there are images."""
    from importlib.util import find_spec

    from uniot.runs.pictures import Pictures

    return is_interactive() and all(map(find_spec, PACKAGES)) and Pictures.open(run) is not None


def _check_not_written(run: Path) -> None:
    """Raise RunFolderError if another process writes the run, such as `uniot adapt`."""
    from uniot.runs import Run

    with Run.writer(run):
        pass


@contextmanager
def _session(run: Path) -> Iterator[tuple[Run, LabellingSession]]:
    """Open the answers of a run; afterwards its tables are up to date."""
    with working("Loading the run"):
        from uniot.labelling.publishing import Publisher
        from uniot.labelling.session import LabellingSession
        from uniot.labelling.store import LabelStore, label_lock
        from uniot.labelling.target import Target
        from uniot.runs import Run

        opened = Run.open(run)
        opened.require_target("to ask about")
        _check_not_written(run)
        target = Target.of_run(opened)
    with label_lock(run), closing(LabelStore(opened.files.annotations, target.digest)) as store:
        session = LabellingSession(target, store)
        with Publisher(session, opened.saved_model):
            yield opened, session
    if session.problem:
        print_line(f"Warning: the answers are saved, but the tables are not: {session.problem}", err=True)


def _forget(session: LabellingSession) -> None:
    from uniot.labelling.actions import ForgetAnswers

    print_line(session.act(ForgetAnswers(kind="forget"), session.revision).message)
    _show_share(session)


def _write_questions(session: LabellingSession, n: int, out: Path, run: Path) -> None:
    from uniot.io.csv_tables import write_table

    questions = session.questions(n)
    write_table(
        out,
        ("path", "label", "nearest", "answer"),
        [(one.name, one.believed, _nearest(one), None) for one in questions],
        keep_empty=True,
    )
    if len(questions) < n:
        print_line(f"Only {counted(len(questions), 'sample')} {plural(len(questions), 'has', 'have')} no answer yet.")
    print_line(
        f"{quoted(out)} is written, {counted(len(questions), 'question')}. Fill in the column `answer`: a class, "
        f"{session.target.unknown} for none of them, ? if you cannot tell. Next: {command('tell', run, out)}"
    )


def _nearest(question: Question) -> str:
    return ", ".join(f"{name} {cosine:.2f}" for name, cosine in question.nearest)


def _ask_in_terminal(session: LabellingSession, pictures: Pictures | None, run: Path) -> None:
    n_answered = 0
    while True:
        asked = session.questions()
        if not asked:
            print_line("Every sample has an answer.")
            break
        question = asked[0]
        _show_question(question, pictures, n_answered + 1)
        said = _typed(session, question)
        if said == "stop":
            break
        if said == "undo":
            n_answered -= _undo(session, n_answered)
            continue
        session.tell({question.row: said})
        n_answered += 1
        _show_share(session)
        _show_whether_settled(session)
    n_unsure, n_said = int(session.state.cannot_tell.sum()), int(session.state.by_hand.sum())
    if n_unsure and not n_said:
        print_line(f"All {counted(n_unsure, 'answer')} are “cannot tell”, so that nothing changes.")
    show_next({command("report", run): "a page to look at", command("ask", run): "more questions"})


def _show_question(question: Question, pictures: Pictures | None, number: int) -> None:
    print_line("")
    print_line(f"{number}. {question.name}")
    path = None if pictures is None else pictures.path("target", question.row)
    if path is not None:
        print_line(f"   {path}")
    print_line(f"   now: {question.believed}; nearest: {_nearest(question)}")
    print_line(
        f"   y {question.nearest[0][0]} | c another class | n none of your classes | s cannot tell | u undo | q stop"
    )


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
    _show_share(session)
    return 1


def _show_share(session: LabellingSession) -> None:
    print_line(session.estimate().sentence)


def _show_whether_settled(session: LabellingSession) -> None:
    if session.questions() and session.is_settled:
        print_line("More answers will hardly change this; q stops.")
