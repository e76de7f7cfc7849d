"""Read parts of an .h5ad file, bounded in memory, without following any link out of the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from uniot.errors import DataError, UniotError, import_optional
from uniot.io.array_files import NAME_BYTES, Unpacked
from uniot.io.files import open_regular
from uniot.io.text import listed

NEEDED_FOR = "reading .h5ad files"
_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_SAVE_AGAIN = "Save it again with `adata.write_h5ad(file)`."
# Texts are read in blocks: many rows may refer to one long text, which takes its memory once per row.
_TEXT_BLOCK_BYTES, _FEWEST_ROWS = 1 << 29, 64
# A group with more members than this is no table of cells, and listing it would take minutes.
_MOST_OBJECTS = 100_000


def is_h5ad(path: Path) -> bool:
    """Return whether a path is, by its name, a file of cells."""
    return path.suffix.lower() == ".h5ad"


class H5adFile:
    """An open .h5ad file whose parts are read on request.

    Args:
        path: the file.
        file: its `h5py.File`.
        n_bytes: its size.
    """

    def __init__(self, path: Path, file: Any, n_bytes: int) -> None:
        self.path, self._file, self._n_bytes = path, file, n_bytes
        self._unpacked = Unpacked(path, n_bytes, "If this is intended, save it without compression.")

    def has(self, place: str) -> bool:
        """Return whether the file has an object at a place such as obsm/X_pca."""
        return place in self._file

    def members(self, place: str) -> list[str]:
        """Return the names of the objects below a place; none if it is not there."""
        found = self._file.get(place)
        return [str(name) for name in found] if hasattr(found, "keys") else []

    def columns(self, table: str) -> list[str]:
        """Return the names of the columns of obs, var or raw/var, without that of the index."""
        if not hasattr(self._file.get(table), "keys"):
            raise DataError(
                f"{self.path} has no table {table!r} as anndata 0.7 and later write it. Open it with anndata and save "
                "it again."
            )
        index = self._index_of(table)
        order = [_text(name) for name in np.atleast_1d(self._file[table].attrs.get("column-order", []))]
        names = self.members(table)
        found = [name for name in order if name in names] or names
        return [name for name in found if name not in (index, "__categories")]

    def index(self, table: str) -> list[str]:
        """Return the names of the rows of obs, var or raw/var."""
        if not self.has(table):
            raise DataError(f"{self.path} has no table {table!r}, so it is not a file of cells. {_SAVE_AGAIN}")
        values = self.column(table, self._index_of(table))
        return ["" if value is None else str(value) for value in values.tolist()]

    def _index_of(self, table: str) -> str:
        return _text(self._file[table].attrs.get("_index", "_index"))

    def column(self, table: str, name: str) -> np.ndarray:
        """Return a column as objects, None for missing values, (n_rows,).

        Raises:
            DataError: the column holds anything but text, numbers, truth values or categories of these.
        """
        place = f"{table}/{name}"
        found = self._file[place] if self.has(place) else None
        if found is None:
            raise DataError(f"{self.path} has no {place}. It has: {listed(self.members(table)) or 'nothing'}.")
        if not hasattr(found, "keys"):
            return self._old_categories(table, name, self._values(place))
        kind = _text(found.attrs.get("encoding-type", ""))
        parts = {
            part: self._values(f"{place}/{part}") for part in ("codes", "categories", "values", "mask") if part in found
        }
        if kind == "categorical" and {"codes", "categories"} <= set(parts):
            return self._of_categories(place, parts["codes"], parts["categories"])
        if kind.startswith("nullable-") and {"values", "mask"} <= set(parts):
            if parts["values"].shape != parts["mask"].shape:
                raise self._damaged(place, "values and mask differ in length")
            values = parts["values"].astype(object)
            values[parts["mask"].astype(bool)] = None
            return values
        raise DataError(
            f"{self.path} holds {place} as {kind or 'a group'!r}. Give a column of text, numbers or categories."
        )

    def _old_categories(self, table: str, name: str, values: np.ndarray) -> np.ndarray:
        """Return a column; files of anndata 0.7 hold categories in a table of their own."""
        place = f"{table}/__categories/{name}"
        if self.has(place):
            return self._of_categories(place, values, self._values(place))
        objects = values.astype(object)
        if values.dtype.kind == "f":
            objects[np.isnan(values)] = None
        return objects

    def _of_categories(self, place: str, codes: np.ndarray, categories: np.ndarray) -> np.ndarray:
        if codes.dtype.kind not in "iu" or codes.ndim != 1 or categories.ndim != 1:
            raise self._damaged(place, "its codes are no whole numbers")
        if len(codes) and not (int(codes.min()) >= -1 and int(codes.max()) < len(categories)):
            raise self._damaged(place, f"a code is beyond its {len(categories)} categories")
        # One more, at the end, where -1 finds it.
        found: np.ndarray = np.append(categories.astype(object), [None])[codes]
        return found

    def shape(self, place: str) -> tuple[int, ...]:
        """Return the shape of an array or a sparse matrix."""
        found = self._file[place]
        if hasattr(found, "keys"):
            return tuple(
                int(size) for size in np.atleast_1d(found.attrs.get("shape", found.attrs.get("h5sparse_shape", ())))
            )
        return tuple(int(size) for size in found.shape)

    def array(self, place: str) -> np.ndarray:
        """Return an array of numbers as a whole."""
        if hasattr(self._file[place], "keys"):
            kind = _text(self._file[place].attrs.get("encoding-type", "a group"))
            raise DataError(f"{self.path} holds {place} as {kind!r}. Give a dense array of numbers.")
        values = self._values(place)
        if values.dtype.kind not in "iufb":
            raise DataError(f"{self.path} holds {place} as {values.dtype}. Give numbers.")
        return values

    def matrix(self, place: str) -> Any:
        """Return a matrix whose rows are read on request: a `StoredSparse` or a `StoredDense`."""
        found = self._file[place]
        if not hasattr(found, "keys"):
            self._check_dataset(place, found)
            self._count(place, found)
            if found.ndim != 2 or found.dtype.kind not in "iufb":
                raise DataError(
                    f"{self.path} holds {place} as {found.ndim}-dimensional {found.dtype}. Give a matrix of numbers."
                )
            return StoredDense(self, place, found)
        kind = _text(found.attrs.get("encoding-type", found.attrs.get("h5sparse_format", "")))
        shape = self.shape(place)
        if not {"data", "indices", "indptr"} <= set(found) or len(shape) != 2 or min(shape) < 0:
            raise self._damaged(place, "it is neither an array nor a sparse matrix")
        for part in ("data", "indices"):
            self._check_dataset(f"{place}/{part}", found[part])
            self._count(f"{place}/{part}", found[part])
        by_rows = not kind.startswith("csc")
        return StoredSparse(self, place, shape, self._values(f"{place}/indptr"), by_rows=by_rows)

    def numbers(self, place: str, start: int, stop: int) -> np.ndarray:
        """Return some rows of an array of numbers, which `matrix` has checked."""
        return np.asarray(self._file[place][start:stop])

    def _values(self, place: str) -> np.ndarray:
        """Return a one-dimensional array of text or numbers, or any array of numbers, as a whole."""
        found = self._file[place]
        self._check_dataset(place, found)
        if found.dtype.kind == "O":
            return self._texts(place, found)
        self._count(place, found)
        values = np.asarray(found[()])
        return (
            np.char.decode(values, "utf-8", "backslashreplace").astype(object) if values.dtype.kind == "S" else values
        )

    def _texts(self, place: str, found: Any) -> np.ndarray:
        if found.ndim > 1:
            raise self._damaged(place, "it is no column")
        n_rows = int(found.size)
        self._unpacked.add(place, NAME_BYTES * n_rows)
        texts = np.empty(n_rows, dtype=object)
        decoded = found.asstr("utf-8", "backslashreplace")
        if found.ndim == 0:
            texts[0] = decoded[()]
            return texts
        step = min(1 << 16, max(_FEWEST_ROWS, _TEXT_BLOCK_BYTES // max(self._n_bytes, 1)))
        for start in range(0, n_rows, step):
            block = decoded[start : start + step]
            self._unpacked.add(place, sum(map(len, block)))
            texts[start : start + len(block)] = block
        return texts

    def _count(self, place: str, dataset: Any) -> None:
        self._unpacked.add(place, int(dataset.size) * max(int(dataset.dtype.itemsize), 1))
        if dataset.chunks is not None:
            # HDF5 unpacks a whole chunk for a single row.
            n_bytes = int(np.prod(dataset.chunks, dtype=np.float64)) * dataset.dtype.itemsize
            Unpacked(self.path, self._n_bytes, _SAVE_AGAIN).add(place, n_bytes)

    def _check_dataset(self, place: str, found: Any) -> None:
        """Raise DataError if an array is elsewhere than in this file, or holds anything but numbers and text."""
        import h5py

        if hasattr(found, "keys"):
            raise self._damaged(place, "it is a group in place of an array")
        is_text = h5py.check_string_dtype(found.dtype) is not None
        if not (is_text or found.dtype.kind in "iufb"):
            raise DataError(
                f"{self.path} holds {place} as objects of the type {found.dtype}, which uniot never loads. Save "
                "numbers, text or categories."
            )

    def _damaged(self, place: str, reason: str) -> DataError:
        return DataError(f"{self.path} cannot be read: in {place}, {reason}. {_SAVE_AGAIN}")


class StoredDense:
    """Rows of a dense matrix in a file.

    Attributes:
        shape: of the matrix.
    """

    def __init__(self, file: H5adFile, place: str, dataset: Any) -> None:
        self.shape: tuple[int, int] = (int(dataset.shape[0]), int(dataset.shape[1]))
        self._file, self._place = file, place

    def rows(self, start: int, stop: int) -> Any:
        """Return some rows, (stop − start, n_columns)."""
        return self._file.numbers(self._place, start, stop)


class StoredSparse:
    """Rows of a sparse matrix in a file; one that is stored by columns is read as a whole.

    Attributes:
        shape: of the matrix.
    """

    def __init__(self, file: H5adFile, place: str, shape: Sequence[int], ends: np.ndarray, *, by_rows: bool) -> None:
        self.shape: tuple[int, int] = (int(shape[0]), int(shape[1]))
        self._file, self._place, self._ends, self._by_rows = file, place, ends, by_rows
        n_stored = file.shape(f"{place}/data")
        major = self.shape[0] if by_rows else self.shape[1]
        fits = ends.dtype.kind in "iu" and ends.shape == (major + 1,) and n_stored == file.shape(f"{place}/indices")
        if not fits or int(ends[0]) != 0 or (int(ends[-1]),) != n_stored or (np.diff(ends.astype(np.int64)) < 0).any():
            raise DataError(f"{file.path} cannot be read: {place} is a damaged sparse matrix. {_SAVE_AGAIN}")
        self._whole: Any = None

    def rows(self, start: int, stop: int) -> Any:
        """Return some rows as a CSR matrix, (stop − start, n_columns)."""
        from scipy import sparse

        if self._by_rows:
            first, last = int(self._ends[start]), int(self._ends[stop])
            return self._part(first, last, self._ends[start : stop + 1] - first, stop - start, self.shape[1])
        if self._whole is None:
            turned = self._part(0, int(self._ends[-1]), self._ends, self.shape[1], self.shape[0])
            self._whole = sparse.csr_matrix(turned.T)
        return self._whole[start:stop]

    def _part(self, first: int, last: int, ends: np.ndarray, n_major: int, n_minor: int) -> Any:
        from scipy import sparse

        values = self._file.numbers(f"{self._place}/data", first, last)
        places = self._file.numbers(f"{self._place}/indices", first, last)
        # SciPy does not check this, and would read memory that is not its own.
        inside = places.dtype.kind in "iu" and (
            not len(places) or (int(places.min()) >= 0 and int(places.max()) < n_minor)
        )
        if not inside or values.dtype.kind not in "iufb":
            raise DataError(
                f"{self._file.path} cannot be read: {self._place} is a damaged sparse matrix. {_SAVE_AGAIN}"
            )
        return sparse.csr_matrix((values, places, ends), shape=(n_major, n_minor))


@contextmanager
def open_h5ad(path: Path) -> Iterator[H5adFile]:
    """Open a file of cells for reading; errors of HDF5 within the `with` block become sentences.

    Raises:
        DataError: the file is missing, damaged or no HDF5, or refers to other files.
    """
    h5py = import_optional("h5py", "cells", NEEDED_FOR)
    try:
        with open_regular(path) as file:
            signature, n_bytes = file.read(len(_SIGNATURE)), file.seek(0, 2)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}). Give an .h5ad file that you may read.") from None
    if signature != _SIGNATURE:
        raise DataError(f"{path} is not an .h5ad file, which is HDF5. Make one with `adata.write_h5ad(file)`.")
    try:
        with h5py.File(path, "r") as opened:
            _check_links(path, opened)
            yield H5adFile(path, opened, n_bytes)
    except UniotError:
        raise
    except MemoryError:
        raise DataError(f"{path} needs more memory than is available. Give fewer cells.") from None
    except (OSError, KeyError, ValueError, RuntimeError, TypeError, IndexError, OverflowError) as error:
        reason = str(error).partition("\n")[0][:200] or type(error).__name__
        raise DataError(f"{path} cannot be read as .h5ad ({reason}). It may be truncated; make it again.") from None


def _check_links(path: Path, opened: Any) -> None:
    """Raise DataError if anything in the file refers to another file."""
    import h5py

    n_objects = 0

    def problem(name: bytes, info: Any) -> str | None:
        nonlocal n_objects
        n_objects += 1
        if n_objects > _MOST_OBJECTS:
            return f"has more than {_MOST_OBJECTS} objects, as no file of cells has"
        if info.type != h5py.h5l.TYPE_HARD:
            return f"has a link to another place, {_text(name)!r}, and only its own content is read"
        return None

    def check_array(name: str, found: Any) -> None:
        if isinstance(found, h5py.Dataset) and (found.is_virtual or found.external):
            raise DataError(f"{path} keeps {name!r} in another file, which is not read. {_SAVE_AGAIN}")

    found = opened.id.links.visit(problem, info=True)
    if found is not None:
        raise DataError(f"{path} {found}. {_SAVE_AGAIN}")
    opened.visititems(check_array)


def _text(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
