"""One of two processes that share the rows of a problem; started by test_rows.py as `script rank folder`."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from uniot.transport.unbalanced import unbalanced_potential


def all_reduce(vector: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(vector)
    return vector


def main(rank: int, folder: Path) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2, timeout=timedelta(seconds=50)
    )
    similarity = torch.from_numpy(np.load(folder / "similarity.npy"))
    class_mass = torch.from_numpy(np.load(folder / "class_mass.npy"))
    for cut in (200, 37):
        rows = similarity.tensor_split([cut])[rank]
        solved = unbalanced_potential(rows, class_mass, tolerance=1e-10, reduce=all_reduce)
        np.save(folder / f"potential-{cut}-{rank}.npy", solved.class_potential.numpy())
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
