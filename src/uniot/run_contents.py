"""What the files of a run hold of whose data, and how much: for whoever keeps a run folder or gives it away."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import cast

from torch import Tensor, nn

from uniot.model import AdaptedModel
from uniot.universal import LEAST_SAMPLES

_WIDTH, _INDENT = 100, 22


def contents_text(model: AdaptedModel, rule: Mapping[str, Tensor], features: Mapping[str, Tensor]) -> str:
    """A text of some lines.

    Args:
        model: what is saved.
        rule: tensors that its method decides with.
        features: tensors that the report and the labelling page look at.
    """
    n_target, n_source = len(model.target), len(model.source.rows)
    weights = cast(nn.Module, model.method).state_dict()
    parts = [
        ("predictions.csv", "the answer for each target sample, under its name"),
        ("settings.toml", "every setting, and where the collections lay"),
        ("model.safetensors", f"{_size(weights)} of weights, {_size(rule)} for the rule; {_of_samples(rule, weights)}"),
        (
            "features.safetensors",
            f"{_size(features)}: adapted features, in half precision, of {n_target} target samples and {n_source} "
            "labelled ones, for the report and the labelling page; `uniot predict` does not look at them",
        ),
    ]
    if model.history.rows:
        parts.append(("history.csv", "losses step by step"))
    if model.reader is not None:
        parts += [("backbone.safetensors", "the network that reads images"), ("images.json", "where the images lay")]
    lines = [f"A run of {model.settings.method}: {len(model.classes)} classes, {n_target} target samples.", ""]
    for name, what in parts:
        lines += textwrap.wrap(what, _WIDTH, initial_indent=f"{name:{_INDENT}}", subsequent_indent=" " * _INDENT)
    lines += [
        "",
        "No image and no embedding as it was given is in the files above. `uniot push` shares a run without samples.",
    ]
    return "\n".join(lines) + "\n"


def judged_by(model: AdaptedModel) -> str:
    """In a sentence, what new samples will be compared with."""
    rule = model.method.rule_state()[0]
    if "target" in rule:
        return (
            f"New samples will be compared with these {len(rule['target'])}, which the run keeps for that "
            f"({_size(_samples_in(rule))}; --forget-target leaves them out)."
        )
    if "landmark_keys" in rule:
        return (
            f"New samples will be compared with {_landmarks(rule)}; no single sample is kept (--forget-target). "
            "Some get another answer than with the target, about one in twenty, and more if the target is small."
        )
    return "New samples will be judged each by itself, by the same rule."


def preference_line(model: AdaptedModel) -> str | None:
    """Return in a sentence which preference was applied, and what it changed on the fitted target; None without one."""
    settings = model.settings
    if settings.private_prior is not None:
        given = f"private prior {settings.private_prior:g}"
    elif settings.prefer is not None:
        given = f"prefer {settings.prefer}"
    else:
        return None
    if not len(model.target):
        return f"Preference applied: {given}."
    unknown = 100 * float((~model.target.known).mean())
    return (
        f"Preference applied: {given}. It calls {unknown:.1f} % of the fitted target unknown; the rule alone calls "
        f"{100 * model.private_prior:.1f} % unknown."
    )


def _of_samples(rule: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> str:
    averages = f"{_landmarks(rule)}, and a linear map fitted to all of them" if "landmark_keys" in rule else ""
    if "target" not in rule and weights:
        kept = "what the method kept of the target for its training, such as a queue of features, is among the weights"
        return f"{averages}; {kept}" if averages else kept
    if "target" not in rule:
        return f"no single sample is in it, but {averages}" if averages else "no sample is in it"
    target, nearest = rule["target"], rule["neighbourhoods"]
    return (
        f"{_size(_samples_in(rule))} of that is {len(target)} target samples, {target.shape[1]} "
        f"numbers each in half precision, and which {nearest.shape[1]} are nearest to each; store_target = false "
        f"leaves them out and keeps {averages or 'none'}"
    )


def _landmarks(rule: Mapping[str, Tensor]) -> str:
    return f"{len(rule['landmark_keys'])} averages of at least {LEAST_SAMPLES} target samples each"


def _samples_in(rule: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: rule[name] for name in ("target", "neighbourhoods")}


def _size(tensors: Mapping[str, Tensor]) -> str:
    n_bytes = float(sum(tensor.nbytes for tensor in tensors.values()))
    for unit in ("bytes", "kB", "MB"):
        if n_bytes < 1000:
            return f"{n_bytes:.0f} {unit}" if unit == "bytes" else f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} GB"
