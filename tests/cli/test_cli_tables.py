"""Tables on the command line: embeddings in .csv and .tsv files, columns by name, and what is wrong with them."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from uniot.datasets import ToyDomains, make_toy_domains
from uniot.io.predictions import read_predictions
from uniot.io.text import read_inputs

TOY = make_toy_domains(seed=1)
COLUMNS = [f"d{place}" for place in range(TOY.x_source.shape[1])]


def source(toy: ToyDomains = TOY) -> pd.DataFrame:
    return pd.DataFrame(toy.x_source, columns=COLUMNS).assign(species=toy.y_source)


def target(toy: ToyDomains = TOY) -> pd.DataFrame:
    """Its columns are in another order."""
    frame = pd.DataFrame(toy.x_target, columns=COLUMNS)[COLUMNS[::-1]]
    numbers = range(len(frame))
    return frame.assign(name=[f"n{i}" for i in numbers], page=[f"https://example.org/{i}" for i in numbers])


def write(frame: pd.DataFrame, path: Path) -> Path:
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")
    return path


@pytest.fixture(scope="module")
def expected(uniot: Callable, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Labels of the run of the same numbers as arrays."""
    folder = tmp_path_factory.mktemp("arrays")
    np.savez(folder / "s.npz", x=TOY.x_source.astype(float), y=TOY.y_source)
    np.savez(folder / "t.npz", x=TOY.x_target.astype(float))
    done = uniot("adapt", folder / "s.npz", folder / "t.npz", "--out", folder / "run")
    assert done.code == 0, done.stderr
    return read_predictions(folder / "run" / "predictions.csv").labels.tolist()


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_tables_give_the_run_of_the_same_numbers(uniot: Callable, tmp_path: Path, suffix: str, expected: list[str]):
    places = write(source(), tmp_path / f"s{suffix}"), write(target(), tmp_path / f"t{suffix}")
    run = tmp_path / "run"
    done = uniot("adapt", *places, "--label", "species", "--ids", "name", "--show", "page", "--out", run)
    assert done.code == 0, done.stderr
    assert f"Labelled: {len(TOY.x_source)} embeddings of 5 classes" in done.stdout
    assert "image" not in done.stdout.replace("images", "image").partition("Next:")[0]
    found = read_predictions(run / "predictions.csv")
    assert found.names == [f"n{row}" for row in range(len(TOY.x_target))]
    assert found.labels.tolist() == expected
    assert json.loads((run / "shown.json").read_text())["kind"] == "link"
    chosen = read_inputs(run / "settings.toml")
    assert {name: chosen[name] for name in ("label", "ids", "show")} == {
        "label": "species",
        "ids": "name",
        "show": "page",
    }

    # What the run knows need not be repeated.
    again = uniot("predict", run, places[1], "--out", tmp_path / "new.csv")
    assert again.code == 0, again.stderr
    assert read_predictions(tmp_path / "new.csv").labels.tolist() == expected
    truth = pd.DataFrame({"name": found.names, "species": TOY.oracle_y_target})[::-1]
    assert uniot("evaluate", run, "--labels", write(truth, tmp_path / "truth.csv")).code == 0
    labels = [("n0", "newt", "named", ""), ("n1", "newt", "named", ""), ("n2", "common-0", "class", "")]
    with (run / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("path", "label", "decision", "group"), *labels])
    continued = uniot("adapt", "--continue", run, "--out", tmp_path / "next")
    assert continued.code == 0, continued.stderr
    assert f"Labelled: {len(TOY.x_source) + 3} embeddings of 6 classes" in continued.stdout


