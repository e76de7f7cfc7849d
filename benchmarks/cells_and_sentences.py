"""Make files of features of blood cells and of sentences, for `uniot benchmark --study universality` and `answers`.

    python benchmarks/cells_and_sentences.py --out features/

Cells: three protocols of one tissue, 50 principal components of all of them together; each protocol is the target of
the two others. The two rarest types are left out. Sentences: training and test sentences of BANKING77.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
from sklearn.decomposition import PCA

RARE = ("MK", "HSC")
N_COMPONENTS = 50


def write_cells(data: Path, out: Path) -> None:
    with np.load(data / "cells/pbmc_three_protocols.npz", allow_pickle=False) as file:
        kept = ~np.isin(file["cell_type"], RARE)
        protocol, types = file["protocol"][kept].astype(str), file["cell_type"][kept].astype(str)
        components = PCA(N_COMPONENTS, random_state=0).fit_transform(file["x"].astype(np.float32))[kept]
    arrays, pairs = {}, []
    for name in np.unique(protocol).tolist():
        for domain, rows in ((name, protocol == name), (f"not-{name}", protocol != name)):
            arrays |= {f"{domain}_x": components[rows].astype(np.float32), f"{domain}_y": types[rows]}
        pairs.append((f"not-{name}", name))
    np.savez(out / "cells.npz", pairs=np.array(pairs), backbone=np.array("PCA"), **arrays)


def write_sentences(data: Path, out: Path) -> None:
    with np.load(data / "sentences/banking77_minilm.npz", allow_pickle=False) as file:
        arrays = {f"{part}_x": file[f"{part}_x"] for part in ("train", "test")}
        arrays |= {f"{part}_y": file[f"{part}_y"].astype(str) for part in ("train", "test")}
    pairs = np.array([("train", "test")])
    np.savez(out / "sentences.npz", pairs=pairs, backbone=np.array("all-MiniLM-L6-v2"), **arrays)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for cells.npz and sentences.npz")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    data = Path(os.environ.get("UNIOT_DATA", "../shared/data"))
    write_cells(data, out)
    write_sentences(data, out)


if __name__ == "__main__":
    main()
