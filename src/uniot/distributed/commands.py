"""Embed images, or predict images and embeddings, into a folder of Parquet files; what is done is not done again."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from uniot.config import ImageSettings
from uniot.distributed.computations import READER, Bundle, EmbedImages, PredictSamples, engine_key
from uniot.distributed.engine import Cluster, OnProgress, Work, import_ray, run_shards
from uniot.distributed.inputs import ShardedInput, sharded_images, sharded_input
from uniot.distributed.locations import Location
from uniot.distributed.shards import SKIPPED, Manifest, ShardFolder
from uniot.errors import DataError
from uniot.images.backbones import ImageReader
from uniot.images.embedding import Skipped
from uniot.io.files import only_one_writer
from uniot.runs import Run


@dataclass(frozen=True)
class ShardedOutput:
    """A finished output.

    Attributes:
        location: its folder.
        rows: rows of all parts together.
        skipped: images that could not be read.
        n_shards: number of shards.
        n_computed: number of shards that this call computed; the others were done before.
        n_lost: number of workers that ended early and were replaced; their shards were computed again.
        n_known: rows that are known; None for embeddings.
        groups: groups of the unknown rows; None for embeddings.
    """

    location: str
    rows: int
    skipped: list[Skipped]
    n_shards: int
    n_computed: int
    n_lost: int
    n_known: int | None = None
    groups: frozenset[int] | None = None

    @property
    def skipped_table(self) -> str:
        """Return the path or URL of the table of images that could not be read."""
        return f"{self.location}/{SKIPPED}"


def embed_shards(
    images: str | Path,
    out: str | Path,
    settings: ImageSettings | None = None,
    *,
    labelled: bool = False,
    strict: bool = False,
    cluster: Cluster | None = None,
    per_shard: int | None = None,
    on_progress: OnProgress | None = None,
) -> ShardedOutput:
    """Embed images with a pretrained network into a folder of Parquet files of embeddings.

    Args:
        images: a folder, a URL of one, a list file or an image.
        out: folder or URL for the parts. The same call continues an interrupted one.
        settings: backbone and views of an image; the default backbone if None.
        labelled: whether labels are written: the first folders of the names, or those of the list file.
        strict: whether an image that cannot be read is an error; otherwise it is skipped.
        cluster: where to compute; on this machine, or at `$RAY_ADDRESS`, if None.
        per_shard: images per part; 1024 if None.
        on_progress: callback with images done, total, computed, and images per second.

    Returns:
        What was written.

    Raises:
        DataError: there is no image that can be read, or `out` holds something else.
        MissingPackageError: Ray is not installed.
    """
    cluster = cluster or Cluster()
    import_ray(cluster)
    location = _output_of(out, images)
    source = sharded_images(Location.of(images), labelled=labelled, per_shard=per_shard)
    reader = ImageReader.open(settings or ImageSettings.checked()).without_path()
    made_by = engine_key(reader.split)
    manifest = _manifest("embeddings", source, {"network": made_by, "labels": labelled})
    with _alone(location), tempfile.TemporaryDirectory(prefix="uniot-") as folder:
        path = Path(folder) / READER
        reader.save(path)
        work = Work(EmbedImages(made_by, labelled), Bundle.of([path]), source, location, strict)
        return _written(work, ShardFolder(location, manifest), cluster, on_progress)[0]


def predict_shards(
    run: str | Path,
    new: str | Path,
    out: str | Path,
    *,
    private_prior: float | None = None,
    prefer: str | None = None,
    strict: bool = False,
    cluster: Cluster | None = None,
    per_shard: int | None = None,
    on_progress: OnProgress | None = None,
) -> ShardedOutput:
    """Predict images or embeddings by a finished run into a folder of Parquet files of predictions.

    Args:
        run: folder of the run, on this machine.
        new: images as for `embed_shards`; or a Parquet file of embeddings, a folder of such files, or its URL.
        out: as for `embed_shards`.
        private_prior: as for `Run.open`.
        prefer: as for `Run.open`.
        strict: as for `embed_shards`.
        cluster: as for `embed_shards`.
        per_shard: as for `embed_shards`; embeddings are divided by their files and row groups.
        on_progress: as for `embed_shards`.

    Returns:
        What was written.

    Raises:
        DataError: the samples do not fit the run, none can be read, or `out` holds something else.
        MissingPackageError: Ray is not installed.
    """
    cluster = cluster or Cluster()
    import_ray(cluster)
    location = _output_of(out, new)
    source = sharded_input(Location.of(new), per_shard=per_shard)
    opened = Run.open(run, private_prior, prefer)
    bundle = Bundle.of(opened.files.needed_to_predict())
    reader = opened.model.reader
    if source.kind == "images" and reader is None:
        raise DataError(
            "this run was made from embeddings, and the network that made them is not known. "
            "Give embeddings of the same network: a folder of .parquet files."
        )
    made_by = None if source.kind == "embeddings" or reader is None else engine_key(reader.split)
    preference = [private_prior, prefer]
    manifest = _manifest("predictions", source, {"run": bundle.digest, "network": made_by, "preference": preference})
    with _alone(location):
        work = Work(PredictSamples(made_by, private_prior, prefer), bundle, source, location, strict)
        output, folder = _written(work, ShardFolder(location, manifest), cluster, on_progress)
    n_known, groups = 0, set[int]()
    for shard in source.shards:
        columns = folder.column(shard.number, ("known", "group"))
        n_known += sum(columns["known"])
        groups.update(group for group in columns["group"] if group is not None)
    return replace(output, n_known=n_known, groups=frozenset(groups))


def _output_of(out: str | Path, given: str | Path) -> Location:
    """Return the place of an output; raises DataError if it would be a part of the input when it is continued."""
    location, source = Location.of(out), Location.of(given)
    ends = [one.text if one.is_url else os.path.realpath(one.text) for one in (location, source)]
    if f"{ends[0]}/".startswith(f"{ends[1]}/"):
        raise DataError(f"{location} lies in {source}, which is read. Give a folder outside of it as --out.")
    return location


def _manifest(output: str, source: ShardedInput, settings: dict[str, Any]) -> Manifest:
    about = {"kind": source.kind, "place": source.location.text, "count": source.count, "digest": source.digest}
    return Manifest(output, about, settings, len(source.shards))


def _written(
    work: Work, folder: ShardFolder, cluster: Cluster, on_progress: OnProgress | None
) -> tuple[ShardedOutput, ShardFolder]:
    folder.begin()
    source = work.source
    counts = [shard.count for shard in source.shards]
    done = folder.done(counts)
    missing = [shard for shard in source.shards if shard.number not in done]
    lost = run_shards(work, missing, cluster, on_progress) if missing else 0
    skipped = folder.skipped() if folder.manifest.complete and not missing else folder.finish(counts)
    if work.strict and skipped:
        raise DataError(
            f"{skipped[0].name} cannot be used ({skipped[0].reason}); an earlier command without --strict skipped it. "
            "Replace or remove it, and give a new folder as --out."
        )
    rows = folder.manifest.rows or 0
    if not rows:
        raise DataError(
            f"none of {source.count} images can be used; the first is {skipped[0].name} ({skipped[0].reason}). Check "
            "that they are images and can be read."
        )
    return ShardedOutput(work.out.text, rows, skipped, len(counts), len(missing), lost), folder


@contextmanager
def _alone(location: Location) -> Iterator[None]:
    """Lock a folder of this machine against other writers; an object store has no locks."""
    if location.is_url:
        yield
        return
    with only_one_writer(location.path):
        yield
