"""Files that were made to fill the memory, of `benchmarks/hostile_files.py`, and ordinary ones that look alike."""

from __future__ import annotations

import io
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from uniot.errors import DataError
from uniot.images.files import unlabelled_images
from uniot.io import array_files, csv_tables, table_files, text
from uniot.io.csv_tables import CsvError, CsvReader, dict_reader
from uniot.io.embedding_files import read_embeddings, read_labels
from uniot.io.parquet_pages import column_pages
from uniot.io.table_files import read_columns, read_parquet

READERS = {
    "embeddings": read_embeddings,
    "labels": lambda path: read_labels(path, ["a", "b"]),
    "list": unlabelled_images,
}
UNPACKS = r"would unpack its {} from \d+ bytes to {} GB, which embeddings never do"


@pytest.mark.parametrize(
    ("make", "reader", "words"),
    [
        ("zeros", "embeddings", UNPACKS.format("x", "7.17")),
        ("zeros_in_shards", "embeddings", UNPACKS.format("x", "7.17")),
        ("one_long_list", "embeddings", "a row group that unpacks x from 32 bytes to 4 GB"),
        ("long_list_after_short_ones", "embeddings", r"a row group that unpacks x from \d+ bytes to 4 GB"),
        ("rows_of_nothing", "embeddings", UNPACKS.format("x", "4")),
        ("rows_of_nothing", "labels", UNPACKS.format("labels", "8")),
        ("rows_of_one_label", "labels", UNPACKS.format("labels", "8")),
        ("long_label", "embeddings", UNPACKS.format("labels", "80")),
        ("long_label", "labels", UNPACKS.format("labels", "80")),
        ("long_name", "embeddings", UNPACKS.format("column path", "20")),
        ("labels_in_maps", "labels", "labels of type map"),
        ("nested_lists", "embeddings", "no embeddings among them"),
        ("npy_with_a_long_header", "embeddings", "its header has 4294967295 bytes; at most 10000 are read"),
        ("npy_with_a_large_shape", "labels", "cannot be read as a NumPy file"),
        ("safetensors_with_a_long_class", "embeddings", UNPACKS.format("labels", "4")),
        ("sparse_list", "list", "line 1 of .* is not UTF-8 text"),
    ],
)
def test_file_that_fills_the_memory_is_refused_before_memory_is_taken(
    hostile, tmp_path, little_memory, make, reader, words
):
    path = getattr(hostile, make)(tmp_path)
    with little_memory(), pytest.raises(DataError, match=words):
        READERS[reader](path)


@pytest.mark.parametrize("kind", ["dictionary", "page"])
def test_page_is_measured_by_its_own_header_and_not_by_the_metadata(hostile, tmp_path, little_memory, kind):
    data = hostile.with_length(hostile.runs((1, b"\1")))
    pages = hostile.page(b"", n_values=1, kind=2, unpacked=1 << 30) if kind == "dictionary" else b""
    pages += hostile.page(data, n_values=1, unpacked=1_500_000_000)
    label = hostile.texts("label", pages, 1, codec=hostile.ZSTD, announced=100)
    path = hostile.parquet(tmp_path / "x.parquet", 1, hostile.vectors([(1, 4)]), label)
    assert pq.ParquetFile(path).metadata.row_group(0).column(1).total_uncompressed_size == 100
    with (
        little_memory(),
        pytest.raises(DataError, match=rf"has a {kind} that unpacks to 1\.[05]\d* GB in the column la"),
    ):
        read_embeddings(path)


def test_long_metadata_is_refused_before_it_is_parsed(tmp_path, monkeypatch):
    pq.write_table(pa.table({"a": [1.0], "b": [2.0]}), tmp_path / "x.parquet")
    monkeypatch.setattr(table_files, "_MAX_FOOTER_BYTES", 100)
    monkeypatch.setattr(table_files.ParquetTable, "_opened", None)
    with pytest.raises(DataError, match=r"bytes of metadata; at most 100 are read. Write fewer columns"):
        read_embeddings(tmp_path / "x.parquet")


def test_row_groups_that_contradict_the_number_of_rows_are_refused(hostile, tmp_path, little_memory):
    path = hostile.parquet(tmp_path / "x.parquet", 3, hostile.vectors([(2, 4)]))
    with little_memory(), pytest.raises(DataError, match="announces 3 rows and holds 2"):
        read_embeddings(path)


