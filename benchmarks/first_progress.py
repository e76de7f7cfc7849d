"""Seconds until each command shows something in a terminal, and the longest time without a change on the screen.

Both in seconds of the clock and in seconds of computing of the command's process, which other processes of a busy
machine do not lengthen.

    python benchmarks/first_progress.py                  # on embeddings and images that it makes
    python benchmarks/first_progress.py --only export report

Each command runs in a terminal of its own (a pseudo-terminal of 100 columns), and every write to it is timed. What
counts is whatever the terminal shows, a bar or a clock among it. Linux only.
"""

from __future__ import annotations

import argparse
import os
import pty
import select
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

import numpy as np
from PIL import Image

from uniot.datasets import make_toy_domains

COMMANDS: dict[str, tuple[str, ...]] = {
    "methods": ("methods",),
    "embed": ("embed", "unlabelled", "--out", "embedded.npz", "--store", "store"),
    "adapt": ("adapt", "source.npz", "target.npz", "--out", "run"),
    "adapt, images": ("adapt", "labelled", "unlabelled", "--out", "images", "--store", "other-store"),
    "adapt, trained": ("adapt", "source.npz", "target.npz", "--out", "trained", "--method", "uniot", "--steps", "300"),
    "evaluate": ("evaluate", "run", "--labels", "truth.npz"),
    "report": ("report", "images"),
    "predict": ("predict", "run", "target.npz", "--out", "new.csv"),
    "predict, images": ("predict", "images", "unlabelled", "--out", "new-images.csv"),
    "export": ("export", "run", "--out", "model.onnx"),
    "export, images": ("export", "images", "--out", "images.onnx"),
    "push": ("push", "run", "./shared"),
    "pull": ("pull", "./shared", "--out", "copy"),
    "benchmark": (
        *("benchmark", "office31", "--methods", "unincm,source-only", "--tasks", "A2D", "--seeds", "1"),
        *("--features", "office.npz", "--out", "results"),
    ),
}


@dataclass(frozen=True)
class Timing:
    """When a command wrote.

    Attributes:
        total: seconds that it took, of the clock and of computing.
        first: the same until it first wrote.
        longest: the same of the longest time without writing.
        before: what it had written before the longest silence of the clock.
    """

    total: tuple[float, float]
    first: tuple[float, float]
    longest: tuple[float, float]
    before: str


TICKS = os.sysconf("SC_CLK_TCK")


def computing(process: int) -> float:
    """Return the seconds that a process has computed, in all its threads."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def prepare(folder: Path) -> None:
    """Write embeddings, images and features of a benchmark."""
    rng = np.random.default_rng(0)
    toy = make_toy_domains(n_common=6, samples_per_class=200, seed=0)
    np.savez(folder / "source.npz", x=toy.x_source, y=toy.y_source)
    np.savez(folder / "target.npz", x=toy.x_target)
    np.savez(folder / "truth.npz", y=toy.oracle_y_target)
    for collection in ("labelled", "unlabelled"):
        for kind in range(4):
            (folder / collection / f"kind {kind}").mkdir(parents=True)
            for number in range(40):
                pixels = rng.integers(0, 60, (240, 320, 3)) + np.array([40 * kind, 120, 160 - 30 * kind])
                Image.fromarray(pixels.astype(np.uint8)).save(folder / collection / f"kind {kind}" / f"{number}.jpg")
    means = rng.normal(size=(31, 48))
    domains: dict[str, np.ndarray] = {"classes": np.array([f"class {kind:02d}" for kind in range(31)])}
    for name in ("amazon", "dslr", "webcam"):
        kinds = np.arange(31).repeat(12)
        domains[f"{name}_x"] = (means[kinds] + 0.3 * rng.normal(size=(len(kinds), 48))).astype(np.float32)
        domains[f"{name}_y"] = kinds
    np.savez(folder / "office.npz", **domains)


def timed(folder: Path, words: tuple[str, ...]) -> Timing:
    """Run a command in a terminal and return when it wrote."""
    ours, theirs = pty.openpty()
    ioctl(theirs, TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "uniot", *words], cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    wrote = [(0.0, 0.0)]
    silence, shown, before = (0.0, 0.0), "", ""

    def now() -> tuple[float, float]:
        return time.perf_counter() - began, computing(process.pid)

    while True:
        select.select([ours], [], [])
        try:
            written = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not written:
            break
        moment = now()
        if len(wrote) > 1:
            apart = moment[0] - wrote[-1][0], moment[1] - wrote[-1][1]
            before = shown if apart[0] > silence[0] else before
            silence = max(silence[0], apart[0]), max(silence[1], apart[1])
        wrote.append(moment)
        lines = written.decode("utf-8", "replace").strip().splitlines()
        shown = lines[-1][-60:] if lines else shown
    end = now()  # the process is not waited for yet, so that its times are still there
    process.wait()
    os.close(ours)
    if process.returncode:
        sys.exit(f"`uniot {' '.join(words)}` ended with {process.returncode}: {shown}")
    return Timing(end, wrote[min(1, len(wrote) - 1)], silence, before)


def main() -> None:
    """Print a line per command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=COMMANDS, default=list(COMMANDS), help="commands to run")
    parser.add_argument("--folder", type=Path, help="folder to work in, kept; those that a command needs come first")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.folder or Path(temporary)
        if not (folder / "source.npz").exists():
            folder.mkdir(parents=True, exist_ok=True)
            prepare(folder)
        sys.stdout.write("command                total         first       longest silence   (clock, computing)\n")
        for name in chosen.only:
            found = timed(folder, COMMANDS[name])
            pairs = "  ".join(f"{clock:6.1f} {own:6.1f}" for clock, own in (found.total, found.first, found.longest))
            sys.stdout.write(f"{name:18} {pairs}   {found.before!r}\n")
            sys.stdout.flush()
        sys.stdout.write(f"load of the machine at the end: {os.getloadavg()[0]:.1f}\n")


if __name__ == "__main__":
    main()
