"""Tables of answers, whole or not at all."""

from __future__ import annotations

import csv
import io
import itertools
import os
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from uniot.errors import DataError, RunFolderError
from uniot.io import predictions as answers
from uniot.io.predictions import COLUMNS, Prediction, PredictionWriter, read_predictions

CLASSES = np.array(["back pack", "cup, white"])
PREDICTION = Prediction(
    nearest=np.array([1, 0, 1, 0]),
    known=np.array([True, False, False, True]),
    known_score=np.array([0.8, 0.1, 0.4, 1.0]),
    confidence=np.array([0.75, 0.1234567, 0.4999999, 1.0]),
    group=np.array([-1, 3, -1, -1]),
    group_confidence=np.array([0, 0.25, 0, 0]),
)
NAMES = ["a.jpg", 'b "x".jpg', "ü/c.jpg", "d.jpg"]
TABLE = """\
path,label,known,confidence,nearest_class,group,group_confidence
a.jpg,"cup, white",true,0.750000,"cup, white",,
"b ""x"".jpg",unknown,false,0.123457,back pack,3,0.250000
ü/c.jpg,unknown,false,0.500000,"cup, white",,
d.jpg,back pack,true,1.000000,back pack,,
"""


def part(prediction: Prediction, rows: slice) -> Prediction:
    return prediction.rows(rows)


def many(n: int, n_classes: int = 2) -> Prediction:
    draw = np.random.default_rng(0)
    known = draw.random(n) < 0.5
    group = np.where(known, -1, draw.integers(-1, 5, n))
    return Prediction(draw.integers(0, n_classes, n), known, draw.random(n), draw.random(n), group, draw.random(n))


def write(path: Path, names=NAMES, prediction=PREDICTION, classes=CLASSES, unknown="unknown") -> Path:
    with PredictionWriter(path, classes, unknown) as writer:
        writer.write(names, prediction)
    return path


def text_of(names, prediction, classes=CLASSES, unknown="unknown") -> str:
    stream = io.StringIO()
    with PredictionWriter(stream, classes, unknown) as writer:
        writer.write(names, prediction)
    return stream.getvalue()


def others_than(path: Path) -> list[str]:
    return [other.name for other in path.parent.iterdir() if other != path]


# --- tables -----------------------------------------------------------------------------------------------


def test_every_answer_is_a_line(tmp_path):
    assert write(tmp_path / "predictions.csv").read_bytes() == TABLE.encode()


def test_stream_gets_the_same_lines_and_stays_open():
    stream = io.StringIO()
    with PredictionWriter(stream, CLASSES, "unknown") as writer:
        writer.write(NAMES, PREDICTION)
    assert stream.getvalue() == TABLE
    assert not stream.closed


def test_stream_without_answers_gets_the_header_and_an_error_before_the_first_leaves_it_untouched():
    stream = io.StringIO()
    with pytest.raises(ZeroDivisionError), PredictionWriter(stream, CLASSES, "unknown"):
        raise ZeroDivisionError
    assert stream.getvalue() == ""
    assert text_of([], Prediction.none()) == TABLE.splitlines(keepends=True)[0]


def test_integer_classes_are_written_as_numbers():
    lines = text_of(NAMES, PREDICTION, np.array([7, 12]), -1).splitlines()
    assert lines[1:3] == ["a.jpg,12,true,0.750000,12,,", '"b ""x"".jpg",-1,false,0.123457,7,3,0.250000']


def test_samples_without_names_are_numbered_from_block_to_block(tmp_path):
    with PredictionWriter(tmp_path / "a.csv", CLASSES, "unknown") as writer:
        writer.write(None, part(PREDICTION, slice(0, 3)))
        writer.write(None, part(PREDICTION, slice(3, 4)))
    assert read_predictions(tmp_path / "a.csv").names == ["0", "1", "2", "3"]


@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_table_without_answers_has_its_columns(tmp_path, kind):
    with PredictionWriter(tmp_path / f"a{kind}", CLASSES, "unknown"):
        pass
    read = read_predictions(tmp_path / f"a{kind}")
    assert read.names == []
    assert len(read.labels) == len(read.known) == len(read.groups) == 0