@pytest.mark.parametrize("error", [pa.ArrowMemoryError("malloc of size 4000000000 failed"), MemoryError()])
def test_lack_of_memory_does_not_read_as_a_truncated_file(tmp_path, monkeypatch, error):
    def fail(*_, **__):
        raise error

    pq.write_table(pa.table({"a": [1.0], "b": [2.0]}), tmp_path / "x.parquet")
    monkeypatch.setattr(table_files.ParquetTable, "read_vectors", fail)
    with pytest.raises(DataError, match=r"needs more memory than is available") as caught:
        read_embeddings(tmp_path / "x.parquet")
    assert "truncated" not in str(caught.value)


def test_arrow_reports_a_lack_of_memory_as_an_oserror_too(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError("Failed decompression: ZSTD: Allocation error : not enough memory")

    pq.write_table(pa.table({"a": [1.0], "b": [2.0]}), tmp_path / "x.parquet")
    monkeypatch.setattr(table_files.ParquetTable, "read_vectors", fail)
    with pytest.raises(DataError, match=r"needs more memory than is available \(Failed decompression"):
        read_embeddings(tmp_path / "x.parquet")


# --- ordinary files ----------------------------------------------------------------------------------------

WRITERS = {
    "default": {},
    "second version": {"data_page_version": "2.0", "compression": "zstd"},
    "plain": {"use_dictionary": False, "compression": "none"},
    "small pages": {"data_page_size": 64, "write_batch_size": 7, "row_group_size": 100},
    "checksums and indices": {"write_page_checksum": True, "write_page_index": True, "compression": "gzip"},
    "differences": {
        "use_dictionary": False,
        "column_encoding": {"label": "DELTA_BYTE_ARRAY", "path": "DELTA_LENGTH_BYTE_ARRAY"},
    },
}
TEXT_TYPES = [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())]
LISTS = [pa.list_(pa.float32()), pa.large_list(pa.float32()), pa.list_(pa.float32(), 3)]


