"""Lists of the images of each domain, for tasks in which a network is trained on the images themselves."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from uniot.benchmark.features import DomainFacts
from uniot.errors import DataError
from uniot.images.files import ImageFile
from uniot.io.csv_tables import CsvError, dict_reader, write_table

_COLUMNS = ("path", "name", "label", "size", "modified", "content", "network")


@dataclass(frozen=True)
class ImageList:
    """The images of a domain, all of which could be read.

    Attributes:
        files: images with their labels.
        contents: SHA-256 of the bytes of each, in hexadecimal.
        network: digest of the network that is trained on them.
    """

    files: tuple[ImageFile, ...]
    contents: tuple[str, ...]
    network: str

    @property
    def labels(self) -> list[str]:
        """Return the label of each image."""
        return [str(file.label) for file in self.files]

    @property
    def digest(self) -> str:
        """Return a SHA-256 digest of the images and their labels in order, and of the network."""
        parts = [self.network, *self.contents, "|", *self.labels]
        return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()

    def of_classes(self, names: Sequence[str]) -> ImageList:
        """Return the images of some classes."""
        kept = [row for row, label in enumerate(self.labels) if label in names]
        if not kept:
            raise DataError(f"no image is of {', '.join(names[:3])} or another class of the split. Compare the names.")
        return ImageList(
            tuple(self.files[row] for row in kept), tuple(self.contents[row] for row in kept), self.network
        )


def write_list(folder: Path, name: str, images: ImageList) -> None:
    """Write the list of a domain to `name`.csv."""
    rows = [
        (str(file.path.absolute()), file.name, label, *_stamp(file.path), content, images.network)
        for file, label, content in zip(images.files, images.labels, images.contents, strict=True)
    ]
    write_table(folder / f"{name}.csv", _COLUMNS, rows)


def read_list(folder: Path, name: str) -> ImageList:
    """Return the list of a domain that `write_list` wrote; raise DataError if an image has changed since."""
    path = folder / f"{name}.csv"
    files, contents, networks = [], [], set()
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for row in dict_reader(file, strict=True):
                image = Path(row["path"])
                if (row["size"], row["modified"]) != _stamp(image):
                    raise DataError(
                        f"{image} has changed since the benchmark was planned. Run `uniot benchmark` again."
                    )
                files.append(ImageFile(image, row["name"], row["label"]))
                contents.append(row["content"])
                networks.add(row["network"])
    except (OSError, UnicodeDecodeError, CsvError, KeyError, TypeError) as error:
        raise DataError(f"{path} cannot be read as a list of images ({error}). Run `uniot benchmark` again.") from None
    if len(networks) != 1:
        raise DataError(f"{path} holds no images, or images of several networks. Run `uniot benchmark` again.")
    return ImageList(tuple(files), tuple(contents), networks.pop())


def is_list_of(folder: Path, name: str, files: Sequence[ImageFile], network: str) -> bool:
    """Return whether the list of a domain is of exactly these files, unchanged, and of this network."""
    try:
        found = read_list(folder, name)
    except DataError:
        return False
    same = [(one.path, one.label) for one in found.files] == [(one.path.absolute(), one.label) for one in files]
    return same and found.network == network


def list_facts(folder: Path, name: str) -> DomainFacts:
    """Return the facts of a listed domain; its images have no width."""
    found = read_list(folder, name)
    sizes = {label: found.labels.count(label) for label in sorted(set(found.labels))}
    return DomainFacts(name, 0, tuple(sizes), sizes, found.digest)


def _stamp(path: Path) -> tuple[str, str]:
    """Return size and time of the last change of a file, as text."""
    try:
        about = path.stat()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}). Bring it back and run the command again.") from None
    return str(about.st_size), str(about.st_mtime_ns)