@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_how_answers_are_cut_into_blocks_does_not_matter(tmp_path, kind, monkeypatch):
    prediction, names = many(300), [f"{row}.jpg" for row in range(300)]
    whole = write(tmp_path / f"whole{kind}", names, prediction)
    monkeypatch.setattr(answers, "_BLOCK_ROWS", 7)
    monkeypatch.setattr(answers, "_GROUP_ROWS", 64)
    with PredictionWriter(tmp_path / f"blocks{kind}", CLASSES, "unknown") as writer:
        for start, stop in itertools.pairwise([0, 1, 1, 50, 299, 300]):
            writer.write(names[start:stop], part(prediction, slice(start, stop)))
    reads = [read_predictions(path) for path in (whole, tmp_path / f"blocks{kind}")]
    for name in ("names", "labels", "known", "confidence", "nearest_classes", "groups"):
        assert list(getattr(reads[0], name)) == list(getattr(reads[1], name))


def test_parquet_has_types(tmp_path):
    text, integers = pa.string(), pa.int64()
    for classes, unknown, of_class in ((CLASSES, "unknown", text), (np.array([7, 12]), -1, integers)):
        table = pq.read_table(write(tmp_path / "a.parquet", classes=classes, unknown=unknown))
        assert tuple(table.column_names) == COLUMNS
        assert table.schema.types == [text, of_class, pa.bool_(), pa.float32(), of_class, integers, pa.float32()]
    assert table.column("label").to_pylist() == [12, -1, -1, 7]
    assert table.column("group").to_pylist() == [None, 3, None, None]
    assert table.column("group_confidence").to_pylist() == [None, 0.25, None, None]


def test_small_blocks_do_not_make_small_parquet_groups(tmp_path):
    with PredictionWriter(tmp_path / "a.parquet", CLASSES, "unknown") as writer:
        for _ in range(50):
            writer.write(NAMES, PREDICTION)
    metadata = pq.ParquetFile(tmp_path / "a.parquet").metadata
    assert (metadata.num_rows, metadata.num_row_groups) == (200, 1)


def test_pandas_reads_both_kinds_alike(tmp_path):
    from_csv = pd.read_csv(write(tmp_path / "a.csv"))
    from_parquet = pd.read_parquet(write(tmp_path / "a.parquet"))
    assert from_csv["path"].tolist() == from_parquet["path"].tolist() == NAMES
    assert from_csv["known"].tolist() == from_parquet["known"].tolist() == PREDICTION.known.tolist()
    np.testing.assert_array_equal(from_csv["group"], from_parquet["group"])
    np.testing.assert_allclose(from_csv["confidence"], from_parquet["confidence"], atol=1e-6)


TEXT = st.text(st.characters(exclude_characters="\0"))


@given(
    rows=st.lists(st.tuples(TEXT, st.integers(0, 2), st.booleans(), st.integers(-1, 40)), max_size=6),
    classes=st.lists(TEXT, min_size=3, max_size=3),
)
@example(rows=[("a\rb", 0, True, -1), ("\r\n", 1, False, 2), ("\udcff", 2, True, 0)], classes=["\n", "\r", '"\ud800,'])
@example(rows=[("=1+1", 0, True, -1), ("\u2028\x1c\x85", 1, True, -1), (" a ", 2, False, -1)], classes=["", " ", "é"])
@settings(max_examples=40)
def test_any_name_and_any_class_come_back_from_both_kinds(tmp_path_factory, rows, classes):
    names, nearest, known, group = map(list, zip(*rows, strict=True)) if rows else ([], [], [], [])
    known = np.array(known, dtype=bool)
    confidence = np.linspace(0, 1, len(rows))
    group = np.where(known, -1, group)
    prediction = Prediction(np.array(nearest, dtype=int), known, confidence, confidence, group, confidence)
    # What UTF-8 cannot hold is written out; all else is left alone.
    plain = [name.encode("utf-8", "backslashreplace").decode() for name in names]
    plain_classes = [name.encode("utf-8", "backslashreplace").decode() for name in classes]
    folder = tmp_path_factory.mktemp("any")
    for kind in (".csv", ".parquet"):
        read = read_predictions(write(folder / f"a{kind}", names, prediction, np.array(classes)))
        assert read.names == plain
        assert read.nearest_classes.tolist() == [plain_classes[index] for index in nearest]
        expected = [plain_classes[index] if k else "unknown" for index, k in zip(nearest, known, strict=True)]
        assert read.labels.tolist() == expected
        assert read.known.tolist() == known.tolist()
        assert read.groups.tolist() == prediction.group.tolist()
        np.testing.assert_allclose(read.confidence, confidence, atol=6e-7)


