"""Files that were made to fill the memory: each is read or refused with at most 1 GB above the baseline.

Every file is made, read in a process of its own, and removed. The Parquet files that no library would write are written
here byte by byte.
"""

from __future__ import annotations

import io
import json
import re
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from measure import Report, arguments

_GIGABYTE = 1e9
_MOST = 1.0
_PART = 1 << 24


@dataclass(frozen=True)
class Hostile:
    """A file, or a folder of files.

    Attributes:
        name: what is wrong with it.
        make: writes it into an empty folder; returns what is given to the reader.
        reader: name of the reader.
    """

    name: str
    make: Callable[[Path], Path]
    reader: str = "embeddings"


HOSTILE: list[Hostile] = []


def hostile(name: str, *readers: str) -> Callable[[Callable[[Path], Path]], Callable[[Path], Path]]:
    def listed(make: Callable[[Path], Path]) -> Callable[[Path], Path]:
        HOSTILE.extend(Hostile(name, make, reader) for reader in readers or ("embeddings",))
        return make

    return listed


# --- Parquet by a library ---------------------------------------------------------------------------------


def write_parquet(path: Path, tables: Iterator[Any] | list[Any], **options: Any) -> Path:
    import pyarrow.parquet as pq

    tables = iter(tables)
    first = next(tables)
    with pq.ParquetWriter(path, first.schema, compression="zstd", **options) as writer:
        writer.write_table(first)
        for table in tables:
            writer.write_table(table)
    return path


def lists(x: np.ndarray, **columns: Any) -> Any:
    import pyarrow as pa

    return pa.table({"x": pa.FixedSizeListArray.from_arrays(x.reshape(-1), x.shape[1]), **columns})


@hostile("parquet: a label of 1 MB in 4000 rows, as differences", "embeddings", "labels")
def long_label_as_differences(folder: Path, letters: int = 1_000_000, parts: int = 20) -> Path:
    table = lists(np.zeros((200, 2), np.float32), label=["a" * letters] * 200)
    encoding = {"label": "DELTA_BYTE_ARRAY", "x.list.element": "PLAIN"}
    return write_parquet(folder / "x.parquet", [table] * parts, use_dictionary=False, column_encoding=encoding)


@hostile("parquet: 700 names of 1 MB", "embeddings", "shards")
def long_names(folder: Path) -> Path:
    tables = (
        lists(np.zeros((50, 2), np.float32), path=[f"{start + row}" + "a" * 10**6 for row in range(50)])
        for start in range(0, 700, 50)
    )
    return write_parquet(folder / "x.parquet", tables, use_dictionary=False)


@hostile("parquet: a column name of 50 MB")
def long_column_name(folder: Path) -> Path:
    import pyarrow as pa

    return write_parquet(folder / "x.parquet", [pa.table({"a" * 5 * 10**7: [1.0], "b": [2.0]})])


@hostile("parquet: metadata of 200 MB", "embeddings", "shards")
def long_metadata(folder: Path) -> Path:
    import pyarrow as pa

    metadata = {str(number): "a" * 50_000_000 for number in range(4)}
    return write_parquet(folder / "x.parquet", [pa.table({"b": [2.0]}).replace_schema_metadata(metadata)])


@hostile("parquet: labels in maps", "embeddings", "labels")
def labels_in_maps(folder: Path) -> Path:
    import pyarrow as pa

    kind = pa.map_(pa.string(), pa.list_(pa.struct([("a", pa.string())])))
    row = [("k", [{"a": "a" * 10**5}] * 10)]
    return write_parquet(folder / "x.parquet", [pa.table({"x": [1.0] * 100, "label": pa.array([row] * 100, kind)})])


@hostile("parquet: nested lists")
def nested_lists(folder: Path) -> Path:
    import pyarrow as pa

    rows = pa.array([[[0.0] * 1000] * 1000], pa.list_(pa.list_(pa.float32())))
    return write_parquet(folder / "x.parquet", [pa.table({"x": rows})] * 5)


# --- Parquet by hand --------------------------------------------------------------------------------------


class Struct(dict[int, Any]):
    """Fields of a Thrift struct by number."""


class Long(int):
    """A number of 64 bits."""


def varint(value: int) -> bytes:
    data = bytearray()
    while value > 127:
        data.append(value & 127 | 128)
        value >>= 7
    return bytes([*data, value])


