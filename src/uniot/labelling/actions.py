"""What a person can ask for on the page. Everything here came from outside: types, ranges and lengths are checked."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt

from uniot.labelling.names import MOST_CHARACTERS

MOST_ROWS = 5000
_LARGEST = 2**53  # what JavaScript can count to

Number = Annotated[StrictInt, Field(ge=0, le=_LARGEST)]
Rows = Annotated[list[Number], Field(min_length=1, max_length=MOST_ROWS)]
PlaceText = Annotated[str, Field(max_length=40)]


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class NameGroup(_Asked):
    """Call a group something; an empty name takes its name away."""

    kind: Literal["name"]
    group: Number
    # Decomposed letters are counted one by one here, and together by `clean_name`.
    name: Annotated[str, Field(max_length=8 * MOST_CHARACTERS)]


class MergeGroup(_Asked):
    """Put a whole group into another place."""

    kind: Literal["merge"]
    group: Number
    to: PlaceText


class SplitGroup(_Asked):
    """Make two groups of one."""

    kind: Literal["split"]
    group: Number


class MoveSamples(_Asked):
    """Put some samples into another place, or into a new group: `new`."""

    kind: Literal["move"]
    rows: Rows
    to: PlaceText


class PutBackSamples(_Asked):
    """Put some samples where the run had them."""

    kind: Literal["put-back"]
    rows: Rows


class LabelSample(_Asked):
    """Say what one sample is; what looks like it follows."""

    kind: Literal["label"]
    row: Number
    label: Annotated[str, Field(min_length=1, max_length=8 * MOST_CHARACTERS)]


class Undo(_Asked):
    """Take back an action, which must be the last one that was not taken back."""

    kind: Literal["undo"]
    of: Number


class Redo(_Asked):
    """Do an action again, which must be the last one that was taken back."""

    kind: Literal["redo"]
    of: Number


Edit = NameGroup | MergeGroup | SplitGroup | MoveSamples | PutBackSamples | LabelSample
Action = Annotated[Edit | Undo | Redo, Field(discriminator="kind")]
