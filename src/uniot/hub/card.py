"""The README.md of a shared run: what it is, how it is used, what it cannot do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from uniot import __version__
from uniot.data.text import as_utf8
from uniot.evaluation import SCORE_MEANINGS
from uniot.methods import method_info
from uniot.model import AdaptedModel
from uniot.universal import LEAST_SAMPLES
from uniot.words import counted

_TAGS = ("uniot", "domain-adaptation", "universal-domain-adaptation", "optimal-transport")
_OF_TRAINING = ("steps", "batch_size", "feature_size", "epsilon", "marginal_penalty")
_LIMITS = """\
- Every sample is judged on its own, by a rule that was found on one target. For a collection from yet another place,
  adapt anew.
- Unknown means unlike the classes above as they looked in that target. A sample of one of them that looks otherwise may
  be called unknown, and something new that resembles one may be called known.
- The groups of unknown samples are numbers without names, found by clustering.
- The confidence is the probability of the answer, of its class or of being unknown, as it was estimated without labels
  on that target. On another collection it may be too high.
- No sample of either collection is in these files, nor an answer for one. Means over the target are: its middle, the
  class mass and the cluster prototypes, as far as the method has them, the prototypes of classes that people named in
  the target, and the centres of the groups. The mean of a single sample is that sample's feature."""
_LANDMARKS = f"""\
- The run itself compares a sample with its neighbours in the target, which is not shared. Shared in its place are
  averages of at least {LEAST_SAMPLES} target samples each, and a linear map fitted to all of them; no single sample.
  Some new samples get another answer than from the run itself: on average about one in twenty, and one in ten or
  more if the target had only a hundred samples."""


def model_card(
    model: AdaptedModel, repository: str | None, licence: str | None = None, scores: Mapping[str, float] | None = None
) -> str:
    """Markdown with a header that the hub reads.

    Args:
        model: what is shared.
        repository: `owner/name`; None where it is shared in a folder, whose path is nobody's business.
        licence: as the hub abbreviates it.
        scores: by their names in `SCORE_MEANINGS`; shares of one.
    """
    title = "A run of uniot" if repository is None else repository.rpartition("/")[2]
    parts = [
        _header(model, licence),
        f"# {title}",
        f"Gives {_kind(model)} one of {len(model.classes)} labels, or calls them {json.dumps(model.unknown)} and puts "
        f"them into {counted(model.groups.n_groups, 'group')}. {method_info(model.settings.method).title} adapted it "
        "from a labelled collection to an unlabelled one from elsewhere, of which nobody knew which of the classes it "
        "held and what else: universal domain adaptation.",
        "## Use",
        _install(model),
        _commands(model, repository),
        _inputs(model),
        "## Classes",
        _as_it_is("\n".join(" ".join(str(name).split()) for name in model.classes.tolist())),
        "## Settings",
        _table(("setting", "value"), _settings(model).items()),
        "All of them are in `settings.toml`.",
    ]
    if scores:
        rows = [(name, f"{100 * value:.1f}", SCORE_MEANINGS[name]) for name, value in scores.items()]
        parts += ["## Scores", f"On the target that the run was made for{_of_whom(model)}; in percent."]
        parts += [_table(("score", "value", "meaning"), rows)]
    limits = [_LIMITS, _LANDMARKS] if {"target", "landmark_keys"} & set(model.method.rule_state()[0]) else [_LIMITS]
    parts += ["## Limits", "\n".join(limits), f"Made with uniot {__version__}."]
    return as_utf8("\n\n".join(parts)) + "\n"


def _of_whom(model: AdaptedModel) -> str:
    keeps = "target" in model.method.rule_state()[0]
    return ", by the run itself, which compares samples with that target; without it they differ" if keeps else ""


def _header(model: AdaptedModel, licence: str | None) -> str:
    lines = ["---", "library_name: uniot"]
    lines += [f"license: {licence}"] if licence else []
    lines += ["pipeline_tag: image-classification"] if model.reader is not None else []
    return "\n".join([*lines, "tags:", *(f"- {tag}" for tag in _TAGS), "---"])


def _kind(model: AdaptedModel) -> str:
    if model.reader is not None:
        return "images"
    return "embeddings" if model.settings.network == "none" else "small grey images"


def _install(model: AdaptedModel) -> str:
    extras = "the extras `hub` and `images`" if model.reader is not None else "the extra `hub`"
    return f"Install uniot with {extras}, as its README says."


def _commands(model: AdaptedModel, repository: str | None) -> str:
    new = "photos/" if model.reader is not None else "new.npz"
    lines = [f"uniot pull {repository or 'path/of/this/folder'} --out run/", f"uniot predict run/ {new}"]
    return "\n".join(["```console", *(f"$ {line}" for line in lines), "```"])


def _inputs(model: AdaptedModel) -> str:
    if model.reader is not None:
        preparation = model.reader.preparation
        return f"Images of any size; the network sees {preparation.crop} × {preparation.crop} pixels of them."
    shape = " × ".join(map(str, model.input_shape))
    if model.settings.network == "none":
        return f"Embeddings have {shape} numbers, and must be made by the network that made those of the run."
    return f"Images have {shape} pixels, grey, with values from 0 to 1."


def _settings(model: AdaptedModel) -> dict[str, object]:
    shown: dict[str, object] = {}
    if model.reader is not None:
        shown = {name: getattr(model.reader.settings, name) for name in ("backbone", "flip", "fine_tune")}
    elif model.settings.network != "none":
        shown = {"network": model.settings.network}
    names = ("method", *(_OF_TRAINING if model.settings.steps else ()), "seed")
    return shown | {name: getattr(model.settings, name) for name in names}


def _table(header: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def _as_it_is(text: str) -> str:
    """A block that shows its text, whatever a class may be called."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"