def thrift(value: Any) -> tuple[int, bytes]:
    """Type and bytes of a value in Thrift's compact protocol."""
    if isinstance(value, int):
        return 6 if isinstance(value, Long) else 5, varint(2 * value if value >= 0 else -2 * value - 1)
    if isinstance(value, (bytes, str)):
        data = value.encode() if isinstance(value, str) else value
        return 8, varint(len(data)) + data
    if isinstance(value, list):
        parts = [thrift(one) for one in value]
        kind = parts[0][0] if parts else 12
        head = bytes([len(parts) << 4 | kind]) if len(parts) < 15 else bytes([0xF0 | kind]) + varint(len(parts))
        return 9, head + b"".join(data for _, data in parts)
    fields, last = bytearray(), 0
    for number in sorted(value):
        kind, data = thrift(value[number])
        fields += bytes([(number - last) << 4 | kind]) + data
        last = number
    return 12, bytes(fields) + b"\0"


FLOAT, TEXT = 4, 6
PLAIN, BY_DICTIONARY, NO_CODEC, ZSTD = 0, 8, 0, 6


def page(data: bytes, *, n_values: int, encoding: int = PLAIN, unpacked: int | None = None, kind: int = 0) -> bytes:
    """A page with its header; `kind` 2 is a dictionary."""
    about = Struct({1: n_values, 2: encoding} | ({} if kind else {3: 3, 4: 3}))
    header = Struct({1: kind, 2: len(data) if unpacked is None else unpacked, 3: len(data), 7 if kind else 5: about})
    return thrift(header)[1] + data


def runs(*parts: tuple[int, bytes]) -> bytes:
    """Equal values in a row, as Parquet writes them: how many, and the value."""
    return b"".join(varint(count << 1) + value for count, value in parts)


