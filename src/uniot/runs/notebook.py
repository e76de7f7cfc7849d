"""How a run and a fitted estimator look in a notebook: counts, the interval, and three exemplars of each group."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from uniot.io.text import as_utf8, counted, plural
from uniot.io.visible import visible
from uniot.methods.registry import method_info
from uniot.runs.thumbnails import Picture, read_thumbnails

if TYPE_CHECKING:
    from uniot.runs.run import Run
    from uniot.training.model import AdaptedModel

_EXEMPLARS = 3
_MOST_CLASSES, _MOST_GROUPS = 8, 12
_SIDE, _MOST_BYTES = 96, 1_000_000
_LONGEST_TEXT, _LONGEST_NAME = 80, 40
_CELL = "text-align: left; vertical-align: middle; padding: 2px 12px 2px 0"

OfSamples = Callable[[Sequence[int]], dict[int, str]]


def run_html(run: Run) -> str:
    """Return a run as HTML: counts, interval, and exemplars as pictures, texts or names."""
    title = visible(run.files.title)
    if not run.n_target:
        return f"<p><b>{escape(title)}</b>: a run that was shared without its target.</p>"

    def of_samples(rows: Sequence[int]) -> dict[int, str]:
        wanted: list[Picture] = [("target", row) for row in rows]
        pictures = read_thumbnails(run.pictures, wanted, _SIDE, _MOST_BYTES)
        return {row: _sample(run, row, pictures.get(("target", row))) for row in rows}

    return model_html(run.model, title, of_samples, run.noun)


def _sample(run: Run, row: int, picture: bytes | None) -> str:
    name = visible(run.predictions.names[row])
    if picture is not None:
        uri = f"data:image/jpeg;base64,{base64.b64encode(picture).decode('ascii')}"
        return f'<img src="{uri}" alt="{escape(name)}" title="{escape(name)}" style="height: 64px; margin: 1px">'
    if run.texts is not None:
        return _words(run.texts.short("target", row, _LONGEST_TEXT))
    return _words(name if len(name) <= _LONGEST_NAME else f"…{name[1 - _LONGEST_NAME :]}")


def _words(text: str) -> str:
    return f"<bdi>{escape(visible(text))}</bdi>"


def rows_as_numbers(rows: Sequence[int]) -> dict[int, str]:
    """Return what is shown of samples that have neither a picture nor a name: their rows in the target."""
    return {row: f"row {row}" for row in rows}


def model_html(model: AdaptedModel, title: str, of_samples: OfSamples, noun: str = "sample") -> str:
    """Return the result of a fit as HTML, without scripts.

    Args:
        model: the model, with a target.
        title: what it is called, text.
        of_samples: HTML of some target samples, by their rows.
        noun: what a sample is called, in the singular.
    """
    known, n_target = model.target.known, len(model.target)
    sizes = np.bincount(model.target.nearest[known], minlength=len(model.classes))
    classes = [index for index in np.argsort(-sizes, kind="stable").tolist() if sizes[index]]
    numbers, counts = np.unique(model.target.group[~known & (model.target.group >= 0)], return_counts=True)
    groups = numbers[np.argsort(-counts, kind="stable")].tolist()
    found = [
        (model.class_names[index], known & (model.target.nearest == index), model.target.confidence)
        for index in classes[:_MOST_CLASSES]
    ] + [
        (
            as_utf8(model.group_names.get(index, f"Group {index}")),
            ~known & (model.target.group == index),
            model.target.group_confidence,
        )
        for index in groups[:_MOST_GROUPS]
    ]
    shown = [(name, int(own.sum()), _most_typical(own, confidence)) for name, own, confidence in found]
    cells = of_samples([row for *_, rows in shown for row in rows])
    n_known = int(known.sum())
    interval, low, high = model.shown_share_interval, *model.groups.number.interval
    plausible = "" if interval is None else f", {100 * interval[0]:.0f} to {100 * interval[1]:.0f} % are plausible"
    share = f" ({100 * (1 - n_known / n_target):.0f} %{plausible})"
    among = f" in {counted(len(groups), 'group')}" if groups else ""
    possible = f" ({low} to {high} are plausible)" if groups and low < high else ""
    lines = [
        f"<p><b>{escape(title)}</b> · {escape(method_info(model.settings.method).title)} · "
        f"{counted(n_target, noun)}: <b>{n_known:,} known</b> in {len(classes):,} of "
        f"{counted(len(model.classes), 'class', 'classes')}, <b>{n_target - n_known:,} unknown</b>{share}{among}"
        f"{possible}. {escape(model.reliability_of_decision.sentence)}</p>",
        *(f"<p>Warning: {escape(words)}</p>" for words in model.reliability_of_decision.warnings),
    ]
    if shown:
        rows = "".join(
            f'<tr><td style="{_CELL}">{_words(name)}</td><td style="{_CELL}">{count:,}</td>'
            f'<td style="{_CELL}">{" ".join(cells[row] for row in own)}</td></tr>'
            for name, count, own in shown
        )
        head = "".join(f'<th style="{_CELL}">{word}</th>' for word in ("class or group", plural(2, noun), "exemplars"))
        lines.append(f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>")
    n_more = len(classes) + len(groups) - len(shown)
    if n_more > 0:
        lines.append(f"<p>… and {n_more:,} smaller {plural(n_more, 'class or group', 'classes and groups')}.</p>")
    return f'<div class="uniot">{"".join(lines)}</div>'


def _most_typical(own: np.ndarray, confidence: np.ndarray) -> list[int]:
    rows = np.flatnonzero(own)
    return [int(row) for row in rows[np.argsort(-confidence[rows], kind="stable")[:_EXEMPLARS]]]
