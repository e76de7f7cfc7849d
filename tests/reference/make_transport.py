"""Makes transport.json: what POT says of one unbalanced problem. Run it as `python tests/reference/make_transport.py`.

The similarity is made by NumPy's `default_rng(seed)`, whose stream NumPy keeps the same from version to version,
and its first entries are recorded so that a change would be noticed.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np

SEED, N, C = 20221128, 40, 6
EPSILON, MARGINAL_PENALTY = 0.01, 0.5
ITERATIONS = 4000


def make_problem(seed: int = SEED, n: int = N, c: int = C) -> tuple[np.ndarray, np.ndarray]:
    """Cosines (n, c) of features around 2 c directions, of which the classes know half; and an uneven β (c,)."""
    rng = np.random.default_rng(seed)
    directions = rng.normal(size=(2 * c, 10))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    features = directions[rng.integers(2 * c, size=n)] + 0.2 * rng.normal(size=(n, 10))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    class_mass = np.arange(1.0, c + 1)
    return features @ directions[:c].T, class_mass / class_mass.sum()


def main() -> None:
    import ot

    similarity, class_mass = make_problem()
    # 1e-13 was asked for, but POT's rule is absolute and stops while small scalings still move: it is switched
    # off, and 4000 iterations shrink the first error by (κ/(κ+ε))^8000 < 1e-68.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "If reg_type = entropy", UserWarning)
        plan = ot.unbalanced.sinkhorn_knopp_unbalanced(
            np.full(N, 1 / N),
            class_mass,
            -similarity,
            reg=EPSILON,
            reg_m=MARGINAL_PENALTY,
            reg_type="entropy",
            numItermax=ITERATIONS,
            stopThr=0,
        )
    share = plan / plan.sum()
    nearest = share.argmax(axis=1)
    common = (share.max(axis=1) >= 1 / N) & (share.sum(axis=0)[nearest] >= 1 / C)
    recorded = {
        "made_by": "tests/reference/make_transport.py",
        "pot_version": ot.__version__,
        "numpy_version": np.__version__,
        "seed": SEED,
        "n": N,
        "c": C,
        "epsilon": EPSILON,
        "marginal_penalty": MARGINAL_PENALTY,
        "iterations": ITERATIONS,
        "first_similarities": similarity[0].tolist(),
        "total_mass": float(plan.sum()),
        "column_sums": plan.sum(axis=0).tolist(),
        "sample_confidence": share.max(axis=1).tolist(),
        "nearest": nearest.tolist(),
        "common": common.tolist(),
    }
    path = Path(__file__).with_name("transport.json")
    path.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