@pytest.mark.parametrize("options", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("kind", TEXT_TYPES, ids=str)
@pytest.mark.parametrize("of_lists", [*LISTS, None], ids=str)
def test_parquet_is_read_whatever_way_it_was_written(tmp_path, options, kind, of_lists):
    x = np.random.default_rng(0).normal(size=(250, 3)).astype(np.float32)
    labels = [f"class {row % 7} é" for row in range(250)]
    names = [f"{row}.jpg" for row in range(250)]
    if "column_encoding" in options and pa.types.is_dictionary(kind):
        kind = pa.string()  # Arrow cannot read the other
    if of_lists is None:
        columns = {f"c{place}": x[:, place] for place in range(3)}
    else:
        columns = {"x": pa.array(list(x), of_lists)}
    plain = pa.table(columns | {"label": labels, "path": names})
    table = plain.set_column(plain.column_names.index("label"), "label", pa.array(labels).cast(kind))
    pq.write_table(table, tmp_path / "x.parquet", **options)
    found = read_embeddings(tmp_path / "x.parquet")
    assert np.array_equal(found.x, x)
    assert found.y.tolist() == labels
    assert found.ids == names


@pytest.mark.parametrize("options", WRITERS.values(), ids=WRITERS)
def test_page_headers_count_the_values_that_the_metadata_counts(tmp_path, options):
    rng = np.random.default_rng(0)
    columns = {
        "x": pa.array([rng.normal(size=5).tolist() for _ in range(500)]),
        "label": [None if row % 3 else "a" * (row % 50) for row in range(500)],
        "path": [f"{row}" for row in range(500)],
    }
    pq.write_table(pa.table(columns), tmp_path / "x.parquet", **options)
    about = pq.ParquetFile(tmp_path / "x.parquet").metadata
    with (tmp_path / "x.parquet").open("rb") as file:
        for group in range(about.num_row_groups):
            for column in range(3):
                chunk = about.row_group(group).column(column)
                pages = column_pages(file, chunk)
                assert pages.n_values == chunk.num_values
                assert 0 < pages.largest <= chunk.total_uncompressed_size
                assert 0 < pages.packed < chunk.total_compressed_size
                assert bool(pages.dictionary) == chunk.has_dictionary_page
                assert pages.is_simple == ("column_encoding" not in options or column == 0)


def test_columns_are_read_together_as_far_as_they_fit(tmp_path, monkeypatch):
    x = np.random.default_rng(0).normal(size=(300, 40)).astype(np.float32)
    pq.write_table(pa.table({f"c{place}": x[:, place] for place in range(40)}), tmp_path / "x.parquet")
    whole = read_embeddings(tmp_path / "x.parquet").x
    monkeypatch.setattr(table_files, "_MAX_PAGE_BYTES", 500_000)
    monkeypatch.setattr(table_files, "_READ_BYTES", 5000)
    assert np.array_equal(read_embeddings(tmp_path / "x.parquet").x, whole)
    assert np.array_equal(whole, x)


@pytest.mark.parametrize("with_label", [False, True])
def test_numeric_labels_keep_their_type_and_empty_ones_are_none(tmp_path, with_label):
    labels = pa.array([3, 1, 2] if with_label else [None] * 3, pa.int64())
    pq.write_table(pa.table({"a": [1.0, 2, 3], "b": [0.0, 1, 0], "label": labels}), tmp_path / "x.parquet")
    found = read_parquet(tmp_path / "x.parquet", with_x=True).y
    assert found is None if not with_label else found.tolist() == [3, 1, 2] and found.dtype == np.int64


def test_numeric_labels_with_gaps_are_refused(tmp_path):
    pq.write_table(pa.table({"a": [1.0, 2], "b": [0.0, 1], "label": [1, None]}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match="no label in 1 of 2 rows, the first in row 1"):
        read_embeddings(tmp_path / "x.parquet")


def test_columns_of_a_table_are_python_values(tmp_path):
    table = pa.table({"path": ["a", None, "a"], "score": [0.5, 1.5, None], "n": [1, 2, 3]})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=2)
    assert read_columns(tmp_path / "x.parquet", ["n", "path", "score"]) == {
        "n": [1, 2, 3],
        "path": ["a", None, "a"],
        "score": [0.5, 1.5, None],
    }


@pytest.mark.parametrize("seed", range(60))
def test_damaged_parquet_is_a_data_error_or_is_read_whole(tmp_path, seed, little_memory):
    rng = np.random.default_rng(seed)
    path = tmp_path / "x.parquet"
    columns = {"x": pa.array(list(rng.normal(size=(20, 5)))), "label": ["a", "b"] * 10}
    pq.write_table(pa.table(columns), path, compression=["none", "zstd"][seed % 2], write_page_checksum=True)
    data = bytearray(path.read_bytes())
    for place in rng.integers(4, len(data), 3):
        data[place] = rng.integers(256)
    path.write_bytes(bytes(data))
    read = None
    with little_memory(), suppress(DataError):
        read = read_embeddings(path)
    assert read is None or read.x.shape == (20, 5)


# --- text --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rest", ["a" * 2000, "a,b\n" + '"' + "a\n" * 700], ids=["one line", "one cell of many lines"])
@pytest.mark.parametrize("read", [CsvReader, dict_reader])
def test_row_of_a_table_without_end_is_refused(monkeypatch, rest, read):
    monkeypatch.setattr(csv_tables, "_MAX_ROW_LETTERS", 1000)
    with pytest.raises(CsvError, match="a row is longer than 1000 letters"):
        list(read(io.StringIO(rest, newline="")))


def test_line_of_a_table_is_not_read_whole_before_it_is_refused(monkeypatch):
    class Stream(io.StringIO):
        longest = 0

        def readline(self, size=-1):
            line = super().readline(size)
            Stream.longest = max(Stream.longest, len(line))
            return line

    monkeypatch.setattr(csv_tables, "_MAX_ROW_LETTERS", 1000)
    with pytest.raises(CsvError):
        next(CsvReader(Stream("a" * 10_000)))
    assert Stream.longest == 1000


def test_long_table_of_short_rows_is_read(monkeypatch):
    monkeypatch.setattr(csv_tables, "_MAX_ROW_LETTERS", 20)
    rows = [["a", f"{row}\n;"] for row in range(100)]
    text = io.StringIO(csv_tables.table_text(["x", "y"], rows), newline="")
    assert list(CsvReader(text)) == [["x", "y"], *rows]


def test_line_of_a_list_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "_MAX_LINE_BYTES", 100)
    (tmp_path / "l.txt").write_text("a.jpg\n" + "b" * 200, encoding="utf-8")
    for read in (unlabelled_images, READERS["labels"]):
        with pytest.raises(DataError, match=r"line 2 of .*l.txt is longer than 100 bytes"):
            read(tmp_path / "l.txt")


def test_labels_of_a_text_file_that_would_be_padded_to_a_long_one_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(array_files, "_MAX_LABEL_BYTES", 1000)
    (tmp_path / "l.txt").write_text("a" * 500 + "\n" + "b\n" * 500, encoding="utf-8")
    with pytest.raises(DataError, match="label of 500 letters, and each of its 501 rows"):
        read_labels(tmp_path / "l.txt", ["a"] * 501)


def test_arrays_of_an_archive_are_bounded_together(tmp_path, monkeypatch):
    monkeypatch.setattr(array_files, "_MAX_UNPACKED_BYTES", 100_000)
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros((1000, 20), np.float32), y=np.array(["a" * 19] * 1000))
    with pytest.raises(DataError, match=UNPACKS.format("y", "0.000156")):
        read_embeddings(tmp_path / "x.npz")