def test_columns_that_only_one_table_has_are_left_out_or_named(uniot: Callable, tmp_path: Path):
    first = write(source(), tmp_path / "s.csv")
    more = write(target().assign(age=1.5), tmp_path / "more.csv")
    done = uniot("adapt", first, more, "--label", "species", "--out", tmp_path / "run")
    assert done.code == 0, done.stderr
    assert f"The column of {more} that {first} lacks is left out: age." in done.stdout
    assert f"Columns of {more} that are no numbers and are left out: name, page." in done.stdout
    less = write(target().drop(columns=COLUMNS[:20]), tmp_path / "less.csv")
    for command in (
        ("adapt", first, less, "--label", "species", "--out", tmp_path / "x"),
        ("predict", tmp_path / "run", less),
    ):
        refused = uniot(*command)
        assert refused.code == 1
        assert "lacks 20 columns of numbers that" in refused.stderr
        assert "d0, d1, d2, d3, d4, d5, d6, d7, d8, d9, d10, d11 and 8 more" in refused.stderr
    other = write(pd.DataFrame(TOY.x_target).add_prefix("e"), tmp_path / "other.csv")
    refused = uniot("adapt", first, other, "--label", "species", "--out", tmp_path / "x")
    assert "have no column of numbers in common: e0, e1, e2 and 29 more; and d0, d1, d2 and 29 more" in refused.stderr
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        (lambda s: s, (), "has no column called label, class or y. Name the column of the labels: --label COLUMN"),
        (lambda s: s, ("--label", "kind"), "has no column 'kind' for the labels (--label); it has d0, d1, d10,"),
        (lambda s: s, ("--label", "species", "--ids", "key"), "t.csv has no column 'key' for the names of the samples"),
        (lambda s: s, ("--label", "species", "--show", "key"), "t.csv has no column 'key' for what a person sees"),
        (lambda s: s.assign(species=[None, *s.species[1:]]), ("--label", "species"), "has no label in 1 of 150 rows"),
        (lambda s: s.assign(d3=[*s.d3[:-1], None]), ("--label", "species"), "is empty in line 151, column 'd3'"),
        (lambda s: s.assign(d3=[*s.d3[:-1], np.inf]), ("--label", "species"), "holds inf in row 149, column 3"),
        (lambda s: s.rename(columns={"d3": "d4"}), ("--label", "species"), "has two columns of the same name: d4"),
        (lambda s: s[["species"]], ("--label", "species"), "line 1 of"),
    ],
)
def test_what_is_wrong_with_a_table_is_one_sentence(
    uniot: Callable, tmp_path: Path, change: Callable, options: tuple[str, ...], words: str
):
    places = write(change(source()), tmp_path / "s.csv"), write(target(), tmp_path / "t.csv")
    refused = uniot("adapt", *places, *options, "--out", tmp_path / "run")
    assert refused.code == 1
    assert words in refused.stderr
    assert len(refused.stderr) < 900
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a,label\n1.5,café\n".encode("latin-1"), "(line 2 has the byte 0xe9, as in Windows-1252 or Latin-1)"),
        ("a,label\n1.5,x\n".encode("utf-16"), "is not UTF-8 text"),
        (b"a,label\n1.5,x\n" + "2.5,é\n".encode() + "2.5,é\n".encode("latin-1"), "(line 4 has the byte 0xe9"),
        (b"a;label\n1,5;x\n", "is separated by semicolons"),
        (b'a,label\n1.5,"x\n', "has only one class"),
        (b"a,label\n1.5,x,y\n", "has 3 cells in line 2 and 2 columns. Give one cell per column."),
        (b"a,label\n1.5,x\0y\n", "it holds a NUL byte"),
    ],
)
def test_file_that_is_no_table_is_one_sentence(uniot: Callable, tmp_path: Path, content: bytes, words: str):
    (tmp_path / "s.csv").write_bytes(content)
    write(target(), tmp_path / "t.csv")
    refused = uniot("adapt", tmp_path / "s.csv", tmp_path / "t.csv", "--out", tmp_path / "run")
    assert refused.code == 1
    assert words in refused.stderr
    assert len(refused.stderr.splitlines()[-1]) < 500
    assert not (tmp_path / "run").exists()


def test_table_of_images_and_numbers_is_ambiguous_until_a_column_is_named(uniot: Callable, tmp_path: Path):
    names = {"path": [f"{row}.jpg" for row in range(len(TOY.x_source))]}
    first = write(source().assign(**names), tmp_path / "s.csv")
    second = write(target().assign(path=[f"t{row}.jpg" for row in range(len(TOY.x_target))]), tmp_path / "t.csv")
    refused = uniot("adapt", first, second, "--label", "species", "--out", tmp_path / "run")
    assert f"{first} has both images, in the column path, and 32 columns of numbers that may be" in refused.stderr
    assert "Give --show path to read the numbers" in refused.stderr
    done = uniot("adapt", first, second, "--label", "species", "--show", "path", "--out", tmp_path / "run")
    assert done.code == 0, done.stderr
    # None of the images is there, so that their paths are shown.
    assert json.loads((tmp_path / "run" / "shown.json").read_text())["target"][0] == "t0.jpg"


