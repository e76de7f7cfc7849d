"""Choose settings without a label of the target, and see what such a choice is worth where the truth is known.

python examples/choose_settings.py        # one toy problem
python examples/choose_settings.py 15     # the table in docs/model-selection.md
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
import sklearn
from scipy.stats import spearmanr
from sklearn.model_selection import GridSearchCV

from uniot import UniDAClassifier
from uniot.datasets import ToyDomains, make_toy_domains
from uniot.errors import UndefinedScoreWarning
from uniot.metrics.accuracy import h_score
from uniot.metrics.label_free import negative_entropy, soft_neighbourhood_density, target_silhouette

SCORES = (soft_neighbourhood_density, negative_entropy, target_silhouette)
GRID = [
    {"method": ["uniot"], "adaptation_weight": [0.0, 0.1, 1.0], "steps": [10, 60], "detection_start": [5]},
    {"method": ["source-only", "dance", "ovanet"], "steps": [10, 60]},
]
SPREADS = (0.5, 0.8, 1.2)  # easy, middling, hard


def search(toy: ToyDomains) -> dict[str, np.ndarray]:
    """Every setting once, with its scores and, for us to look at, its true H-score."""
    x = np.concatenate([toy.x_source, toy.x_target])
    y = np.concatenate([toy.y_source, np.full(len(toy.x_target), "?")])
    sample_domain = np.repeat([1, -2], [len(toy.x_source), len(toy.x_target)])
    rows = np.arange(len(x))

    def oracle(model: UniDAClassifier, *_: object) -> float:
        return 100 * h_score(toy.oracle_y_target, model.labels_, source_classes=model.classes_)

    found = GridSearchCV(
        UniDAClassifier(random_state=0),
        GRID,
        scoring={score.__name__: score for score in SCORES} | {"oracle": oracle},
        cv=[(rows, rows)],  # no label is used, so a score may look at the rows that were adapted to
        refit="target_silhouette",
    ).fit(x, y, sample_domain=sample_domain)
    print("  target_silhouette chose", found.best_params_)
    return {name.removeprefix("mean_test_"): np.asarray(column) for name, column in found.cv_results_.items()}


def worth(title: str, tables: list[dict[str, np.ndarray]]) -> None:
    """What each score would have chosen."""
    best, mean = (np.mean([pick(table["oracle"]) for table in tables]) for pick in (np.max, np.mean))
    print(f"\n{title}: H-score {best:.1f} of the best, {mean:.1f} on average")
    for name in (score.__name__ for score in SCORES):
        chosen = np.mean([table["oracle"][table[name].argmax()] for table in tables])
        rank = np.mean([spearmanr(table[name], table["oracle"]).statistic for table in tables])
        print(f"  {name:27} chooses {chosen:.1f}, rank correlation with H {rank:+.2f}")


def main(n_problems: int = 1) -> None:
    sklearn.set_config(enable_metadata_routing=True)
    # A setting that gives every row the same answer has no silhouette, and counts as the worst.
    warnings.simplefilter("ignore", UndefinedScoreWarning)
    tables = []
    for seed in range(n_problems):
        spread = SPREADS[seed % len(SPREADS)]
        print(f"toy problem {seed}, spread and shift {spread}")
        tables.append(search(make_toy_domains(seed=seed, samples_per_class=20, spread=spread, shift=spread)))
    worth("all settings", tables)
    of_uniot = [{name: column[table["param_method"] == "uniot"] for name, column in table.items()} for table in tables]
    worth("settings of UniOT", of_uniot)
    long = [{name: column[table["param_steps"] == 60] for name, column in table.items()} for table in of_uniot]
    worth("settings of UniOT with 60 steps", long)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
