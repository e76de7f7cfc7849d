"""Size of the report of a large run with pictures, and the seconds until a browser shows all of it.

    python benchmarks/large_report.py                    # makes a run of 50 000 samples in a temporary folder
    python benchmarks/large_report.py --run run/         # or looks at the report of a run

Samples are points around 40 class means; each has one of 400 pictures of noise, which compress worse than photographs,
so that the page is as large as its limits allow. The page is opened in a fresh Chromium context each time; the time is
from the navigation until every figure is drawn and two more frames are shown. The median of several times is printed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, sync_playwright

N_SAMPLES, N_LABELLED, N_FEATURES = 50_000, 6000, 64
N_CLASSES, N_COMMON, N_PICTURES, SIDE = 40, 20, 400, 256
N_SOURCE_CLASSES = 30
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
DRAWN = """() => [...document.querySelectorAll(".chart")].every((chart) => chart.querySelector(".main-svg"))
  && [...document.images].every((image) => image.complete)"""
TWO_FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def made_run(folder: Path) -> Path:
    """Return a run of many samples with pictures, made by `uniot adapt`."""
    rng = np.random.default_rng(0)
    pictures = []
    for number in range(N_PICTURES):
        coarse = Image.fromarray(rng.integers(0, 256, (SIDE // 4, SIDE // 4, 3), dtype=np.uint8))
        pictures.append(folder / f"{number:03d}.jpg")
        coarse.resize((SIDE, SIDE)).save(pictures[-1], quality=90)
    means = 1.2 * rng.normal(size=(N_CLASSES, N_FEATURES))
    source = rng.integers(0, N_SOURCE_CLASSES, N_LABELLED)
    target = rng.integers(N_SOURCE_CLASSES - N_COMMON, N_CLASSES, N_SAMPLES)
    for name, kinds in (("labelled", source), ("new", target)):
        rows = (means[kinds] + rng.normal(size=(len(kinds), N_FEATURES))).astype(np.float32)
        paths = np.array([str(pictures[row % N_PICTURES]) for row in range(len(kinds))])
        labels = {"y": np.array([f"class {kind:02d}" for kind in kinds])} if name == "labelled" else {}
        np.savez(folder / f"{name}.npz", x=rows, photo=paths, **labels)
    collections = (folder / "labelled.npz", folder / "new.npz")
    command(folder, "adapt", *collections, "--show", "photo", "--out", folder / "run")
    return folder / "run"


def command(folder: Path, *words: object) -> float:
    """Run a command of uniot and return its seconds."""
    began = time.perf_counter()
    typed = [sys.executable, "-m", "uniot", *map(str, words)]
    done = subprocess.run(typed, check=False, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return time.perf_counter() - began


def seconds_to_open(browser: Browser, page_file: Path) -> float:
    """Return the seconds from the navigation until all is drawn."""
    context = browser.new_context(viewport={"width": 1360, "height": 900})
    page = context.new_page()
    began = time.perf_counter()
    page.goto(page_file.resolve().as_uri())
    page.wait_for_function(DRAWN)
    page.evaluate(TWO_FRAMES)
    took = time.perf_counter() - began
    context.close()
    return took


def main() -> None:
    """Print size and times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="a finished run, in place of a made one")
    parser.add_argument("--times", type=int, default=7, help="how often the page is opened")
    chosen = parser.parse_args()
    browser_path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser_path is None:
        sys.exit(f"none of {', '.join(BROWSERS)} is on the path. Install one.")
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        folder = Path(temporary)
        run = made_run(folder) if chosen.run is None else chosen.run.resolve()
        report = folder / "report.html"
        drawing = command(folder, "report", run, "--out", report)
        browser = playwright.chromium.launch(executable_path=browser_path, args=list(OPTIONS))
        times = [seconds_to_open(browser, report) for _ in range(chosen.times)]
        browser.close()
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
        sys.stdout.write(
            f"{report.stat().st_size / 1e6:.1f} MB; drawn in {drawing:.1f} s by `uniot report`; opened in "
            f"{statistics.median(times):.2f} s (from {min(times):.2f} to {max(times):.2f}), load {load:.1f}\n"
        )


if __name__ == "__main__":
    main()
