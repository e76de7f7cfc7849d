"""Adapt, look at the answers, save, load, predict something new. Runs in seconds, needs no data of your own.

python examples/first_steps.py
"""

from __future__ import annotations

import tempfile
from collections import Counter

from uniot import UniOT
from uniot.data.toy import make_toy_domains
from uniot.evaluation import evaluate


def main() -> None:
    """Five classes with labels, five without; three are in both, and nobody says which."""
    toy = make_toy_domains(n_common=3, n_source_private=2, n_target_private=2, seed=1)

    model = UniOT(random_state=0).fit(toy.x_source, toy.y_source, toy.x_target)

    print("answers:", dict(Counter(model.labels_.tolist())))
    print("groups among the unknown:", model.n_private_classes_)

    # The truth is used to score, after everything is done.
    scores = evaluate(toy.oracle_y_target, model.labels_, source_classes=model.classes_, groups=model.groups_)
    print(f"H-score: {100 * scores.h_score:.1f}")

    with tempfile.TemporaryDirectory() as folder:
        model.save(folder)
        loaded = UniOT.load(folder)
    new = make_toy_domains(n_common=3, n_source_private=2, n_target_private=2, seed=1).x_target[:3]
    print("three new samples:", loaded.predict(new).tolist())


if __name__ == "__main__":
    main()
