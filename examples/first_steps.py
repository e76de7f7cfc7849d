"""Adapt, look at the answers, save, load, predict something new. Runs in seconds, needs no data of your own.

python examples/first_steps.py
"""

from __future__ import annotations

import tempfile
from collections import Counter

import numpy as np

import uniot
from uniot import UniNCM
from uniot.datasets import make_toy_domains
from uniot.metrics import evaluate


def main() -> None:
    """Five classes with labels, five without; three are in both, and nobody says which."""
    toy = make_toy_domains(n_common=3, n_source_private=2, n_target_private=2, seed=1)
    # Every tenth target sample comes later.
    is_new = np.arange(len(toy.x_target)) % 10 == 0
    x_target, x_new = toy.x_target[~is_new], toy.x_target[is_new]

    model = UniNCM(random_state=0).fit(toy.x_source, toy.y_source, x_target)

    print("answers:", dict(Counter(model.labels_.tolist())))
    print("groups among the unknown:", model.n_private_classes_)

    # The truth is used to score, after everything is done.
    truth = toy.oracle_y_target[~is_new]
    scores = evaluate(truth, model.labels_, source_classes=model.classes_, groups=model.groups_)
    print(f"H-score: {100 * scores.h_score:.1f}")

    with tempfile.TemporaryDirectory() as folder:
        model.save(folder)
        loaded = uniot.load(folder)
    for label, sure in zip(loaded.predict(x_new[::5]), loaded.confidence(x_new[::5]), strict=True):
        print(f"new sample: {label}, confidence {sure:.2f}")


if __name__ == "__main__":
    main()
