"""The schemas that `uniot schema` prints describe what commands write."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from uniot.datasets import make_toy_domains
from uniot.io.csv_tables import write_table
from uniot.runs import Run
from uniot.runs.files import LABEL_COLUMNS
from uniot.runs.group_descriptions import GroupDescription, GroupDescriptions
from uniot.runs.schemas import run_schemas

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def content(path: Path) -> Any:
    if path.suffix == ".json":
        return json.loads(path.read_text(encoding="utf-8"))
    if path.suffix == ".toml":
        return tomllib.loads(path.read_text(encoding="utf-8"))
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def problems(path: Path, value: Any = None) -> list[str]:
    validator = jsonschema.Draft202012Validator(run_schemas()[path.name])
    return [error.message for error in validator.iter_errors(content(path) if value is None else value)]


@pytest.fixture(scope="module")
def run(uniot: Callable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with every file that a table of embeddings leads to."""
    folder, toy = tmp_path_factory.mktemp("schemas"), make_toy_domains(seed=1)
    columns = [f"d{place}" for place in range(toy.x_source.shape[1])]
    x_source, y_source = toy.x_source.copy(), toy.y_source.copy()
    y_source[0] = y_source[-1]
    x_source[1] = x_source[2]
    rows = [[*row, label, "text"] for row, label in zip(x_source.tolist(), y_source.tolist(), strict=True)]
    write_table(folder / "source.csv", [*columns, "label", "note"], rows)
    write_table(folder / "target.csv", [*columns, "note"], [[*row, "a note"] for row in toy.x_target.tolist()])
    np.save(folder / "truth.npy", toy.oracle_y_target)
    place = folder / "run"
    command = ("adapt", folder / "source.csv", folder / "target.csv", "--show", "note", "--out", place, "--method")
    done = uniot(*command, "uniot", "--steps", "30", "--target-labels", folder / "truth.npy")
    assert done.code == 0, done.stderr
    with Run.writer(place) as writer:
        writer.write_descriptions(GroupDescriptions("typical words", (GroupDescription(("a",), ("b",)),)))
        writer.write_labels([("0", "new", "named", 0), ("1", "", "discarded", "")])
    return place


def test_schemas_are_valid_and_say_what_they_describe():
    schemas = run_schemas()
    for name, schema in schemas.items():
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["title"] == name
        assert schema["description"]
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_files_of_a_run_are_as_their_schemas_say(run: Path):
    found = {path.name for path in run.iterdir()} & set(run_schemas())
    written = {"settings.toml", "predictions.csv", "metrics.json", "history.csv", "shown.json", "descriptions.json"}
    assert found >= written | {"labels.csv", "near_duplicates.csv"}
    for name in sorted(found):
        assert problems(run / name) == [], name


def test_every_json_and_csv_file_that_a_run_writes_has_a_schema(run: Path):
    kinds = (".json", ".csv", ".toml")
    assert {path.name for path in Run.open(run).files.written_by_run() if path.suffix in kinds} <= set(run_schemas())


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("predictions.csv", lambda rows: rows[0].update(confidence="1.5"), "does not match"),
        ("predictions.csv", lambda rows: rows[0].update(known="maybe"), "is not one of"),
        ("predictions.csv", lambda rows: rows[0].pop("label"), "'label' is a required property"),
        ("metrics.json", lambda scores: scores.update(h_score=64.2), "greater than the maximum"),
        ("settings.toml", lambda values: values.update(seed="three"), "is not of type"),
        ("shown.json", lambda shown: shown.update(kind="page"), "is not one of"),
        ("descriptions.json", lambda found: found["groups"][0].update(suggestions=list("abcdef")), "too long"),
    ],
)
def test_schema_refuses_what_a_run_does_not_write(run: Path, name: str, change: Callable, words: str):
    changed = content(run / name)
    change(changed)
    found = problems(run / name, changed)
    assert len(found) == 1
    assert words in found[0]


def test_labels_have_the_columns_of_their_schema(tmp_path: Path):
    items = run_schemas()["labels.csv"]["items"]
    assert tuple(items["properties"]) == LABEL_COLUMNS


def test_command_prints_one_schema_or_all(uniot: Callable):
    assert json.loads(uniot("schema", "predictions.csv").stdout) == run_schemas()["predictions.csv"]
    assert json.loads(uniot("schema").stdout)["$defs"] == run_schemas()
    refused = uniot("schema", "model.safetensors")
    assert refused.code == 1
    assert "there is no schema of 'model.safetensors'. Give one of settings.toml, predictions.csv" in refused.stderr
