"""UniOT as published and UniNCM on the same embeddings, in one table. Takes about ten seconds.

python examples/compare_methods.py
"""

from __future__ import annotations

from uniot import UniNCM, UniOT
from uniot.datasets import make_toy_domains
from uniot.metrics import evaluate

# Classes that are common, only in the source, and only in the target.
SETTINGS = {"open-partial": (5, 3, 3), "closed": (8, 0, 0)}


def main() -> None:
    """Print a row per setting and method; the truth enters only the scores."""
    print(f"{'setting':<14}{'method':<8}{'accuracy':>9}{'unknown':>9}{'new classes':>13}")
    for setting, (n_common, n_source_private, n_target_private) in SETTINGS.items():
        toy = make_toy_domains(n_common, n_source_private, n_target_private, spread=0.8, seed=2)
        # 200 steps are enough for so few samples; left out, the size of the target decides.
        for model in (UniOT(steps=200, random_state=0), UniNCM(random_state=0)):
            model.fit(toy.x_source, toy.y_source, toy.x_target)
            scores = evaluate(toy.oracle_y_target, model.labels_, source_classes=model.classes_)
            unknown = (model.labels_ == "unknown").mean()
            print(
                f"{setting:<14}{type(model).__name__:<8}{100 * scores.overall_accuracy:>8.1f}%{100 * unknown:>8.1f}%"
                f"{model.n_private_classes_:>13}"
            )


if __name__ == "__main__":
    main()
