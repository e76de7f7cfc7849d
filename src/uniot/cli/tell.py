"""`uniot tell`: answers about single samples of a finished run, from a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from uniot.cli.ask import open_session, show_next_after_answers, show_share
from uniot.cli.screen import print_line, working
from uniot.errors import DataError
from uniot.io.text import counted, plural


def tell(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    answers: Annotated[
        Path, typer.Argument(help="Table with path and answer, as `uniot ask --questions` writes it, filled in.")
    ],
) -> None:
    """Read answers about single samples from a table: a class, `unknown` for none of them, `?` or nothing if unsure.

    All answers are used, or none if one of them cannot be.

    Example: `uniot tell run/ questions.csv`
    """
    with working("Reading the answers", lines=False):
        from uniot.labelling.parsing import parse_answers, read_text

        text = read_text(answers)
    with open_session(run) as (_, session):
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
        show_share(session)
        show_next_after_answers(run, session)
