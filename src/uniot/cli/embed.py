"""`uniot embed`: a folder of images in, a file of embeddings out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from uniot.cli.checks import check_writable
from uniot.cli.progress import reading_progress
from uniot.cli.screen import skipped_line
from uniot.errors import DataError
from uniot.words import counted


def embed(
    images: Annotated[Path, typer.Argument(help="A folder of images, a list file, or an image.")],
    out: Annotated[Path, typer.Option(help="File to write: .npz, .npy, .parquet or .safetensors.")],
    labelled: Annotated[
        bool, typer.Option("--labelled", help="The folders, or the list file, hold labels: write them too.")
    ] = False,
    backbone: Annotated[str, typer.Option(help="A timm model; the default needs no download.")] = "efficientnet_lite0",
    weights: Annotated[Path | None, typer.Option(help="Its weights from a file.")] = None,
    flip: Annotated[
        bool, typer.Option("--flip", help="Average with the embedding of the mirrored image; twice the time.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first image that cannot be read.")] = False,
    store: Annotated[Path | None, typer.Option(help="Folder that keeps embeddings between runs; one of yours.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Threads that read and decode images; one per core.")
    ] = None,
) -> None:
    """Compute the embeddings of images with a pretrained network.

    Example: `uniot embed labelled/ --labelled --out labelled.npz`
    """
    import numpy as np

    from uniot.data.embedding_files import WRITTEN_SUFFIXES, write_embeddings
    from uniot.data.image_files import holds_images, labelled_images, unlabelled_images
    from uniot.embeddings.image_reader import ImageReader
    from uniot.embeddings.store import EmbeddingStore
    from uniot.images import Reading, read_collection, skipped_beside, write_skipped
    from uniot.run_folder import replacing
    from uniot.settings import ImageSettings

    if not holds_images(images):
        raise DataError(f"{images} is not a folder of images, a list file or an image. Give one of these.")
    settings = ImageSettings.checked(backbone=backbone, weights=None if weights is None else str(weights), flip=flip)
    check_writable(out, WRITTEN_SUFFIXES)
    reader = ImageReader.open(settings)
    files = labelled_images(images) if labelled else unlabelled_images(images)
    with reading_progress({"images": images}) as progress:
        found = read_collection(files, reader, Reading(EmbeddingStore(store), strict, workers, progress))
    labels = np.array([str(file.label) for file in found.files]) if labelled else None
    names = [file.name for file in found.files]
    write_embeddings(out, found.values.astype(np.float32), labels, names, replacing=replacing)
    width, views = found.values.shape[1], ", averaged with the mirrored images" if flip else ""
    typer.echo(f"{out} holds {counted(len(names), 'embedding')} of {width} numbers by {backbone}{views}.")
    write_skipped(skipped_beside(out), found.skipped)
    if found.skipped:
        typer.echo(skipped_line(found.skipped, skipped_beside(out)))
