"""Memory and time per step of UniOT when the whole of a network is trained, on made-up photographs.

The network has random weights: neither time nor memory depends on them. On a machine with a GPU it is used, and memory
is what torch allocated there; otherwise it is the largest resident size of this process.
"""

from __future__ import annotations

import itertools
import resource
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from measure import Report, arguments
from PIL import Image

from uniot.config import ImageSettings, Settings
from uniot.images.backbones import ImageReader, load_backbone
from uniot.images.embedding import ImageEmbeddings
from uniot.images.files import ImageFile
from uniot.methods.registry import resolved_settings
from uniot.training.domains import ImagePair, domains_of_images
from uniot.training.finalize import class_index
from uniot.training.fit import build_method
from uniot.training.loop import train
from uniot.training.processes import start_processes

_GIGABYTE = 1e9
_CLASSES, _EACH, _SIDE = 4, 20, 300


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--backbone", default="resnet50", help="a network of timm, with random weights")
    parser.add_argument("--batch-size", type=int, default=36, help="images of each domain per step")
    parser.add_argument("--steps", type=int, default=5, help="measured steps, after one that is not")
    parser.add_argument("--queue-size", type=int, default=2000)
    parser.add_argument("--precision", default="32-true", help="of the network on a GPU")
    parser.add_argument("--batch-norm", nargs="+", default=["trained", "frozen"], choices=["trained", "frozen"])
    options = parser.parse_args()
    if options.quick:
        options.backbone, options.batch_size, options.steps, options.queue_size = "test_efficientnet", 4, 2, 8
    report = Report("fine_tuning", options.quick)
    with tempfile.TemporaryDirectory(prefix="uniot-fine-tuning-") as folder:
        files = photographs(Path(folder))
        for batch_norm in options.batch_norm:
            measure(report, files, options, batch_norm)
    report.finish(options.json)


def photographs(folder: Path) -> list[ImageFile]:
    """Write JPEGs of soft spots, a few per class."""
    rng = np.random.default_rng(0)
    files = []
    for number in range(_CLASSES * _EACH):
        coarse = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        path = folder / f"{number}.jpg"
        Image.fromarray(coarse).resize((_SIDE, _SIDE), Image.Resampling.BICUBIC).save(path, quality=90)
        files.append(ImageFile(path, path.name, f"class {number % _CLASSES}"))
    return files


def measure(report: Report, files: list[ImageFile], options: object, batch_norm: str) -> None:
    """Train some steps and report time, processor time and memory."""
    images = ImageSettings.checked(
        backbone=options.backbone, fine_tune="all", batch_norm=batch_norm, scaled=False, precision=options.precision
    )
    backbone = load_backbone(options.backbone, pretrained=False)
    reader = ImageReader(images, backbone, backbone.split("all"))
    pair = ImagePair(unread(files), unread([replace(file, label=None) for file in files]))
    given = Settings.checked(
        method="uniot", steps=options.steps + 1, batch_size=options.batch_size, queue_size=options.queue_size
    )
    domains = domains_of_images(pair, reader, given)
    settings = resolved_settings(given, len(domains.target))
    shape = (3, reader.preparation.crop, reader.preparation.crop)
    method = build_method(shape, len(domains.classes), settings, reader)
    processes = start_processes(1, precision=options.precision)
    clocks: list[tuple[float, float]] = []

    def on_step(step: int, row: Mapping[str, float]) -> None:
        if processes.device.type == "cuda":
            torch.cuda.synchronize()
        clocks.append((time.perf_counter(), time.process_time()))

    begin = time.perf_counter()
    train(
        method,
        domains.source,
        class_index(domains),
        domains.target,
        settings,
        processes=processes,
        on_step=on_step,
    )
    what = f"{options.backbone}, {options.batch_size} + {options.batch_size} images, batch norm {batch_norm}"
    wall = statistics.median(after[0] - before[0] for before, after in itertools.pairwise(clocks))
    processor = statistics.median(after[1] - before[1] for before, after in itertools.pairwise(clocks))
    report.tell(f"{what}: first step, with the queue filled before", clocks[0][0] - begin, "s")
    report.tell(f"{what}: time per step, median of {options.steps}", wall, "s")
    report.tell(f"{what}: processor time per step, median of {options.steps}", processor, "s")
    if processes.device.type == "cuda":
        report.tell(f"{what}: largest memory on the GPU", torch.cuda.max_memory_allocated() / _GIGABYTE, "GB")
        torch.cuda.reset_peak_memory_stats()
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        report.tell(f"{what}: largest resident size so far", peak / _GIGABYTE, "GB")


def unread(files: list[ImageFile]) -> ImageEmbeddings:
    """Images that are decoded when they are used."""
    contents = [file.name for file in files]
    return replace(ImageEmbeddings.none(), files=list(files), kept=np.arange(len(files)), contents=contents)


if __name__ == "__main__":
    main()
