"""`uniot embed`: embeddings of images by a pretrained network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uniot.cli.options import (
    Store,
    Strict,
    Weights,
    check_writable,
)
from uniot.cli.screen import print_line, reading_progress, skipped_line, working
from uniot.cli.sharded import (
    Engine,
    EngineName,
    EngineWorkers,
    RayAddress,
    RayOptions,
    embed_in_shards,
    refuse_for_ray,
    refuse_without_ray,
)
from uniot.errors import DataError
from uniot.io.text import counted, quoted

if TYPE_CHECKING:
    from uniot.config import ImageSettings


def embed(
    images: Annotated[
        str, typer.Argument(help="A folder of images, a list file, or an image; with --engine ray also a URL.")
    ],
    out: Annotated[
        str, typer.Option(help="File to write: .npz, .npy, .parquet or .safetensors; with --engine ray a folder.")
    ],
    labelled: Annotated[
        bool,
        typer.Option("--labelled", help="Also write the labels: the names of the folders, or those in the list file."),
    ] = False,
    backbone: Annotated[
        str, typer.Option(help="Pretrained network, a model of timm; the default needs no download.")
    ] = "efficientnet_lite0",
    weights: Weights = None,
    flip: Annotated[
        bool, typer.Option("--flip", help="Also look at each image mirrored; takes twice as long.")
    ] = False,
    strict: Strict = False,
    store: Store = None,
    workers: EngineWorkers = None,
    engine: EngineName = Engine.PROCESS,
    ray_address: RayAddress = None,
) -> None:
    """Compute embeddings, the numbers by which a pretrained network describes an image.

    With --engine ray the embeddings are written to a folder of Parquet files, shard by shard; the images and the folder
    may be at URLs such as s3://bucket/photos.

    Example: `uniot embed labelled/ --labelled --out labelled.npz`
    """
    from uniot.config import ImageSettings

    settings = ImageSettings.checked(backbone=backbone, weights=None if weights is None else str(weights), flip=flip)
    if engine is Engine.RAY:
        refuse_for_ray({"--store": store})
        embed_in_shards(images, out, settings, labelled, strict, RayOptions(ray_address, workers))
        return
    refuse_without_ray({"--ray-address": ray_address}, images, out)
    _embed(Path(images), Path(out), settings, labelled=labelled, strict=strict, store=store, workers=workers)


def _embed(
    images: Path,
    out: Path,
    settings: ImageSettings,
    *,
    labelled: bool,
    strict: bool,
    store: Path | None,
    workers: int | None,
) -> None:
    """Write embeddings to a file, in this process."""
    with working("Loading PyTorch"):
        import numpy as np

        from uniot.images.backbones import ImageReader
        from uniot.images.files import holds_images, labelled_images, unlabelled_images
        from uniot.images.store import EmbeddingStore
        from uniot.io.embedding_files import WRITTEN_SUFFIXES, write_embeddings
        from uniot.io.files import replacing
        from uniot.training.images import Reading, read_collection, skipped_beside, write_skipped

    if not holds_images(images):
        raise DataError(f"{images} is not a folder of images, a list file or an image. Give one of these.")
    check_writable(out, WRITTEN_SUFFIXES)
    files = labelled_images(images) if labelled else unlabelled_images(images)
    with working(f"Loading the network {settings.backbone}"):
        reader = ImageReader.open(settings)
    with reading_progress({"images": str(images)}) as progress:
        found = read_collection(files, reader, Reading(EmbeddingStore(store), strict, workers, progress))
    labels = np.array([str(file.label) for file in found.files]) if labelled else None
    names = [file.name for file in found.files]
    write_embeddings(out, found.values.astype(np.float32), labels, names, replacing=replacing)
    width, views = found.values.shape[1], ", averaged with the mirrored images" if settings.flip else ""
    print_line(
        f"{quoted(out)} contains {counted(len(names), 'embedding')} of {width} numbers by {settings.backbone}{views}."
    )
    write_skipped(skipped_beside(out), found.skipped)
    if found.skipped:
        print_line(skipped_line(found.skipped, skipped_beside(out)))
