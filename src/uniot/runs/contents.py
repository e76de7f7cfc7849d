"""What a run folder contains, in words for people."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from uniot.io.text import size_of
from uniot.runs.files import RunFiles

if TYPE_CHECKING:
    from torch import Tensor

    from uniot.methods.fitted import StoredTarget
    from uniot.training.model import AdaptedModel


_WIDTH, _INDENT = 100, 22


def contents_text(model: AdaptedModel, features: Mapping[str, Tensor]) -> str:
    """Return a text that lists the files of a run and the samples that each contains, for those who share the folder.

    Args:
        model: the model that is saved.
        features: tensors for the report and the labelling page.
    """
    n_target, rows = len(model.target), model.source.rows
    labelled = "class means of the source model" if len(rows) and (rows < 0).all() else "labelled ones"
    state, stored = model.method.state_dict(), model.method.stored_target()
    kept = _of_samples(stored, trained=bool(model.history.rows))
    files = RunFiles(Path())
    parts = [
        (files.predictions, "the prediction for each target sample, by its name"),
        (files.settings, "every setting, and where the collections were"),
        (files.model, f"{_size(state)} of weights and of the rule; {kept}"),
        (
            files.features,
            f"{_size(features)}: adapted features, in half precision, of {n_target} target samples and {len(rows)} "
            f"{labelled}, for the report and the labelling page",
        ),
    ]
    if model.history.rows:
        parts.append((files.history, "losses per step"))
    if model.reader is not None:
        parts += [(files.backbone, "the network that reads images"), (files.image_paths, "where the images were")]
    lines = [f"A run of {model.settings.method}: {len(model.classes)} classes, {n_target} target samples.", ""]
    for path, what in parts:
        lines += textwrap.wrap(
            what,
            _WIDTH,
            initial_indent=f"{path.name:{_INDENT}}",
            subsequent_indent=" " * _INDENT,
            break_on_hyphens=False,  # of a broken option, only half would be copied
        )
    lines += [
        "",
        "These files contain no image, and no embedding as it was given. `uniot push` shares a run without samples.",
    ]
    return "\n".join(lines) + "\n"


def judged_by(model: AdaptedModel) -> str:
    """Return a sentence on what new samples will be compared with."""
    stored = model.method.stored_target()
    if stored.n_samples:
        return (
            f"New samples will be compared with these {stored.n_samples}, which the run keeps for that "
            f"({size_of(stored.n_bytes)}; --forget-target leaves them out)."
        )
    if stored.n_means:
        return (
            f"New samples will be compared with {_means(stored)}; no single sample is kept (--forget-target). "
            "Some get another answer than with the target, about one in twenty, and more if the target is small."
        )
    return "New samples will be judged each by itself, by the same rule."


def _of_samples(stored: StoredTarget, *, trained: bool) -> str:
    averages = f"{_means(stored)}, and a linear map fitted to all of them" if stored.n_means else ""
    if not stored.n_samples and trained:
        kept = "what the method kept of the target for its training, such as a queue of features, is among the weights"
        return f"{averages}; {kept}" if averages else kept
    if not stored.n_samples:
        return f"no single sample is in it, but {averages}" if averages else "no sample is in it"
    return (
        f"{size_of(stored.n_bytes)} of that is {stored.n_samples} target samples, {stored.n_features} "
        f"numbers each in half precision, and which {stored.n_neighbours} are nearest to each; --forget-target "
        f"(store_target=False in Python) leaves them out and keeps {averages or 'none'}"
    )


def _means(stored: StoredTarget) -> str:
    return f"{stored.n_means} averages of at least {stored.least_averaged} target samples each"


def _size(tensors: Mapping[str, Tensor]) -> str:
    return size_of(sum(tensor.nbytes for tensor in tensors.values()))
