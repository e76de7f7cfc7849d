"""Measure suggested names: how often a word of the true intent is among the five names of a new group of BANKING77.

    python benchmarks/text_names.py banking77_minilm.npz

Random splits: 25 common intents, 25 of the source alone, 27 new ones. The true intent of a group that UniNCM finds is
the most frequent one of its members. A word counts if its stem is that of a word of the intent's name. The strict count
leaves out function words, and words that five or more intents have, such as "card" and "transfer", unless the intent
has no other.
"""

from __future__ import annotations

import argparse
import re
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

from uniot import UniNCM
from uniot.text import Terms, TextEncoder, suggest_names

SUFFIXES = (
    "ations",
    "ation",
    "ings",
    "ing",
    "ities",
    "ity",
    "ments",
    "ment",
    "ies",
    "ied",
    "ed",
    "es",
    "s",
    "al",
    "y",
    "e",
)
FUNCTION_WORDS = frozenset(
    """a about and as be by do for get getting how i in into is it me my not of on or out still the to up via what where
    why with""".split()  # noqa: SIM905
)
LEAST_COMMON = 5
LEAST_FREQUENT = 3


def stem(word: str) -> str:
    for suffix in SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            return word[: -len(suffix)]
    return word


def stems(name: str) -> set[str]:
    words = re.findall(r"[^\W_]+", name.lower())
    return {stem(word) for word in words if word not in FUNCTION_WORDS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sentences", type=Path, help=".npz with {train,test}_{x,y,text}")
    parser.add_argument("--splits", type=int, default=6)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    data = np.load(options.sentences)
    intents = sorted(set(data["train_y"].tolist()))
    frequency = Counter(one for intent in intents for one in stems(intent))
    common = {one for one, count in frequency.items() if count >= LEAST_COMMON}
    encoder = TextEncoder.open()
    words = Counter(word for text in data["train_text"].tolist() for word in re.findall(r"[^\W\d_]{2,}", text.lower()))
    lists = {
        "words of the training sentences": [word for word, count in words.items() if count >= LEAST_FREQUENT],
        "names of all intents": [intent.replace("_", " ") for intent in intents],
    }
    terms = {kind: Terms(tuple(one), encoder.embed(one)) for kind, one in lists.items()}
    found: Counter[str] = Counter()
    strictly: Counter[str] = Counter()
    n_groups = exact = 0
    for seed in range(options.splits):
        order = np.random.default_rng(seed).permutation(intents).tolist()
        of_source, of_target = set(order[:50]), {*order[:25], *order[50:]}
        source = np.array([label in of_source for label in data["train_y"].tolist()])
        target = np.array([label in of_target for label in data["test_y"].tolist()])
        rows = data["test_x"][target].astype(np.float32)
        model = UniNCM(random_state=seed).fit(data["train_x"][source].astype(np.float32), data["train_y"][source], rows)
        groups, count = model.groups_, int(model.groups_.max()) + 1
        texts, truth = data["test_text"][target].tolist(), data["test_y"][target]
        suggested = {"typical words": suggest_names(texts, groups, count)}
        suggested |= {kind: suggest_names(texts, groups, count, rows=rows, terms=one) for kind, one in terms.items()}
        n_groups += count
        for group in range(count):
            intent = Counter(truth[groups == group].tolist()).most_common(1)[0][0]
            rare = stems(intent) - common or stems(intent)
            for kind, names in suggested.items():
                given = stems(" ".join(names[group]))
                found[kind] += bool(given & stems(intent))
                strictly[kind] += bool(given & rare)
            exact += intent.replace("_", " ") in suggested["names of all intents"][group]
    print(f"{n_groups} groups of {options.splits} splits: a word of the true intent among five names (strictly)")
    for kind in found:
        size = f" ({len(lists[kind])})" if kind in lists else ""
        print(f"{kind + size:40} {100 * found[kind] / n_groups:5.1f} %  ({100 * strictly[kind] / n_groups:.1f} %)")
    print(f"the whole name of the true intent among five names of the intents: {100 * exact / n_groups:.1f} %")


if __name__ == "__main__":
    main()