def with_length(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


@dataclass(frozen=True)
class Column:
    """A column of one row group; `schema` are the nodes that lead to its values."""

    path: list[str]
    schema: list[Struct]
    kind: int
    pages: bytes
    n_values: int
    codec: int = NO_CODEC
    announced: int = 100


def parquet(path: Path, n_rows: int, *columns: Column, groups: int = 1) -> Path:
    """Write a Parquet file whose row groups all refer to the same pages."""
    body, chunks = bytearray(b"PAR1"), []
    for column in columns:
        place = Long(len(body))
        about = Struct({1: column.kind, 2: [PLAIN], 3: column.path, 4: column.codec, 5: Long(column.n_values),
                        6: Long(column.announced), 7: Long(len(column.pages)), 9: place})  # fmt: skip
        chunks.append(Struct({2: place, 3: about}))
        body += column.pages
    schema = [Struct({4: "schema", 5: len(columns)}), *(node for column in columns for node in column.schema)]
    group = Struct({1: chunks, 2: Long(100), 3: Long(n_rows)})
    footer = thrift(Struct({1: 1, 2: schema, 3: Long(n_rows * groups), 4: [group] * groups}))[1]
    path.write_bytes(body + footer + struct.pack("<I", len(footer)) + b"PAR1")
    return path


def vectors(lengths: list[tuple[int, int]]) -> Column:
    """A list column x of zeros: how many rows of which length."""
    n_values = sum(rows * length for rows, length in lengths)
    repeated = b"".join(runs((1, b"\0"), (length - 1, b"\1")) * rows for rows, length in lengths)
    levels = with_length(repeated) + with_length(runs((n_values, b"\1")))
    pages = page(bytes(4), n_values=1, kind=2)
    pages += page(levels + b"\0" + runs((n_values, b"")), n_values=n_values, encoding=BY_DICTIONARY)
    nodes = [
        Struct({3: 0, 4: "x", 5: 1, 6: 3}),
        Struct({3: 2, 4: "list", 5: 1}),
        Struct({1: FLOAT, 3: 0, 4: "element"}),
    ]
    return Column(["x", "list", "element"], nodes, FLOAT, pages, n_values)


def texts(name: str, pages: bytes, n_values: int, **options: Any) -> Column:
    return Column([name], [Struct({1: TEXT, 3: 1, 4: name, 6: 0})], TEXT, pages, n_values, **options)


def numbers(name: str, n_rows: int) -> Column:
    """A column of zeros."""
    pages = page(bytes(4), n_values=1, kind=2)
    pages += page(b"\0" + runs((n_rows, b"")), n_values=n_rows, encoding=BY_DICTIONARY)
    return Column([name], [Struct({1: FLOAT, 3: 0, 4: name})], FLOAT, pages, n_rows)


@hostile("parquet: zeros, 7 GB", "embeddings", "adapt", "shards")
def zeros(folder: Path, groups: int = 100) -> Path:
    columns = vectors([(10_000, 1792)]), repeated("label", b"fox", 10_000)
    return parquet(folder / "x.parquet", 10_000, *columns, groups=groups)


@hostile("parquet: zeros in shards, 7 GB", "embeddings", "shards")
def zeros_in_shards(folder: Path) -> Path:
    for number in range(10):
        zeros(folder, 10).rename(folder / f"part-{number}.parquet")
    return folder


@hostile("parquet: 100 000 columns, 4 GB", "embeddings", "shards")
def wide(folder: Path, columns: int = 100_000, rows: int = 10_000) -> Path:
    return parquet(folder / "x.parquet", rows, *(numbers(str(number), rows) for number in range(columns)))


@hostile("parquet: 50 000 columns that just fit", "embeddings", "shards")
def wide_and_small(folder: Path, columns: int = 50_000, rows: int = 2500) -> Path:
    return parquet(folder / "x.parquet", rows, *(numbers(str(number), rows) for number in range(columns)))


@hostile("parquet: one list of a billion numbers", "embeddings", "shards")
def one_long_list(folder: Path) -> Path:
    return parquet(folder / "x.parquet", 1, vectors([(1, 10**9)]))


@hostile("parquet: one long list after short ones", "embeddings", "shards")
def long_list_after_short_ones(folder: Path) -> Path:
    return parquet(folder / "x.parquet", 1001, vectors([(1000, 2), (1, 10**9)]))


@hostile("parquet: lists that just fit, one of them long", "embeddings", "shards")
def lists_that_just_fit(folder: Path) -> Path:
    """Of a row group with as many values as are read, and twice as many as are kept."""
    return parquet(folder / "x.parquet", 2, vectors([(1, 2), (1, (1 << 26) - 2)]), groups=2)


@hostile("parquet: a billion rows without a label", "embeddings", "labels", "shards")
def rows_of_nothing(folder: Path) -> Path:
    n_rows = 10**9
    empty = page(with_length(runs((n_rows, b"\0"))), n_values=n_rows)
    x = Column(["a"], [Struct({1: FLOAT, 3: 1, 4: "a"})], FLOAT, empty, n_rows)
    return parquet(folder / "x.parquet", n_rows, x, texts("label", empty, n_rows), texts("path", empty, n_rows))


def repeated(name: str, text: bytes, n_rows: int) -> Column:
    """A column of one text, which is written once."""
    data = with_length(runs((n_rows, b"\1"))) + b"\0" + runs((n_rows, b""))
    pages = page(with_length(text), n_values=1, kind=2) + page(data, n_values=n_rows, encoding=BY_DICTIONARY)
    return texts(name, pages, n_rows)


@hostile("parquet: a billion rows of one label", "embeddings", "labels")
def rows_of_one_label(folder: Path, n_rows: int = 10**9) -> Path:
    return parquet(folder / "x.parquet", n_rows, repeated("label", b"fox", n_rows))


@hostile("parquet: a label of 1 MB in 20 000 rows", "embeddings", "labels", "shards")
def long_label(folder: Path, letters: int = 1_000_000, n_rows: int = 20_000) -> Path:
    label = repeated("label", b"a" * letters, n_rows)
    return parquet(folder / "x.parquet", n_rows, vectors([(n_rows, 2)]), label)


@hostile("parquet: a name of 1 MB in 20 000 rows", "embeddings", "shards")
def long_name(folder: Path, letters: int = 1_000_000, n_rows: int = 20_000) -> Path:
    name = repeated("path", b"a" * letters, n_rows)
    return parquet(folder / "x.parquet", n_rows, vectors([(n_rows, 2)]), name)


@hostile("parquet: pages that are larger than the metadata says", "embeddings", "labels")
def pages_that_lie(folder: Path) -> Path:
    return parquet(folder / "x.parquet", 1, vectors([(1, 4)]), one_text("label", 1_500_000_000))


@hostile("parquet: a name of 1 GB", "embeddings", "shards")
def name_of_a_gigabyte(folder: Path) -> Path:
    return parquet(folder / "x.parquet", 1, vectors([(1, 4)]), one_text("path", 10**9, announced=10**9 + 20))


def one_text(name: str, letters: int, **options: Any) -> Column:
    """A column of one row with a long text, in a page that is packed."""
    import pyarrow as pa

    text = with_length(runs((1, b"\1"))) + with_length(b"a" * letters)
    packed = pa.Codec("zstd").compress(text, asbytes=True)
    return texts(name, page(packed, n_values=1, unpacked=len(text)), 1, codec=ZSTD, **options)


@hostile("parquet: 200 000 row groups", "embeddings", "shards")
def row_groups(folder: Path) -> Path:
    return parquet(folder / "x.parquet", 1, vectors([(1, 4)]), groups=200_000)


# --- other tables and arrays ------------------------------------------------------------------------------


def write_parts(path: Path, head: bytes, n_bytes: int, tail: bytes = b"", letter: bytes = b"a") -> Path:
    with path.open("wb") as file:
        file.write(head)
        for start in range(0, n_bytes, _PART):
            file.write(letter * min(_PART, n_bytes - start))
        file.write(tail)
    return path


@hostile("csv: one line of 2 GB", "embeddings", "list")
def csv_of_one_line(folder: Path) -> Path:
    return write_parts(folder / "x.csv", b"", 2 * 10**9)


@hostile("csv: a cell of 500 MB", "embeddings", "list")
def csv_with_a_long_cell(folder: Path) -> Path:
    return write_parts(folder / "x.csv", b'path,label,0\n"', 5 * 10**8, b'",fox,1\n')


@hostile("csv: a row of 500 MB in many lines", "embeddings", "list")
def csv_with_a_long_row(folder: Path) -> Path:
    return write_parts(folder / "x.csv", b"path,label,0\n", 5 * 10**8, letter=b'"\n",')


@hostile("csv: a million columns")
def csv_with_many_columns(folder: Path) -> Path:
    (folder / "x.csv").write_text(",".join(f"c{i}" for i in range(10**6)) + "\n" + ",".join("x" * 10**6) + "\n")
    return folder / "x.csv"


@hostile("csv: a long label and a million short ones")
def csv_with_a_long_label(folder: Path) -> Path:
    (folder / "x.csv").write_text("label,0\n" + "a" * 100_000 + ",1\n" + "b,1\n" * 10**6)
    return folder / "x.csv"


@hostile("npy: a header of 4 GB", "embeddings", "labels")
def npy_with_a_long_header(folder: Path) -> Path:
    with (folder / "x.npy").open("wb") as file:
        file.write(b"\x93NUMPY\x02\x00" + struct.pack("<I", (1 << 32) - 1))
        file.truncate(1 << 32)
    return folder / "x.npy"


def npy_header(shape: tuple[int, ...], descr: str = "<f4") -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": shape})
    return stream.getvalue()


@hostile("npy: a shape beyond all bounds", "embeddings", "labels")
def npy_with_a_large_shape(folder: Path) -> Path:
    (folder / "x.npy").write_bytes(npy_header((10**18,)) + bytes(100))
    return folder / "x.npy"


@hostile("npy: labels in a sparse file of 100 GB", "labels")
def npy_of_many_labels(folder: Path) -> Path:
    with (folder / "x.npy").open("wb") as file:
        file.write(npy_header((10**11,), "|u1"))
        file.truncate(file.tell() + 10**11)
    return folder / "x.npy"


def write_npz(path: Path, **members: tuple[bytes, int]) -> Path:
    """Compressed arrays of zeros: the header of each, and how many bytes follow."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, (head, n_bytes) in members.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                file.write(head)
                for start in range(0, n_bytes, _PART):
                    file.write(bytes(min(_PART, n_bytes - start)))
    return path


@hostile("npz: zeros, 7 GB")
def npz_of_zeros(folder: Path) -> Path:
    return write_npz(folder / "x.npz", x=(npy_header((10**6, 1792)), 7168 * 10**6))


@hostile("npz: three arrays that are each just small enough")
def npz_of_three(folder: Path) -> Path:
    rows = 10**6
    names, labels = npy_header((rows,), "<U130"), npy_header((rows,), "<U130")
    return write_npz(folder / "x.npz", x=(npy_header((rows, 130)), 520 * rows), y=(labels, 520 * rows),
                     ids=(names, 520 * rows))  # fmt: skip


@hostile("npz: a header of 2 GB")
def npz_with_a_long_header(folder: Path) -> Path:
    head = b"\x93NUMPY\x02\x00" + struct.pack("<I", 2 * 10**9)
    return write_npz(folder / "x.npz", x=(head, 2 * 10**9))


@hostile("npz: half a million members")
def npz_of_many_members(folder: Path) -> Path:
    record = b"PK\1\2" + bytes(24) + struct.pack("<H", 6) + bytes(16)
    records = b"".join(record + b"%06d" % number for number in range(500_000))
    end = b"PK\5\6" + bytes(4) + struct.pack("<HHIIH", 0xFFFF, 0xFFFF, len(records), 30, 0)
    (folder / "x.npz").write_bytes(b"PK\3\4" + bytes(26) + records + end)
    return folder / "x.npz"


@hostile("safetensors: names of 90 MB that are lists")
def safetensors_of_lists(folder: Path) -> Path:
    about = {"__metadata__": {"ids": "[" + "[]," * 30_000_000 + "[]]"}}
    header = json.dumps(about | {"x": {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]}}).encode()
    (folder / "x.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    return folder / "x.safetensors"


@hostile("safetensors: a class name of 10 000 letters in 100 000 rows")
def safetensors_with_a_long_class(folder: Path) -> Path:
    tensors = {
        "x": {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]},
        "y": {"dtype": "I8", "shape": [100_000], "data_offsets": [8, 100_008]},
    }
    header = json.dumps({"__metadata__": {"classes": json.dumps(["a" * 10_000])}} | tensors).encode()
    (folder / "x.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(100_008))
    return folder / "x.safetensors"


@hostile("list: one line of 1 GB", "list", "labels")
def list_of_one_line(folder: Path) -> Path:
    return write_parts(folder / "x.txt", b"", (1 << 30) - 10)


@hostile("list: a sparse file of 1 GB", "list", "labels")
def sparse_list(folder: Path) -> Path:
    with (folder / "x.txt").open("wb") as file:
        file.truncate(1 << 30)
    return folder / "x.txt"


@hostile("list: a label of 1 MB and a million short ones", "labels")
def list_with_a_long_label(folder: Path) -> Path:
    (folder / "x.txt").write_text("a" * 1_000_000 + "\n" + "b\n" * 10**6)
    return folder / "x.txt"


# --- images -----------------------------------------------------------------------------------------------


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def packed(n_bytes: int, letter: bytes = b"\0") -> bytes:
    stream = zlib.compressobj(9)
    parts = [stream.compress(letter * min(_PART, n_bytes - start)) for start in range(0, n_bytes, _PART)]
    return b"".join([*parts, stream.flush()])


# Samples per pixel of the colour types of PNG: grey, colours, palette, grey and colours with transparency.
_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


def png(
    path: Path, width: int, height: int, colour: int = 2, bits: int = 8, *chunks: bytes, after: bytes = b""
) -> Path:
    """Write a black image."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0))
    palette = chunk(b"PLTE", bytes(768)) if colour == 3 else b""
    pixels = chunk(b"IDAT", packed(height * (1 + (width * _SAMPLES[colour] * bits + 7) // 8)))
    body = head + b"".join(chunks) + palette + pixels + after + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)
    return path


@hostile("png: 1 × 201 326 592 pixels", "image")
def tall_png(folder: Path) -> Path:
    return png(folder / "x.png", 1, 201_326_592)


@hostile("png: 201 326 592 × 1 pixels", "image")
def flat_png(folder: Path) -> Path:
    return png(folder / "x.png", 201_326_592, 1)


@hostile("png: the largest that is read", "image")
def largest_png(folder: Path) -> Path:
    return png(folder / "x.png", 10_000, 10_000, 6)


@hostile("png: the largest and narrowest that is read", "image")
def narrow_png(folder: Path) -> Path:
    return png(folder / "x.png", 1525, 65_535, 2)


@hostile("png: the largest with a palette and transparency", "image")
def palette_png(folder: Path) -> Path:
    return png(folder / "x.png", 10_000, 10_000, 3, 8, after=b"")


@hostile("png: the largest of 16 bits", "image")
def deep_png(folder: Path) -> Path:
    return png(folder / "x.png", 10_000, 10_000, 0, 16)


@hostile("png: the largest of 16 bits in colours with transparency", "image")
def deep_colours(folder: Path) -> Path:
    return png(folder / "x.png", 10_000, 10_000, 6, 16)


@hostile("png: the largest, animated", "image")
def animated_png(folder: Path) -> Path:
    frame = struct.pack(">IIIIIHHBB", 0, 10_000, 10_000, 0, 0, 1, 1, 1, 1)
    control = chunk(b"acTL", struct.pack(">II", 2, 0)) + chunk(b"fcTL", frame)
    return png(folder / "x.png", 10_000, 10_000, 6, 8, control)


@hostile("png: 16 of the largest in 16 threads", "image")
def many_png(folder: Path) -> Path:
    largest_png(folder)
    for number in range(15):
        (folder / f"{number}.png").write_bytes((folder / "x.png").read_bytes() + bytes([number]))
    return folder


@hostile("png: a text of 1 GB", "image")
def png_text(folder: Path) -> Path:
    return png(folder / "x.png", 10, 10, 2, 8, chunk(b"zTXt", b"a\0\0" + packed(10**9)))


@hostile("png: a colour profile of 1 GB", "image")
def png_profile(folder: Path) -> Path:
    return png(folder / "x.png", 10, 10, 2, 8, chunk(b"iCCP", b"a\0\0" + packed(10**9)))


def tiff(path: Path, width: int, height: int, data: bytes, **tags: int) -> Path:
    """Write a TIFF of one strip or tile; `tags` by number, with an underscore in front."""
    entries = {256: width, 257: height, 258: 8, 259: 8, 262: 1, 277: 1} | {
        int(name[1:]): of for name, of in tags.items()
    }
    place = {324: 8, 325: len(data)} if 322 in entries else {273: 8, 278: height, 279: len(data)}
    directory = struct.pack("<H", len(entries | place))
    for tag, value in sorted((entries | place).items()):
        directory += struct.pack("<HHII", tag, 4, 1, value)
    path.write_bytes(b"II*\0" + struct.pack("<I", 8 + len(data)) + data + directory + bytes(4))
    return path


@hostile("tiff: 12 000 × 12 000 pixels", "image")
def large_tiff(folder: Path) -> Path:
    return tiff(folder / "x.tif", 12_000, 12_000, packed(144 * 10**6))


@hostile("tiff: 14 000 × 14 000 pixels", "image")
def larger_tiff(folder: Path) -> Path:
    return tiff(folder / "x.tif", 14_000, 14_000, packed(1000))


@hostile("tiff: the largest in one strip", "image")
def tiff_of_one_strip(folder: Path) -> Path:
    return tiff(folder / "x.tif", 10_000, 10_000, packed(10**8))


@hostile("tiff: the largest of floating-point numbers", "image")
def tiff_of_floats(folder: Path) -> Path:
    return tiff(folder / "x.tif", 10_000, 10_000, packed(4 * 10**8), _258=32, _339=3)


@hostile("tiff: a small image in a tile of 1 GB", "image")
def tiff_of_one_tile(folder: Path) -> Path:
    return tiff(folder / "x.tif", 100, 100, packed(10**9), _322=32_000, _323=32_000)


@hostile(
    "tiff: 65 000 tags of the same 10 MB",
    "image",
)
def tiff_of_tags(folder: Path) -> Path:
    body = bytes(10**7)
    directory = struct.pack("<H", 65_000)
    for tag in range(65_000):
        directory += struct.pack("<HHII", tag, 7, 10**7, 8)
    (folder / "x.tif").write_bytes(b"II*\0" + struct.pack("<I", 8 + len(body)) + body + directory + bytes(4))
    return folder / "x.tif"


def exif_of_tags() -> bytes:
    """65 000 tags that all refer to the same 800 kB."""
    directory = struct.pack("<H", 65_000) + b"".join(struct.pack("<HHII", tag, 7, 780_000, 8) for tag in range(65_000))
    return b"II*\0" + struct.pack("<I", 8) + directory + bytes(4)


@hostile("png: EXIF of 65 000 tags of the same 780 kB", "image")
def png_exif(folder: Path) -> Path:
    return png(folder / "x.png", 10, 10, 2, 8, chunk(b"eXIf", exif_of_tags()))


def save(path: Path, image: Any, kind: str, **options: Any) -> Path:
    image.save(path, kind, **options)
    return path


def black(width: int, height: int, mode: str = "RGB") -> Any:
    from PIL import Image

    return Image.new(mode, (width, height))


@hostile("webp: 14 000 × 14 000 pixels", "image")
def larger_webp(folder: Path) -> Path:
    return resized_webp(folder, 14_000)


@hostile("webp: 10 000 × 10 000 pixels", "image")
def large_webp(folder: Path) -> Path:
    return resized_webp(folder, 10_000)


def resized_webp(folder: Path, side: int) -> Path:
    """A small image on a large canvas."""
    data = bytearray(save(folder / "x.webp", black(64, 64, "RGBA"), "WEBP", exif=b"Exif\0\0").read_bytes())
    if data[12:16] != b"VP8X":
        raise AssertionError("not an extended WebP")
    data[24:30] = (side - 1).to_bytes(3, "little") * 2
    (folder / "x.webp").write_bytes(bytes(data))
    return folder / "x.webp"


@hostile("webp: the largest that is read", "image")
def largest_webp(folder: Path) -> Path:
    return save(folder / "x.webp", black(7000, 7000, "RGBA"), "WEBP", lossless=True, method=0)


@hostile("gif: the largest that is read, animated", "image")
def largest_gif(folder: Path) -> Path:
    frames = {"save_all": True, "append_images": [black(10_000, 10_000, "P")], "disposal": 2, "transparency": 0}
    return save(folder / "x.gif", black(10_000, 10_000, "P"), "GIF", **frames)


@hostile("gif: a small frame on a canvas of 65 535 × 65 535 pixels", "image")
def gif_canvas(folder: Path) -> Path:
    data = bytearray(save(folder / "x.gif", black(8, 8, "P"), "GIF").read_bytes())
    data[6:10] = b"\xff\xff\xff\xff"
    (folder / "x.gif").write_bytes(bytes(data))
    return folder / "x.gif"


@hostile("jpeg: 16 000 × 12 500 pixels", "image")
def large_jpeg(folder: Path) -> Path:
    return save(folder / "x.jpg", black(16_000, 12_500), "JPEG")


@hostile("jpeg: 65 500 × 3000 pixels", "image")
def flat_jpeg(folder: Path) -> Path:
    return save(folder / "x.jpg", black(65_500, 3000), "JPEG")


@hostile("jpeg: 65 500 × 900 pixels", "image")
def flatter_jpeg(folder: Path) -> Path:
    return save(folder / "x.jpg", black(65_500, 900), "JPEG")


@hostile("jpeg: 14 000 × 14 000 pixels, progressive", "image")
def progressive_jpeg(folder: Path) -> Path:
    return save(folder / "x.jpg", black(14_000, 14_000), "JPEG", progressive=True, subsampling=0)


@hostile("jpeg: the largest that is progressive, CMYK", "image")
def progressive_cmyk(folder: Path) -> Path:
    return save(folder / "x.jpg", black(9900, 9900, "CMYK"), "JPEG", progressive=True)


@hostile("jpeg: a header and 180 MB of zeros", "image")
def endless_jpeg(folder: Path) -> Path:
    begin = save(folder / "x.jpg", black(64, 64), "JPEG").read_bytes()[:20]
    return write_parts(folder / "x.jpg", begin, 180_000_000, letter=b"\0")


@hostile("jpeg: 100 scans of 100 megapixels", "image")
def most_scans(folder: Path) -> Path:
    return with_scans(folder, 100)


@hostile("jpeg: 500 000 scans of 100 megapixels", "image")
def many_scans(folder: Path) -> Path:
    return with_scans(folder, 500_000)


def with_scans(folder: Path, count: int) -> Path:
    """A progressive JPEG that repeats its last scan."""
    data = save(folder / "x.jpg", black(9900, 9900), "JPEG", progressive=True).read_bytes()
    last = data[data.rindex(b"\xff\xda") : -2]
    (folder / "x.jpg").write_bytes(data[:-2] + (count - data.count(b"\xff\xda")) * last + data[-2:])
    return folder / "x.jpg"


@hostile("png: 180 MB of empty chunks", "image")
def empty_chunks(folder: Path) -> Path:
    begin = png(folder / "x.png", 8, 8).read_bytes()[:33]
    (folder / "x.png").write_bytes(begin + chunk(b"tESt", b"") * 15_000_000)
    return folder / "x.png"


@hostile("bmp: 100 megapixels", "image")
def large_bmp(folder: Path) -> Path:
    head = struct.pack("<IHHIIiiHHIIiiII", 1000, 0, 0, 1078, 40, 12_000, 12_000, 1, 8, 1, 0, 1, 1, 0, 0)
    (folder / "x.bmp").write_bytes(b"BM" + head + bytes(1024) + b"\xff\0" * 600_000)
    return folder / "x.bmp"


@hostile("image: 16 sparse files of 180 MB", "image")
def sparse_images(folder: Path) -> Path:
    for number in range(16):
        with (folder / f"{number}.png").open("wb") as file:
            file.write(b"\x89PNG\r\n\x1a\n")
            file.truncate(180_000_000)
    return folder


@hostile("image: a sparse file of 1 TB", "image")
def sparse_image(folder: Path) -> Path:
    with (folder / "x.jpg").open("wb") as file:
        file.truncate(10**12)
    return folder / "x.jpg"


# --- reading them -----------------------------------------------------------------------------------------

_CHILD = """
import contextlib, io, sys, time
from pathlib import Path
import numpy as np
import pyarrow.parquet, pyarrow.compute, pyarrow.types
from uniot.cli import main
from uniot.distributed.inputs import opened_table, sharded_input
from uniot.distributed.locations import Location
from uniot.errors import UniotError
from uniot.images.decoding import decoded
from uniot.images.files import ImageFile, labelled_images
from uniot.images.preparation import Preparation
from uniot.images.embedding import Skipped, read_in_order
from uniot.io.embedding_files import read_embeddings, read_labels
from uniot.training import fit

def memory(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

def image(path):
    files = [ImageFile(path, path.name)] if path.is_file() else [ImageFile(one, one.name) for one in path.iterdir()]
    answers = set()
    for file, found in read_in_order(files, Preparation(), None, workers=16, ahead=32):
        answers.add(f"{file.name}: {found.reason}" if isinstance(found, Skipped) else "was read")
    return "; ".join(sorted(answers))

def adapt(path):
    np.savez(path.parent / "target.npz", x=np.ones((10, 2)))
    sys.argv = ["uniot", "adapt", str(path), str(path.parent / "target.npz"), "--out", str(path.parent / "run")]
    with contextlib.redirect_stderr(io.StringIO()) as printed:
        try:
            main()
        except SystemExit:
            pass
    return " ".join(printed.getvalue().split())

# As workers of `--engine ray` read.
def shards(path):
    place, n_rows = Location.of(path), 0
    for shard in sharded_input(place).shards:
        with opened_table(place, shard.content.name) as table:
            n_rows += sum(len(x) for x, _ in table.blocks(shard.content.groups))
    return f"was read: {n_rows} rows"

READERS = {
    "embeddings": lambda path: f"was read: {read_embeddings(path).x.shape}",
    "labels": lambda path: f"was read: {read_labels(path, ['a', 'b']).shape}",
    "list": lambda path: f"was read: {len(labelled_images(path))}",
    "adapt": adapt,
    "shards": shards,
    "image": image,
}
path, reader = Path(sys.argv[1]), READERS[sys.argv[2]]
if sys.argv[2] == "image":
    from PIL import Image
    for kind in ("PNG", "JPEG", "WEBP", "TIFF", "GIF", "BMP"):
        Image.new("RGB", (8, 8)).save(stream := io.BytesIO(), kind)
        with decoded(stream.getvalue()):
            pass
Path("/proc/self/clear_refs").write_text("5")  # the highest memory begins anew
before, began = memory("VmRSS"), time.perf_counter()
try:
    answer = reader(path)
except UniotError as error:
    answer = str(error)
except BaseException as error:
    answer = f"{type(error).__name__} {error}"
print(memory("VmHWM") - before, time.perf_counter() - began, repr(answer[:600]))
"""


@dataclass(frozen=True)
class Outcome:
    """What came of reading a file."""

    n_bytes: int
    peak: float
    seconds: float
    answer: str

    def row(self, one: Hostile) -> str:
        """A line of the table in Markdown: file, size, reader, memory and the first sentence of the answer."""
        said = re.sub(r"\S*/uniot-hostile-\w+/?", "", self.answer.removeprefix("Loading PyTorch … Error: ")).strip()
        said = re.split(r"(?<=[^.0-9])\. |; \d+\.png", said)[0].rstrip(".").replace("|", "/").replace("<", "&lt;")
        size, peak = self.n_bytes / 1e6, max(0, self.peak)
        return f"| {one.name} | {f'{size:.0f}' if size > 100 else f'{size:.3g}'} | {one.reader} | {peak:.2f} | {said} |"


def outcome(one: Hostile, root: Path) -> Outcome:
    """Make a file, read it in a process of its own, and remove it."""
    with tempfile.TemporaryDirectory(prefix="uniot-hostile-", dir=root) as folder:
        path = one.make(Path(folder))
        files = [path] if path.is_file() else list(path.iterdir())
        n_bytes = sum(file.stat().st_size for file in files)
        child = [sys.executable, "-X", "utf8", "-c", _CHILD, str(path), one.reader]
        done = subprocess.run(child, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        return Outcome(n_bytes, float("inf"), 0, f"ended with {done.returncode}: {done.stderr[-300:]}")
    peak, seconds, answer = done.stdout.splitlines()[-1].split(" ", 2)
    return Outcome(n_bytes, float(peak) / _GIGABYTE, float(seconds), answer.strip().strip("'\""))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--only", default="", help="files whose name has this in it, such as parquet")
    parser.add_argument("--folder", type=Path, help="where the files are made; the largest takes 2 GB")
    options = parser.parse_args()
    report = Report("hostile_files", options.quick)
    rows = ["| file | size in MB | read as | GB above the baseline | answer |", "|---|---|---|---|---|"]
    for one in HOSTILE:
        if options.only not in one.name or (options.quick and "GB" in one.name):
            continue
        found = outcome(one, options.folder or Path(tempfile.gettempdir()))
        what = f"{one.name} ({found.n_bytes / 1e6:.3g} MB), {one.reader}, memory above the baseline"
        report.at_most(what, found.peak, _MOST, "GB", seconds=found.seconds, answer=found.answer)
        print(f"    {found.seconds:.1f} s: {found.answer}", flush=True)
        rows.append(found.row(one))
    print("\n".join(rows))
    report.finish(options.json)


if __name__ == "__main__":
    main()
