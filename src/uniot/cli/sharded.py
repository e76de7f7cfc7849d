"""`--engine ray` of `uniot embed` and `uniot predict`: its options, and the output in shards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uniot.cli.options import IMAGES
from uniot.cli.screen import Tally, print_line, reading_progress, skipped_line, working
from uniot.errors import SettingsError
from uniot.io.text import counted, plural, quoted

if TYPE_CHECKING:
    from uniot.config import ImageSettings
    from uniot.distributed import ShardedOutput
    from uniot.distributed.engine import Cluster


class Engine(Enum):
    """What computes embeddings and predictions: this process, or Ray."""

    PROCESS = "process"
    RAY = "ray"


_SUFFIXES = (".csv", ".npy", ".npz", ".parquet", ".safetensors")
CLUSTER = "More than one machine"
EngineWorkers = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Threads that read and decode images; with --engine ray, processes. Default: by the number of cores.",
        rich_help_panel=IMAGES,
    ),
]
EngineName = Annotated[
    Engine,
    typer.Option(
        help="`ray`: in shards by many processes, on this machine or a Ray cluster; continues after a crash.",
        rich_help_panel=CLUSTER,
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        help="Ray cluster to join, such as auto or host:6379. Default: $RAY_ADDRESS, or else this machine.",
        rich_help_panel=CLUSTER,
    ),
]


@dataclass(frozen=True)
class RayOptions:
    """Options of --engine ray: address of the cluster, and number of worker processes."""

    address: str | None
    workers: int | None

    def cluster(self) -> Cluster:
        """Return where to compute."""
        from uniot.distributed.engine import Cluster

        return Cluster(self.address, self.workers)


def refuse_for_ray(options: Mapping[str, object]) -> None:
    """Raise SettingsError if options of --engine process are given with --engine ray; None if not given."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise SettingsError(
            f"{given[0]} cannot be combined with --engine ray, which finds finished parts in --out. Leave it out."
        )


def refuse_without_ray(options: Mapping[str, object], *places: str | None) -> None:
    """Raise SettingsError if options or places of --engine ray are given with --engine process; None if not given."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise SettingsError(f"{given[0]} is for --engine ray. Give both or neither.")
    if any(place is not None and "://" in place for place in places):
        # Not repeated: a URL may contain credentials.
        raise SettingsError("only --engine ray reads and writes URLs. Give --engine ray, or a path.")


def predict_in_shards(
    run: Path,
    new: list[str],
    out: str | None,
    preference: tuple[float | None, str | None],
    strict: bool,
    ray: RayOptions,
) -> None:
    """Write predictions to a folder, shard by shard."""
    if len(new) > 1 or out is None:
        raise SettingsError("--engine ray takes one folder, list file or URL, and --out with a folder or URL.")
    _check_folder(out)
    with working("Loading PyTorch, Ray and the run", lines=False):
        from uniot.distributed import predict_shards
        from uniot.runs import Run
        from uniot.runs.run import preference_line

        opened = Run.open(run, *preference)
        if opened.outdated_annotations is not None:
            print_line(f"Warning: {opened.outdated_annotations}", err=True)
    with reading_progress({"images": new[0]}) as progress:
        found = predict_shards(
            run,
            new[0],
            out,
            private_prior=preference[0],
            prefer=preference[1],
            strict=strict,
            cluster=ray.cluster(),
            on_progress=progress("images"),
        )
    tally = Tally()
    tally.count(found.n_known or 0, found.rows - (found.n_known or 0), found.groups or ())
    print_line(f"{tally.verdict()} Every prediction is in {quoted(out)}, in {counted(found.n_shards, 'part')}.")
    _show_sharded(found)
    line = preference_line(opened.model)
    if line is not None:
        print_line(line)


def embed_in_shards(
    images: str, out: str, settings: ImageSettings, labelled: bool, strict: bool, ray: RayOptions
) -> None:
    """Write embeddings to a folder, shard by shard."""
    _check_folder(out)
    from uniot.distributed import embed_shards

    with reading_progress({"images": images}) as progress:
        found = embed_shards(
            images,
            out,
            settings,
            labelled=labelled,
            strict=strict,
            cluster=ray.cluster(),
            on_progress=progress("images"),
        )
    parts = counted(found.n_shards, "part")
    print_line(f"{quoted(out)} contains {counted(found.rows, 'embedding')} by {settings.backbone} in {parts}.")
    _show_sharded(found)


def _check_folder(out: str) -> None:
    """Raise SettingsError if a file is given in place of the folder of the parts."""
    suffix = Path(out).suffix.lower()
    if suffix in _SUFFIXES or Path(out).is_file():
        raise SettingsError(f"--engine ray writes a folder of parts, and --out is a file ({suffix}). Give a folder.")


def _show_sharded(found: ShardedOutput) -> None:
    """Print what of an output in shards was there before, was computed twice, or could not be read."""
    before = found.n_shards - found.n_computed
    if before:
        print_line(f"{counted(before, 'part')} of {found.n_shards} {plural(before, 'was', 'were')} there before.")
    if found.n_lost:
        were = plural(found.n_lost, "was", "were")
        print_line(f"{counted(found.n_lost, 'worker')} ended early and {were} replaced; nothing is missing.")
    if found.skipped:
        print_line(skipped_line(found.skipped, found.skipped_table))
