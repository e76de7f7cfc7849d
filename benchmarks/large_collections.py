"""Time and memory of `uniot adapt` for 100 000 cells of 50 components and for 100 000 embedded texts.

    python benchmarks/large_collections.py

Cells and sentences of UNIOT_DATA are drawn with replacement, and noise is added. Memory is the largest of the process,
less that for 500 samples; it is compared with the size of the file. Needs pip install '.[cells]'.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from measure import Report, arguments

DATA = Path(os.environ.get("UNIOT_DATA", Path(__file__).parents[2] / "shared" / "data"))
LABELLED, SMALL, LARGE = 5000, 500, 100_000
# Runs a command and prints the largest memory that it had.
_CHILD = """
import resource, sys
from uniot.cli import main
sys.argv = ["uniot", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print("memory", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def main() -> None:
    parser = arguments(__doc__)
    options = parser.parse_args()
    report = Report("large_collections", options.quick)
    with tempfile.TemporaryDirectory() as folder:
        for kind, make in (("cells", make_cells), ("texts", make_texts)):
            labelled, small, large, more = make(Path(folder), LARGE // 10 if options.quick else LARGE)
            _, before = adapt(labelled, small, *more)
            seconds, memory = adapt(labelled, large, *more)
            size = large.stat().st_size
            what = f"{kind}, file of {size / 1e6:.0f} MB"
            report.at_most(f"{what}: adapt", seconds, 90, "s")
            report.at_most(f"{what}: memory over that of the file", (memory - before) / size, 3, "x")
    report.finish(options.json)


def adapt(labelled: Path, target: Path, *more: str) -> tuple[float, int]:
    """Return seconds and bytes of `uniot adapt`."""
    command = ["adapt", str(labelled), str(target), "--out", str(target.with_suffix("")), *more]
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", _CHILD, *command], check=True, capture_output=True, text=True)
    return time.perf_counter() - began, int(done.stdout.split()[-1])


def drawn(x: np.ndarray, rows: np.ndarray, n: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Return `n` of some rows with noise, and which these are."""
    rng = np.random.default_rng(n)
    chosen = rng.choice(rows, n)
    return x[chosen] + rng.normal(0, noise, (n, x.shape[1])).astype(np.float32), chosen


def make_cells(folder: Path, n: int) -> tuple[Path, Path, Path, tuple[str, ...]]:
    """Write a reference without two of the types, and queries without one of its types."""
    import anndata
    import pandas as pd
    from scipy.sparse import csr_matrix

    stored = np.load(DATA / "cells" / "pbmc_three_protocols.npz")
    x, kinds = stored["x"].astype(np.float32), stored["cell_type"].astype(str)
    u, s, _ = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    x, names = (u * s)[:, :50].astype(np.float32), sorted({*kinds} - {"MK", "HSC"})
    files = []
    for name, size, kept in (("reference", LABELLED, names[:-2]), ("small", SMALL, names[1:]), ("large", n, names[1:])):
        rows, chosen = drawn(x, np.flatnonzero(np.isin(kinds, kept)), size, 0.3)
        obs = pd.DataFrame(index=[f"c{number}" for number in range(size)])
        if name == "reference":
            obs["cell_type"] = kinds[chosen]
        cells = anndata.AnnData(csr_matrix((size, 1), dtype=np.float32), obs=obs, var=pd.DataFrame(index=["gene"]))
        cells.obsm["X_pca"] = rows
        cells.write_h5ad(folder / f"{name}.h5ad")
        files.append(folder / f"{name}.h5ad")
    return *files, ("--label", "cell_type", "--use-rep", "X_pca")


def make_texts(folder: Path, n: int) -> tuple[Path, Path, Path, tuple[str, ...]]:
    """Write labelled texts of 50 of the 77 intents, and others of 52."""
    stored = np.load(DATA / "sentences" / "banking77_minilm.npz")
    x, y, texts = (
        np.concatenate([stored[f"{part}_{key}"] for part in ("train", "test")]) for key in ("x", "y", "text")
    )
    names, files = sorted(set(y.astype(str))), []
    for name, size, kept in (("labelled", LABELLED, names[:50]), ("few", SMALL, names[25:]), ("many", n, names[25:])):
        rows, chosen = drawn(x.astype(np.float32), np.flatnonzero(np.isin(y.astype(str), kept)), size, 0.02)
        content = {"x": rows, "text": texts[chosen].astype(str)}
        np.savez(folder / f"{name}.npz", **content, **({"y": y[chosen].astype(str)} if name == "labelled" else {}))
        files.append(folder / f"{name}.npz")
    return *files, ()


if __name__ == "__main__":
    main()
