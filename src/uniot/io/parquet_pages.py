"""Read the page headers of a Parquet file, which say how much memory a column takes before any of it is unpacked.

The metadata at the end of a file has such numbers too, but a hostile file may give wrong ones there, while a decoder
allocates what the page headers say. They are Thrift structs in its compact protocol.

References:
    Apache Parquet format, https://parquet.apache.org/docs/file-format/; Thrift compact protocol,
    https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

# Statistics make a header long; Arrow reads none above 16 MiB either.
_FIRST_HEADER_BYTES, _MAX_HEADER_BYTES = 1 << 9, 1 << 24
_MAX_DEPTH = 16

# Numbers of types, pages and encodings in the two specifications.
_TRUE, _FALSE, _BYTE, _I32, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 5, 7, 8, 9, 10, 11, 12
_INTEGERS = (4, _I32, 6)
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
_SIMPLE_ENCODINGS = (0, 2, 8)  # plain, and two names of indices into the dictionary
# Of a page header: the field that describes a page of this type, and in it those of n_values and of the encoding.
_DESCRIPTIONS = {_DATA_PAGE: (5, 1, 2), _DICTIONARY_PAGE: (7, 1, 2), _DATA_PAGE_V2: (8, 1, 4)}


@dataclass(frozen=True)
class Pages:
    """What the pages of a column in a row group say about themselves.

    Attributes:
        n_values: number of values, those of lists counted one by one.
        values_per_page: fewest values of a page of values, the last one of a row group aside.
        largest: size in bytes of the largest page after decompression.
        dictionary: size in bytes of the largest dictionary after decompression.
        packed: size in bytes of all pages in the file.
        is_simple: whether every page is plain or refers to the dictionary. Other encodings of text may be unpacked to
            many times the size of a page, because they repeat the beginning of the value before.
    """

    n_values: int = 0
    values_per_page: int = sys.maxsize
    largest: int = 0
    dictionary: int = 0
    packed: int = 0
    is_simple: bool = True


def column_pages(file: BinaryIO, chunk: Any) -> Pages:
    """Return what the page headers of a column chunk say; no page is read.

    Args:
        file: the Parquet file.
        chunk: `pyarrow.parquet.ColumnChunkMetaData`.

    Raises:
        ValueError: a header is damaged.
    """
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < start:
        start = chunk.dictionary_page_offset
    pages = list(_headers(file, start, start + chunk.total_compressed_size))
    of_values = [page.n_values for page in pages if not page.dictionary]
    return Pages(
        sum(of_values),
        min(of_values[:-1], default=sys.maxsize),
        max((page.largest for page in pages), default=0),
        max((page.dictionary for page in pages), default=0),
        sum(page.packed for page in pages),
        all(page.is_simple for page in pages),
    )


def _headers(file: BinaryIO, start: int, end: int) -> Iterator[Pages]:
    while start < end:
        header, n_bytes = _header_at(file, start)
        kind, unpacked, packed = (header.get(field) for field in (1, 2, 3))
        if not (isinstance(kind, int) and isinstance(unpacked, int) and isinstance(packed, int)):
            raise ValueError("a page has no type or no size")
        if unpacked < 0 or packed < 0 or start + n_bytes + packed > end:
            raise ValueError("a page is larger than its column")
        start += n_bytes + packed
        if kind in _DESCRIPTIONS:
            yield _page(kind, unpacked, packed, header)


def _page(kind: int, unpacked: int, packed: int, header: dict[int, Any]) -> Pages:
    described_at, n_values_at, encoding_at = _DESCRIPTIONS[kind]
    description = header.get(described_at)
    n_values, encoding = (
        (description.get(n_values_at), description.get(encoding_at)) if isinstance(description, dict) else (None, None)
    )
    if not isinstance(n_values, int) or n_values < 0 or not isinstance(encoding, int):
        raise ValueError("a page does not say how many values it has")
    if kind == _DICTIONARY_PAGE:
        if n_values > unpacked:
            raise ValueError("a dictionary has more values than bytes")
        return Pages(largest=unpacked, dictionary=unpacked, packed=packed)
    return Pages(n_values, n_values, unpacked, packed=packed, is_simple=encoding in _SIMPLE_ENCODINGS)


def _header_at(file: BinaryIO, start: int) -> tuple[dict[int, Any], int]:
    """Return the fields of the page header at a place of the file, and its length in bytes."""
    size = _FIRST_HEADER_BYTES
    while True:
        file.seek(start)
        reader = _CompactReader(file.read(size))
        try:
            return reader.struct(), reader.position
        except IndexError:
            if len(reader.data) < size or size >= _MAX_HEADER_BYTES:
                raise ValueError("a page header is cut off") from None
        size *= 8


class _CompactReader:
    """Reads Thrift structs as Thrift's own code does: i32 fields and structs are kept, everything else is skipped.

    Raises IndexError at the end of the data.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Return the fields of a struct by number."""
        fields: dict[int, Any] = {}
        number = 0
        while (head := self._byte()) != 0:
            kind = head & 15
            number = number + (head >> 4) if head >> 4 else _signed(self._varint(), 16)
            value = None if kind in (_TRUE, _FALSE) else self._value(kind, depth)
            if value is not None:
                fields[number] = value
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise ValueError("a page header is nested too deeply")
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind in _INTEGERS:
            value = self._varint()
            # Thrift keeps the lower 32 bits of a longer number.
            return _signed(value, 32) if kind == _I32 else None
        if kind == _BINARY:
            self._skip(self._varint() & 0xFFFFFFFF)
        elif kind in (_TRUE, _FALSE, _BYTE):
            self._skip(1)
        elif kind == _DOUBLE:
            self._skip(8)
        elif kind in (_LIST, _SET):
            head = self._byte()
            count = head >> 4 if head >> 4 != 15 else self._varint()
            self._skip_values(count, (head & 15,), depth)
        elif kind == _MAP:
            count = self._varint()
            kinds = self._byte() if count else 0
            self._skip_values(count, (kinds >> 4, kinds & 15), depth)
        else:
            raise ValueError(f"a page header has a field of unknown type {kind}")
        return None

    def _skip_values(self, count: int, kinds: tuple[int, ...], depth: int) -> None:
        for _ in range(count):
            for kind in kinds:
                self._value(kind, depth + 1)

    def _byte(self) -> int:
        self.position += 1
        return self.data[self.position - 1]

    def _skip(self, count: int) -> None:
        self.position += count
        if self.position > len(self.data):
            raise IndexError

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise ValueError("a page header has a number without end")


def _signed(value: int, bits: int) -> int:
    """Return a number from its zigzag form, in which 0, 1, 2, 3 stand for 0, -1, 1, -2."""
    value &= (1 << bits) - 1
    return (value >> 1) ^ -(value & 1)
