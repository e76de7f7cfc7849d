"""Find the samples that `uniot label --select` names: a selection of a report, a table, a group or a class."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from uniot.annotations.places import from_text
from uniot.annotations.selections import MOST_SELECTED, Selection, selection_text
from uniot.errors import DataError
from uniot.io.csv_tables import CsvError, dict_reader
from uniot.io.text import as_utf8, counted, listed
from uniot.labelling.parsing import SAMPLE_COLUMNS, read_text

if TYPE_CHECKING:
    from uniot.runs.run import Run

SOURCE_LABELS = "source-labels"
_PLACE = re.compile("(group|class)-[0-9]+|discarded", re.ASCII)
_LIKE = "like:"


def fragment_of(run: Run, text: str) -> str:
    """Return the fragment of the page's address at which it shows a selection.

    Args:
        run: the run to label.
        text: a selection, `like:` and the name of a sample, `source-labels`, a place such as group-3, or the path of a
            .csv file with the column path or sample, as the report's list of selected samples.

    Raises:
        DataError: the text is none of these, or names samples that are not in the run.
    """
    if text == SOURCE_LABELS:
        return text
    if _PLACE.fullmatch(text):
        from_text(text)
        return text
    names = [as_utf8(name) for name in run.predictions.names]
    if text.startswith(_LIKE):
        name = text.removeprefix(_LIKE)
        if name not in names:
            raise DataError(f"{name!r} is not in this run. Use the names of predictions.csv.")
        return f"like-{names.index(name)}"
    if text.endswith(".csv") or Path(text).is_file():
        return selection_text(_rows_of_table(Path(text), names), run.digest)
    Selection.parse(text, run.digest, len(names))
    return text


def _rows_of_table(path: Path, names: list[str]) -> list[int]:
    try:
        table = dict_reader(read_text(path).removeprefix("\ufeff").splitlines(keepends=True), strict=True)
        column = next((name for name in SAMPLE_COLUMNS if name in (table.fieldnames or [])), None)
        if column is None:
            raise DataError(f"{path} has the columns {listed(table.fieldnames or [])!r}. It needs path or sample.")
        wanted = [str(line[column]) for line in table]
    except CsvError as error:
        raise DataError(f"{path} is not CSV ({error}). Download the list again in the report.") from None
    row_of = {name: row for row, name in enumerate(names)}
    missing = [name for name in wanted if name not in row_of]
    if missing:
        raise DataError(
            f"{len(missing)} of {counted(len(wanted), 'sample')} of {path} are not in this run, for example "
            f"{missing[0]!r}. Use the names of predictions.csv."
        )
    if not 1 <= len(set(wanted)) <= MOST_SELECTED:
        raise DataError(
            f"{path} has {counted(len(wanted), 'sample')}. Give at least one, and at most {MOST_SELECTED:,}."
        )
    return [row_of[name] for name in wanted]
