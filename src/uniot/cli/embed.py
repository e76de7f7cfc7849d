"""`uniot embed`: embeddings of images or texts by a pretrained network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uniot.cli.options import (
    EncoderName,
    IdsColumn,
    LabelColumn,
    ShowColumn,
    Store,
    Strict,
    TextColumn,
    Weights,
    check_encoder,
    check_writable,
    refuse_for_embeddings,
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
from uniot.errors import DataError, SettingsError
from uniot.io.columns import Columns
from uniot.io.files import check_exists
from uniot.io.text import counted, quoted

if TYPE_CHECKING:
    from uniot.config import ImageSettings

_BACKBONE = "efficientnet_lite0"


def embed(
    images: Annotated[
        str,
        typer.Argument(
            help="A folder of images, a list file, or an image; with --text a table; with --engine ray also a URL."
        ),
    ],
    out: Annotated[
        str, typer.Option(help="File to write: .npz, .npy, .parquet or .safetensors; with --engine ray a folder.")
    ],
    labelled: Annotated[
        bool,
        typer.Option(
            "--labelled", help="Also write the labels: the names of the folders, or those in the list file or table."
        ),
    ] = False,
    text: TextColumn = None,
    label: LabelColumn = None,
    ids: IdsColumn = None,
    show: ShowColumn = None,
    encoder: EncoderName = None,
    backbone: Annotated[
        str, typer.Option(help="Pretrained network, a model of timm; the default needs no download.")
    ] = _BACKBONE,
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
    """Compute embeddings, the numbers by which a pretrained network describes an image or a text.

    With --engine ray the embeddings are written to a folder of Parquet files, shard by shard; the images and the folder
    may be at URLs such as s3://bucket/photos.

    Example: `uniot embed labelled/ --labelled --out labelled.npz`

    For texts: `uniot embed tickets.csv --text message --out tickets.npz`
    """
    from uniot.config import ImageSettings

    columns = Columns(label, ids, show, text)
    check_encoder(encoder, text)
    of_images = {
        "--backbone": None if backbone == _BACKBONE else backbone,
        "--weights": weights,
        "--flip": flip or None,
        "--strict": strict or None,
        "--workers": workers,
    }
    if text is not None:
        refuse_for_embeddings(of_images, "the column --text holds texts")
        if engine is Engine.RAY:
            refuse_for_ray({"--text": text})
        refuse_without_ray({"--ray-address": ray_address}, images, out)
        _embed_texts(Path(images), Path(out), columns, encoder, labelled=labelled or label is not None, store=store)
        return
    if show is not None:
        raise SettingsError("--show is stored with the embeddings of texts. Give --text COLUMN too, or leave it out.")
    settings = ImageSettings.checked(backbone=backbone, weights=None if weights is None else str(weights), flip=flip)
    if engine is Engine.RAY:
        refuse_for_ray({"--store": store, "--label": label, "--ids": ids})
        embed_in_shards(images, out, settings, labelled, strict, RayOptions(ray_address, workers))
        return
    refuse_without_ray({"--ray-address": ray_address}, images, out)
    _embed(
        Path(images),
        Path(out),
        settings,
        columns,
        labelled=labelled or label is not None,
        strict=strict,
        store=store,
        workers=workers,
    )


def _embed_texts(
    table: Path, out: Path, columns: Columns, encoder: str | None, *, labelled: bool, store: Path | None
) -> None:
    """Write the embeddings of a column of texts to a file, with the texts."""
    with working("Loading PyTorch"):
        from uniot.adaptation.collections import Collection
        from uniot.images.embedding import ReadOptions
        from uniot.images.store import EmbeddingStore
        from uniot.io.embedding_files import WRITTEN_SUFFIXES, storable_texts, write_embeddings
        from uniot.io.files import replacing

    check_exists(table)
    check_writable(out, WRITTEN_SUFFIXES)
    read = columns.needs("text", "label", "ids", "show")
    if labelled:
        content = Collection.labelled(table, allow_one_class=True, columns=read)
    else:
        content = Collection.unlabelled(table, columns=read)
    for note in content.notes:
        print_line(note)
    with reading_progress({"texts": str(table)}, "text") as progress:
        found = content.embedded(encoder, ReadOptions(EmbeddingStore(store), progress=progress), "texts")
    assert found.rows is not None
    assert found.texts is not None
    texts = {columns.text or "text": found.texts}
    if columns.show is not None and found.shown is not None:
        texts[columns.show] = found.shown.values
    texts, longest = storable_texts(out, texts)
    write_embeddings(out, found.rows, found.labels if labelled else None, found.names, texts=texts, replacing=replacing)
    number, width = counted(len(found), "embedding"), found.rows.shape[1]
    print_line(f"{quoted(out)} contains {number} of {width} numbers by {found.encoder}, and the texts.")
    if longest is not None:
        print_line(f"The texts in it are cut to {longest:,} letters; a .parquet file keeps more.")


def _embed(
    images: Path,
    out: Path,
    settings: ImageSettings,
    columns: Columns,
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
        from uniot.images.embedding import ReadOptions, embed_images, skipped_beside, write_skipped
        from uniot.images.files import holds_images, labelled_images, unlabelled_images
        from uniot.images.store import EmbeddingStore
        from uniot.io.embedding_files import WRITTEN_SUFFIXES, write_embeddings
        from uniot.io.files import replacing

    if not holds_images(images, columns):
        raise DataError(
            f"{images} is not a folder of images, a list file or an image. Give one of these; for texts in a table, "
            "name their column with --text."
        )
    check_writable(out, WRITTEN_SUFFIXES)
    read = columns.needs("label", "ids")
    files = labelled_images(images, read) if labelled else unlabelled_images(images, read)
    with working(f"Loading the network {settings.backbone}"):
        reader = ImageReader.open(settings)
    with reading_progress({"images": str(images)}) as progress:
        found = embed_images(files, reader, ReadOptions(EmbeddingStore(store), strict, workers, progress))
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
