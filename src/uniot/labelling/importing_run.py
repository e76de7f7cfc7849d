"""Labels that were made elsewhere, taken over into a run folder without a page."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from uniot.annotations import FILE
from uniot.errors import DataError
from uniot.labelling.desk import Desk
from uniot.labelling.publishing import publish
from uniot.labelling.store import Store, only_one_page
from uniot.labelling.target import Target
from uniot.model_files import load_model


def import_run(run: Path, table: Path) -> str:
    """Take over labels from a file, all or none, as one action that the page can undo; return what was done.

    Raises:
        DataError: the file cannot be read, or does not fit the target.
        RunFolderError: the run cannot be labelled, or a page has it open.
    """
    try:
        text = table.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{table} cannot be read ({error}). Give a .csv or .jsonl file in UTF-8.") from None
    target = Target.open(run)
    with only_one_page(run), closing(Store(run / FILE, target.digest)) as store:
        desk = Desk(target, store)
        try:
            outcome = desk.import_labels(text)
        except DataError as error:
            raise DataError(f"{table}: {error}") from None
        publish(desk, load_model(run))
    return outcome.message
