"""Peak memory of `uniot predict` on many images.

The files are a hundred thousand, their contents a thousand: the network computes each content once, and the rest is
reading, finding rows in the store, answering and writing, which is what could grow with the number of files.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from measure import Report, arguments
from PIL import Image

SIZES, CONTENTS = (10_000, 100_000), 1000
_MEGABYTE = 1e6
_CHILD = """
import resource, sys
from uniot.cli import main
sys.argv = ["uniot", *sys.argv[1:]]
try:
    main()
except SystemExit as stop:
    if stop.code: raise
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, file=sys.stderr)
"""


def main() -> None:
    parser = arguments(__doc__)
    options = parser.parse_args()
    sizes, contents = ((200, 2000), 50) if options.quick else (SIZES, CONTENTS)
    report = Report("predict_memory", options.quick)
    with tempfile.TemporaryDirectory(prefix="uniot-predict-") as folder:
        root = Path(folder)
        write_images(root / "contents", contents)
        os.environ["UNIOT_CACHE"] = str(root / "cache")
        run = root / "run"
        for name in ("a", "b"):
            link_images(root / "contents", root / "labelled" / name, 20, start=20 * (name == "b"))
        link_images(root / "contents", root / "unlabelled", 40)
        uniot("adapt", root / "labelled", root / "unlabelled", "--out", run, "--method", "uniot", "--steps", "20")
        peaks = []
        for size in sizes:
            # A fresh store for each, so that the network has the same work.
            os.environ["UNIOT_CACHE"] = str(root / f"cache-{size}")
            link_images(root / "contents", root / f"new-{size}", size)
            peaks.append(uniot("predict", run, root / f"new-{size}", "--out", root / f"{size}.csv"))
            report.tell(f"predict on {size} images, peak memory", peaks[-1] / _MEGABYTE, "MB")
        growth = (peaks[1] - peaks[0]) / _MEGABYTE
        report.at_most(f"growth from {sizes[0]} to {sizes[1]} images", growth, 20, "MB", peaks=peaks)
    report.finish(options.json)


def write_images(folder: Path, count: int) -> None:
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(count):
        Image.fromarray(rng.integers(0, 255, (32, 32, 3), dtype=np.uint8)).save(folder / f"{number:04d}.png")


def link_images(contents: Path, folder: Path, count: int, start: int = 0) -> None:
    folder.mkdir(parents=True)
    files = sorted(contents.iterdir())
    for number in range(count):
        os.link(files[(start + number) % len(files)], folder / f"{number:06d}.png")


def uniot(*arguments: object) -> float:
    """Runs a command and returns its peak resident memory in bytes."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, *map(str, arguments)], check=True, capture_output=True, text=True
    )
    return float(done.stderr.split()[-1])


if __name__ == "__main__":
    main()