def test_file_name_that_is_no_text_is_written_out(tmp_path):
    path = write(tmp_path / "a.csv", [os.fsdecode(b"\xff.jpg"), *NAMES[1:]])
    assert path.read_text(encoding="utf-8").splitlines()[1].startswith(r"\udcff.jpg,")


def write_and_fail(path: Path, error: BaseException | type[BaseException]) -> None:
    with PredictionWriter(path, CLASSES, "unknown") as writer:
        writer.write(NAMES, PREDICTION)
        raise error


@pytest.mark.parametrize("kind", [".csv", ".parquet"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError, MemoryError, SystemExit])
def test_end_in_the_middle_leaves_the_old_table_and_nothing_else(tmp_path, kind, error):
    path = write(tmp_path / f"a{kind}")
    before = path.read_bytes()
    with pytest.raises(error):
        write_and_fail(path, error)
    assert path.read_bytes() == before
    assert others_than(path) == []


@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_end_in_the_middle_leaves_nothing_where_nothing_was(tmp_path, kind):
    with pytest.raises(KeyboardInterrupt):
        write_and_fail(tmp_path / f"a{kind}", KeyboardInterrupt)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("part", ["writerows", "write_batch"])
def test_full_disk_is_told_with_what_to_do(tmp_path, part, monkeypatch):
    class Full:
        """A writer of either kind."""

        def __init__(self, *_, **__):
            setattr(self, part, self.fail)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def fail(self, _):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(csv, "writer", Full)
    monkeypatch.setattr(pq, "ParquetWriter", Full)
    path = tmp_path / ("a.csv" if part == "writerows" else "a.parquet")
    with pytest.raises(RunFolderError, match=r"a\.\w+ cannot be written \(No space left on device\)\. Check that"):
        write(path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [FileNotFoundError(2, "No such photo"), RunFolderError("a run is not there")])
def test_failure_to_read_is_not_told_as_a_failure_to_write(tmp_path, error):
    with pytest.raises(type(error)) as caught:
        write_and_fail(tmp_path / "a.csv", error)
    assert caught.value is error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_place_that_cannot_be_written_is_told_before_the_first_answer(tmp_path, kind):
    (tmp_path / "file").touch()
    with (
        pytest.raises(RunFolderError, match=r"cannot be written .* Check that the folder exists"),
        PredictionWriter(tmp_path / "file" / f"a{kind}", CLASSES, "unknown"),
    ):
        pytest.fail("the writer opened")


