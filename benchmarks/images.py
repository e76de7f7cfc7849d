"""Office-31 from its raw images: one command cold and warm, six tasks, fine-tuning, extraction and start-up.

The images are those of `--images`, or of office31/ under UNIOT_DATA: unpacked there, or in office31.tar, which is
unpacked to a temporary folder. The default backbone is EfficientNet-Lite0 with ImageNet weights; the paper fine-tunes a
ResNet-50, so its numbers stand beside ours for orientation only.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from unittest import mock

import numpy as np
import torch
from measure import Report, arguments, interleaved
from office31 import PAPER_H, PAPER_H3, Outcome, outcome_of, print_table
from office31_tasks import TASKS, features_file

from uniot.config import ImageSettings, Settings
from uniot.datasets.catalogue import benchmark_set
from uniot.images.backbones import ImageReader
from uniot.images.embedding import ReadOptions, extract
from uniot.images.files import ImageFile
from uniot.images.graphs import graph_of
from uniot.images.inference import inference_form
from uniot.images.store import EmbeddingStore
from uniot.training.domains import read_images
from uniot.training.fit import fit

PARTS = ("command", "tasks", "fine-tune", "extraction", "start-up")
FINE_TUNED_TASKS = ("A2W", "W2A")
BATCH = 16


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--seeds", type=int, default=3, help="how many seeds, from 0")
    parser.add_argument("--method", default="unincm", help="of the tasks and of the fine-tuning")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--images", type=Path, metavar="FOLDER", help="the folder into which Office-31 was unpacked")
    options = parser.parse_args()
    images = options.images or features_file().parent
    if not images.is_dir():
        sys.exit(
            f"{images} is absent. Give --images FOLDER into which Office-31 was unpacked (amazon/, dslr/, webcam/), or "
            "set UNIOT_DATA to a folder that holds them, or office31.tar, in office31/."
        )
    if options.quick:
        options.seeds, options.tasks = 1, ("D2W",)
    report = Report("images", options.quick)
    with tempfile.TemporaryDirectory(prefix="uniot-office31-") as folder:
        root = Path(folder)
        archive = images / "office31.tar"
        if archive.is_file():
            images = root / "office31"
            with tarfile.open(archive) as tar:
                tar.extractall(images, filter="data")
        office = Office31(images, root)
        if "command" in options.only:
            measure_command(report, office)
        if "extraction" in options.only:
            for domain in ("A", "D"):
                measure_extraction(report, office, domain, 48 if options.quick else 160)
        if "start-up" in options.only:
            measure_start_up(report, office)
        if "tasks" in options.only:
            print_tasks(office, options.tasks, options.seeds, options.method)
        if "fine-tune" in options.only:
            tasks = ("D2W",) if options.quick else FINE_TUNED_TASKS
            print_fine_tuning(office, tasks, options.seeds, options.method)
    report.finish(options.json)


class Office31:
    """The tasks as lists of files, and a store below `root` that all of them share."""

    def __init__(self, images: Path, root: Path) -> None:
        self.images = images.resolve()
        self.root = root
        self.store = EmbeddingStore(root / "store")
        self._set = benchmark_set("office31")

    def task(self, name: str) -> tuple[list[ImageFile], list[ImageFile], list[str]]:
        """Labelled source, unlabelled target, and the truth of the target."""
        split = self._set.split("open-partial")
        source, target = (self._set.domain_files(self.images, letter) for letter in name.split("2"))
        labelled = [file for file in source if file.label in split.source]
        true = [file for file in target if file.label in split.target]
        return labelled, [replace(file, label=None) for file in true], [str(file.label) for file in true]

    def lists(self, name: str) -> tuple[Path, Path]:
        """The same as list files, for the command line."""
        labelled, target, _ = self.task(name)
        places = self.root / f"{name}-labelled.csv", self.root / f"{name}-unlabelled.csv"
        lines = ["path,label", *(f"{file.path},{file.label}" for file in labelled)]
        places[0].write_text("\n".join(lines) + "\n", encoding="utf-8")
        places[1].write_text("\n".join(["path", *(str(file.path) for file in target)]) + "\n", encoding="utf-8")
        return places


def measure_command(report: Report, office: Office31) -> None:
    """`uniot adapt` on A2W as a person types it, with an empty store and then with a full one."""
    labelled, unlabelled = office.lists("A2W")
    environment = os.environ | {"UNIOT_CACHE": str(office.root / "cache")}
    for what, bound in (("cold", 300), ("with a warm store", 60)):
        command = [sys.executable, "-m", "uniot", "adapt", labelled, unlabelled, "--out", office.root / what]
        begin = perf_counter()
        subprocess.run([str(part) for part in command], env=environment, check=True, capture_output=True)
        report.at_most(f"A2W from the raw images, one command, {what}", perf_counter() - begin, bound, "s")


def measure_extraction(report: Report, office: Office31, domain: str, n_images: int) -> None:
    """Images per second of `extract`, which reads, decodes and stores, with both engines; and of its parts alone."""
    files = office.task(f"{domain}2W")[0][:n_images]
    reader = ImageReader.open(ImageSettings.checked())
    read = [file.path.read_bytes() for file in files]
    pixels = [torch.tensor(reader.preparation.read(data)) for data in read]
    batches = [torch.stack(pixels[start : start + BATCH]) for start in range(0, len(pixels), BATCH)]
    fast = inference_form(reader.split.trunk, reader.preparation.crop)
    stores = iter(range(1000))
    rows = {}

    def bare() -> None:
        with torch.inference_mode():
            for batch in batches:
                fast(reader.preparation.normalise(batch))

    def extracted(engine: str) -> None:
        chosen = graph_of if engine == "ONNX Runtime" else lambda split: None
        with mock.patch("uniot.images.inference.graph_of", chosen):
            rows[engine] = extract(files, reader.split, EmbeddingStore(office.root / f"fresh-{next(stores)}")).values

    runs = {
        "decoding alone, one thread": lambda: [reader.preparation.read(data) for data in read],
        "torch alone, folded network": bare,
        "extract with torch": lambda: extracted("torch"),
        "extract with ONNX Runtime": lambda: extracted("ONNX Runtime"),
    }
    seconds = {name: statistics.median(times) for name, times in interleaved(runs, 5).items()}
    of = f"domain {domain}, {len(files)} images"
    for name, took in seconds.items():
        report.tell(f"{name}, {of}", len(files) / took, "/s")
    expected = rows["torch"].astype(np.float64)
    difference = np.abs(rows["ONNX Runtime"] - expected).max() / np.abs(expected).max()
    report.at_most(f"difference of the embeddings, relative to the largest number, {of}", float(difference), 1e-3)
    gain = seconds["extract with torch"] / seconds["extract with ONNX Runtime"]
    report.at_least(f"extract with ONNX Runtime against torch, cold store, {of}", gain, 1.8, "x")
    ratio = seconds["torch alone, folded network"] / seconds["extract with torch"]
    report.at_least(f"extract with torch against torch alone, {of}", ratio, 0.9, "x")


def measure_start_up(report: Report, office: Office31) -> None:
    """Seconds of commands as a person types them, with warm file caches; importing torch alone beside them."""
    labelled, unlabelled = office.lists("D2W")
    photograph = office.task("W2D")[0][0].path
    environment = os.environ | {"UNIOT_CACHE": str(office.root / "cache"), "PYTHONPYCACHEPREFIX": str(office.root)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    uniot, folder = [sys.executable, "-m", "uniot"], office.root / "start-up"

    def command(*words: object) -> None:
        subprocess.run([str(word) for word in words], env=environment, check=True, capture_output=True)

    command(*uniot, "adapt", labelled, unlabelled, "--out", folder)
    runs = {
        "import torch": lambda: command(sys.executable, "-c", "import torch"),
        "uniot --help": lambda: command(*uniot, "--help"),
        "uniot methods": lambda: command(*uniot, "methods"),
        "uniot predict run/ photo.jpg": lambda: command(*uniot, "predict", folder, photograph),
    }
    seconds = {name: statistics.median(times) for name, times in interleaved(runs, 7).items()}
    bounds = {"uniot --help": 0.4, "uniot predict run/ photo.jpg": 2.5}
    for name, took in seconds.items():
        if name in bounds:
            report.at_most(f"{name}, median of 7", took, bounds[name], "s")
        else:
            report.tell(f"{name}, median of 7", took, "s")


def run(office: Office31, task: str, seed: int, method: str, fine_tune: str) -> Outcome:
    source, target, truth = office.task(task)
    begin = perf_counter()
    reader = ImageReader.open(ImageSettings.checked(fine_tune=fine_tune))
    settings = Settings.checked(method=method, seed=seed)
    domains = read_images(source, target, reader, settings, ReadOptions(office.store))
    model = fit(domains, settings)
    outcome = outcome_of(task, seed, model, np.array(truth)[domains.images.target.kept], begin)
    took = outcome.seconds
    print(f"{task} seed {seed}, {method}, fine-tune {fine_tune}: H {outcome.h:.1f}, {took:.1f} s", flush=True)
    return outcome


def print_tasks(office: Office31, tasks: tuple[str, ...], seeds: int, method: str) -> None:
    outcomes = [run(office, task, seed, method, "none") for seed in range(seeds) for task in tasks]
    print("Backbone: EfficientNet-Lite0, frozen, ImageNet weights; the paper fine-tunes a ResNet-50.")
    print_table(outcomes, tasks)


def print_fine_tuning(office: Office31, tasks: tuple[str, ...], seeds: int, method: str) -> None:
    """What training the last stage adds and costs, seed by seed the same otherwise."""
    for fine_tune in ("none", "last"):
        outcomes = [run(office, task, seed, method, fine_tune) for seed in range(seeds) for task in tasks]
        print(f"fine-tune {fine_tune}; the paper's H: {', '.join(f'{t} {PAPER_H[t]}/{PAPER_H3[t]}' for t in tasks)}")
        print_table(outcomes, tasks)


if __name__ == "__main__":
    main()
