"""Write the comparison of two runs as one self-contained HTML file, without any script."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uniot import __version__
from uniot.annotations.selections import MOST_SELECTED, selection_text
from uniot.io.files import write_text
from uniot.io.text import command
from uniot.report.comparison import KIND_WORDS, RunComparison, Transition
from uniot.report.sheets import data_uri
from uniot.report.templating import template_environment, template_text, trusted
from uniot.report.texts import ReportTexts, ShownText
from uniot.runs.thumbnails import Picture, read_thumbnails

_COMPARING = "comparing runs"
_MOST_TRANSITIONS, _MOST_SAMPLES, _MOST_LINES = 60, 24, 200
_SIDE, _MOST_BYTES = 128, 3_600_000
# A longer command is hard to paste.
_LONGEST_COMMAND = 1200


@dataclass(frozen=True)
class ShownSample:
    """A sample that changed, with its picture as a data URI or its text."""

    name: str
    before: float
    after: float
    true: str
    verdict: str
    by_people: bool
    picture: str | None
    text: ShownText | None


@dataclass(frozen=True)
class ShownTransition:
    """A change of label with some of its samples, and the command that opens all of them in the labelling page."""

    change: Transition
    words: str
    samples: list[ShownSample]
    command: str


def write_comparison(found: RunComparison, out: Path) -> None:
    """Write the page of a comparison."""
    write_text(out, render_comparison(found))


def render_comparison(found: RunComparison) -> str:
    """Return the HTML of the page; names are arbitrary text, which the template escapes."""
    template = template_environment(_COMPARING).get_template("comparison.html.j2")
    style = trusted(template_text("report.css"), _COMPARING)
    return str(template.render(**_content(found), version=__version__, style=style))


def _content(found: RunComparison) -> dict[str, Any]:
    shown = found.transitions[:_MOST_TRANSITIONS]
    run = found.after.run
    wanted: list[Picture] = [
        ("target", int(found.after.rows[row])) for one in shown for row in one.rows[:_MOST_SAMPLES].tolist()
    ]
    pictures, texts = read_thumbnails(run.pictures, wanted, _SIDE, _MOST_BYTES), ReportTexts(run, wanted)
    right = found.right

    def sample(row: int) -> ShownSample:
        picture: Picture = ("target", int(found.after.rows[row]))
        verdict = ""
        if right is not None:
            was, now = bool(right[0][row]), bool(right[1][row])
            verdict = "" if was == now else "now right" if now else "now wrong"
        return ShownSample(
            name=found.names[row],
            before=float(found.before.confidence[row]),
            after=float(found.after.confidence[row]),
            true="" if found.truth is None else str(found.truth[row]),
            verdict=verdict,
            by_people=bool(found.before.by_people[row] or found.after.by_people[row]),
            picture=data_uri(pictures[picture]) if picture in pictures else None,
            text=texts.of(picture),
        )

    return {
        "before": found.before.run.files.title,
        "after": found.after.run.files.title,
        "sentences": found.sentences,
        "has_truth": right is not None,
        "classes": found.classes[:_MOST_LINES],
        "n_classes": len(found.classes),
        "settings": found.settings,
        "transitions": [
            ShownTransition(
                one,
                "the same label, in another group" if one.kind == "group" else KIND_WORDS[one.kind],
                [sample(row) for row in one.rows[:_MOST_SAMPLES].tolist()],
                _command(found, one),
            )
            for one in shown
        ],
        "n_transitions": len(found.transitions),
    }


def _command(found: RunComparison, change: Transition) -> str:
    """Return the command that opens the samples in the labelling page of the second run; empty if it is too long."""
    rows = [int(found.after.rows[row]) for row in change.rows[:MOST_SELECTED].tolist()]
    run = found.after.run
    text = command("label", run.files.title, "--open", "--select", selection_text(rows, run.digest))
    return text if len(text) <= _LONGEST_COMMAND else ""
