"""JSON schemas of the files of a run folder, for programs that read them.

A JSON or TOML file is described as it is. A CSV file is described as the list of its rows, each an object from column
to cell, as `csv.DictReader` returns them: cells are text, and an empty cell is an empty text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from uniot.config import ImageSettings, Settings
from uniot.io.predictions import COLUMNS
from uniot.metrics.evaluate import SCORE_MEANINGS, Evaluation
from uniot.runs.files import LABEL_COLUMNS, SOURCE_LABEL_COLUMNS, TRUE_LABEL_COLUMNS

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_TEXT: dict[str, Any] = {"type": "string"}
_TEXTS: dict[str, Any] = {"type": "array", "items": _TEXT}
_FRACTION = {"type": ["number", "null"], "minimum": 0, "maximum": 1}
# As text, in a table.
_FRACTION_CELL = {"type": "string", "pattern": r"^0(\.[0-9]+)?$|^1(\.0+)?$|^[1-9](\.[0-9]+)?e-[0-9]+$"}
_NUMBER_CELL = {"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$|^-?(inf|nan)$|^$"}
_WHOLE_CELL = {"type": "string", "pattern": "^[0-9]+$"}
_FLAG_CELL = {"enum": ["true", "false"]}


def run_schemas() -> dict[str, dict[str, Any]]:
    """Return a JSON schema (draft 2020-12) for each file of a run folder that other programs may read, by its name."""
    schemas = {
        "settings.toml": _settings(),
        "predictions.csv": _table(
            "One row per target sample, in the order of the target.",
            COLUMNS,
            label=_described(_TEXT, "A source class, the name of a group, or the unknown label."),
            known=_FLAG_CELL,
            confidence=_described(_FRACTION_CELL, "Probability that the label is right."),
            group=_or_empty(_WHOLE_CELL, "Group of an unknown sample; empty for a known one."),
            group_confidence=_or_empty(_FRACTION_CELL, "How clearly an unknown sample belongs to its group."),
        ),
        "metrics.json": _metrics(),
        "history.csv": _history(),
        "names.csv": _labels("The labels by people that the run began with."),
        "labels.csv": _labels("The labels that people gave to samples of the run."),
        "source_labels.csv": _table(
            "What people said about labels of the source.",
            SOURCE_LABEL_COLUMNS,
            label=_described(_TEXT, "The label that the sample gets; empty if it is dropped."),
            decision={"enum": ["right", "changed", "dropped", ""]},
        ),
        "true_labels.csv": _table(
            "The true labels that the run was scored with, one row per target sample.", TRUE_LABEL_COLUMNS
        ),
        "skipped.csv": _table("Samples that could not be read.", ("path", "reason")),
        "duplicates.csv": _table("Files that are in both collections, byte for byte.", ("source", "target")),
        "suspect_labels.csv": _table(
            "Source labels that are probably wrong.",
            ("sample", "row", "label", "suggested", "score", "clear"),
            row=_WHOLE_CELL,
            score=_FRACTION_CELL,
            clear=_FLAG_CELL,
        ),
        "near_duplicates.csv": _table(
            "Pairs of samples that are nearly identical.",
            ("where", "first", "first_row", "first_label", "second", "second_row", "second_label", "similarity"),
            first_row=_WHOLE_CELL,
            second_row=_WHOLE_CELL,
            similarity=_NUMBER_CELL,
        ),
        "images.json": _object(
            "Paths of the images of both collections; row by row, as in predictions.csv for the target.",
            {"source": _TEXTS, "target": _TEXTS},
        ),
        "shown.json": _object(
            "What a person sees of each sample of both collections; none of a source that shows nothing.",
            {"kind": {"enum": ["text", "link"]}, "source": _TEXTS, "target": _TEXTS},
        ),
        "descriptions.json": _object(
            "What describes each group of unknown samples, by its number.",
            {
                "kind": _described(_TEXT, "What the terms are, such as typical words or marker genes."),
                "groups": {
                    "type": "array",
                    "items": _object(
                        "A group.",
                        {
                            "terms": _described(_TEXTS, "The most typical first."),
                            "suggestions": _described(_TEXTS, "Names for the group, the best first.") | {"maxItems": 5},
                        },
                    ),
                },
            },
        ),
    }
    return {
        name: {"$schema": DIALECT, "$id": f"urn:uniot:run:{name}", "title": name, **schema}
        for name, schema in schemas.items()
    }


def _settings() -> dict[str, Any]:
    """Return the schema of the settings: those of a fit, and tables of images and inputs."""
    schema, images = (model.model_json_schema() for model in (Settings, ImageSettings))
    definitions = {**schema.pop("$defs", {}), **images.pop("$defs", {})}
    inputs = {
        "source": "Path of the labelled samples.",
        "target": "Path of the samples to label.",
        "source_model": "Path of the source model that was adapted.",
        "demo": "Name of the data of the demo.",
        "label": "Column of the labels.",
        "ids": "Column of the names of the samples.",
        "show": "Column of what a person sees.",
        "text": "Column of the texts.",
        "encoder": "Network that embedded the texts.",
    }
    tables = {
        "images": {**images, "description": "How images are read."},
        "inputs": {
            "type": "object",
            "description": "Where the data of the run came from.",
            "properties": {name: _described(_TEXT, words) for name, words in inputs.items()},
            "additionalProperties": _TEXT,
        },
    }
    schema["properties"] = {**schema["properties"], **tables}
    return {
        "description": "Every setting of the run; --settings takes the file.",
        **{key: value for key, value in schema.items() if key not in ("title", "description")},
        **({"$defs": definitions} if definitions else {}),
    }


def _metrics() -> dict[str, Any]:
    """Return the schema of the scores: those of an evaluation, and what `uniot evaluate` adds."""
    counts = {"type": "integer", "minimum": 0}
    special: dict[str, dict[str, Any]] = {
        "adjusted_rand": {"type": ["number", "null"], "minimum": -1, "maximum": 1},
        "n_private_true": {"type": ["integer", "null"], "minimum": 0},
        "n_groups": {"type": ["integer", "null"], "minimum": 0},
        "n_groups_error": {"type": ["integer", "null"]},
        "average": {"enum": ["class", "instance"]},
        "per_class_recall": {"type": "object", "additionalProperties": _FRACTION},
        "counts": {"type": "object", "additionalProperties": counts},
        "notes": _TEXTS,
    }
    scores = {
        part.name: _described(special.get(part.name, _FRACTION), SCORE_MEANINGS.get(part.name))
        for part in fields(Evaluation)
    }
    evaluation = _object("Scores of a run against true labels, from 0 to 1.", scores)
    more = {
        "confusion": _described({"type": "object"}, "How often each true class got each label."),
        "decisions": _described(_TEXT, "Digest of the predictions that were scored."),
        "n_left_out": _described(counts, "Samples that people labelled, which do not count."),
        "n_labelled_by_people": _described(counts, "Samples that people labelled before the run."),
        "without_labelled_by_people": {"anyOf": [{"type": "null"}, evaluation]},
    }
    return {**evaluation, "properties": {**scores, **more}}


def _labels(words: str) -> dict[str, Any]:
    decisions = ["named", "class", "unknown", "inferred", "discarded", ""]
    return _table(words, LABEL_COLUMNS, decision={"enum": decisions}, group={"type": "string"})


def _history() -> dict[str, Any]:
    row = {"type": "object", "required": ["step"], "additionalProperties": _NUMBER_CELL}
    return {"description": "Losses step by step, if something was trained.", "type": "array", "items": row}


def _table(words: str, columns: Iterable[str], **cells: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a table: texts, except for the cells that are described."""
    row = _object("A row of the table.", {name: cells.get(name, _TEXT) for name in columns})
    return {"description": words, "type": "array", "items": {**row, "additionalProperties": False}}


def _object(words: str, properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object that has all of these properties."""
    return {"description": words, "type": "object", "properties": properties, "required": list(properties)}


def _described(schema: dict[str, Any], words: str | None) -> dict[str, Any]:
    return schema if words is None else {**schema, "description": words}


def _or_empty(schema: dict[str, Any], words: str) -> dict[str, Any]:
    return {"anyOf": [schema, {"const": ""}], "description": words}
