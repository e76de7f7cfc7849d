"""Options of several commands: which of known and unknown somebody would rather see."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer


class Prefer(Enum):
    """What to see more of."""

    KNOWN = "known"
    UNKNOWN = "unknown"


PrivatePrior = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        help="Fraction of the target that is to be unknown, from 0 to 1; the rule decides if left out.",
        show_default=False,
    ),
]
Preferred = Annotated[
    Prefer | None,
    typer.Option(
        help="`known` halves the fraction called unknown, `unknown` the fraction called known.",
        show_default=False,
    ),
]