@pytest.mark.parametrize(
    ("kind", "n", "step"), [(".csv", 100_000, 1000), (".csv", 20_000, 20_000), (".parquet", 40_000, 1000)]
)
@pytest.mark.medium
def test_answers_are_not_kept(tmp_path, monkeypatch, kind, n, step):
    monkeypatch.setattr(answers, "_BLOCK_ROWS", 1 << 10)
    monkeypatch.setattr(answers, "_GROUP_ROWS", 1 << 11)
    prediction, names = many(n), [f"some/folder/of/photographs/{row:06d}.jpg" for row in range(n)]
    path = tmp_path / f"a{kind}"
    tracemalloc.start()
    with PredictionWriter(path, CLASSES, "unknown") as writer:
        for start in range(0, n, step):
            writer.write(names[start : start + step], part(prediction, slice(start, start + step)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # A thousand rows as Python objects take about half a megabyte.
    assert peak < 2e6
    assert len(read_predictions(path).names) == n


@pytest.mark.parametrize("name", ["a.txt", "a", "a.csv.gz", "a.xlsx"])
def test_other_kinds_of_table_are_refused(tmp_path, name):
    with pytest.raises(DataError, match=r"Predictions are written to \.csv or \.parquet files"):
        PredictionWriter(tmp_path / name, CLASSES, "unknown")


def test_too_few_names_are_refused(tmp_path):
    with pytest.raises(DataError, match="there are 2 names for 4 predictions. Give one name per sample"):
        write(tmp_path / "a.csv", NAMES[:2])
    assert list(tmp_path.iterdir()) == []


def test_missing_pyarrow_is_told_before_the_first_answer(tmp_path, monkeypatch):
    path = write(tmp_path / "a.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with (
        pytest.raises(DataError, match=r"Parquet files needs pyarrow, .*pip install 'uniot\[images\]'"),
        PredictionWriter(tmp_path / "b.parquet", CLASSES, "unknown"),
    ):
        pytest.fail("the writer opened")
    with pytest.raises(DataError, match="Parquet files needs pyarrow"):
        read_predictions(path)
    assert others_than(path) == []


# --- reading them back ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_table_is_read_by_column(tmp_path, kind):
    read = read_predictions(write(tmp_path / f"a{kind}", classes=np.array([7, 12]), unknown=-1))
    assert read.names == NAMES
    assert read.labels.tolist() == ["12", "-1", "-1", "7"]
    assert read.known.tolist() == [True, False, False, True]
    np.testing.assert_allclose(read.confidence, PREDICTION.confidence, atol=6e-7)
    assert read.nearest_classes.tolist() == ["12", "7", "12", "7"]
    assert read.groups.tolist() == [-1, 3, -1, -1]


def test_table_that_went_through_a_spreadsheet_is_read(tmp_path):
    with (tmp_path / "a.csv").open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file).writerows(
            [
                ["note", *reversed(COLUMNS)],
                ["ok", "", "", "cup", "0.7", "TRUE", "cup", "ü.jpg"],
                ["", 0.5, 2, "cup", 0, "FALSE", "?", "b"],
            ]
        )
    read = read_predictions(tmp_path / "a.csv")
    assert (read.names, read.labels.tolist()) == (["ü.jpg", "b"], ["cup", "?"])
    assert (read.known.tolist(), read.groups.tolist()) == ([True, False], [-1, 2])
    assert read.group_confidence.tolist() == [0, 0.5]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it has no column path"),
        (b"path,label\na,b\n", "it has no column known"),
        (TABLE.encode()[:-20], "line 5 is cut off"),
        (TABLE.replace("true", "perhaps").encode(), "known is 'perhaps', neither true nor false"),
        (TABLE.replace("0.75", "much").encode(), "could not convert string to float: 'much0000'"),
        (b"\xff\xfe" + TABLE.encode("utf-16-le"), "codec can't decode"),
    ],
)
def test_damaged_table_is_refused(tmp_path, content, words):
    (tmp_path / "predictions.csv").write_bytes(content)
    with pytest.raises(RunFolderError, match=rf"predictions\.csv cannot be read \(.*{words}.*\)\. Make the run again"):
        read_predictions(tmp_path / "predictions.csv")


def test_damaged_parquet_and_missing_tables_are_refused(tmp_path):
    words = r"cannot be read \(.*\)\. Make the run again"
    path = write(tmp_path / "a.parquet")
    path.write_bytes(path.read_bytes()[:-9])
    pq.write_table(pa.table({"path": ["a"]}), tmp_path / "b.parquet")
    pq.write_table(pa.table({name: pa.array([None], pa.string()) for name in COLUMNS}), tmp_path / "c.parquet")
    for name in ("a.parquet", "b.parquet", "c.parquet", "missing.parquet", "missing.csv"):
        with pytest.raises(RunFolderError, match=words):
            read_predictions(tmp_path / name)