def test_images_of_embeddings_are_shown(uniot: Callable, tmp_path: Path):
    (tmp_path / "t0.jpg").write_bytes(b"a picture")
    first = write(source(), tmp_path / "s.csv")
    second = write(target().assign(photo=[f"t{row}.jpg" for row in range(len(TOY.x_target))]), tmp_path / "t.csv")
    done = uniot("adapt", first, second, "--label", "species", "--show", "photo", "--out", tmp_path / "run")
    assert done.code == 0, done.stderr
    shown = json.loads((tmp_path / "run" / "images.json").read_text())
    assert shown["target"][0] == str((tmp_path / "t0.jpg").resolve())
    assert not (tmp_path / "run" / "shown.json").exists()


def test_lists_of_numbers_in_cells_are_embeddings(uniot: Callable, tmp_path: Path, expected: list[str]):
    first = pd.DataFrame({"embedding": TOY.x_source.astype(float).tolist(), "label": TOY.y_source, "note": "some text"})
    second = pd.DataFrame({"text": "said", "embedding": TOY.x_target.astype(float).tolist()})
    places = write(first, tmp_path / "s.csv"), write(second, tmp_path / "t.csv")
    done = uniot("adapt", *places, "--show", "text", "--out", tmp_path / "run")
    assert done.code == 0, done.stderr
    assert read_predictions(tmp_path / "run" / "predictions.csv").labels.tolist() == expected


def test_columns_of_a_folder_of_images_are_refused(uniot: Callable, tmp_path: Path):
    for place in ("s/a/1.jpg", "s/b/2.jpg", "t/3.jpg"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_bytes(b"")
    refused = uniot("adapt", tmp_path / "s", tmp_path / "t", "--label", "kind", "--out", tmp_path / "run")
    assert f"--label names a column of a table, and {tmp_path / 's'} is a folder of images." in refused.stderr


def test_source_model_of_a_table_puts_columns_in_its_order(uniot: Callable, tmp_path: Path):
    first, second = write(source(), tmp_path / "s.csv"), write(target(), tmp_path / "t.csv")
    model = tmp_path / "model.safetensors"
    trained = uniot("train-source", first, "--label", "species", "--steps", "20", "--out", model)
    assert trained.code == 0, trained.stderr
    labels = []
    for table in (second, write(target()[COLUMNS], tmp_path / "ordered.csv")):
        run = tmp_path / table.stem
        done = uniot("adapt", "--source-model", model, table, "--steps", "20", "--out", run)
        assert done.code == 0, done.stderr
        labels.append(read_predictions(run / "predictions.csv").labels.tolist())
    assert labels[0] == labels[1]


@pytest.mark.slow
def test_hostile_tables_take_bounded_memory(tmp_path: Path):
    """A cell of a hundred megabytes, a hundred thousand columns, and quotation marks without end."""
    long = tmp_path / "long.csv"
    long.write_text("d0,d1,label,note\n1.5,2,a," + "x" * 100_000_000 + "\n2.5,3,b,y\n")
    wide = tmp_path / "wide.csv"
    names = [f"column {place}" for place in range(100_000)]
    wide.write_text(",".join([*names, "label"]) + "\n" + "1.5," * 100_000 + "a\n" + "2.5," * 99_999 + "x,b\n")
    quoted = tmp_path / "quoted.csv"
    quoted.write_text('d0,label\n1.5,"' + "a\n" * 30_000_000)
    code = (
        "import pathlib, resource, sys; from uniot.io.embedding_files import read_embeddings\n"
        "from uniot.errors import DataError\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n    read_embeddings(pathlib.Path(sys.argv[1]))\n"
        "except DataError as error:\n    print(len(str(error)))\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    for path in (long, wide, quoted):
        done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
        length, kilobytes = map(int, done.stdout.split())
        assert length < 600, path
        assert kilobytes < 400_000, path
