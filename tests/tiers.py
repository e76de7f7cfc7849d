"""The tiers of the suite: `make quick`, `make test` and `make test-slow`.

A test without a marker is in all three of them. `medium` leaves it out of `make quick`, `slow` out of `make test` too.
`make test-slow` runs the slow tests, and once more every property test with as many examples as it asks for.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

# `make test-slow` sets it.
THOROUGH = os.environ.get("UNIOT_TEST_TIER") == "slow"
# Examples of a property test in the ordinary tier. A property that is wrong fails on one of the first few, nearly
# always: Hypothesis begins with the simplest values.
FEW_EXAMPLES = 20

# Marked as medium by their place: whole commands and fits, pages and processes.
MEDIUM = (
    *("benchmark", "cli", "export", "images", "labelling", "report", "training"),
    *("test_ask_tell.py", "test_distributed.py", "test_estimators.py", "test_example_method.py", "test_examples.py"),
    *(
        "test_front_door.py",
        "test_hyperparameters.py",
        "test_mutants.py",
        "test_plain_install.py",
        "test_preference.py",
    ),
    *("test_preference.py", "test_publishing.py", "test_skada.py"),
)
# One method of each kind: the paper's transport, nearest class means without training, an adversary, neighbours of a
# memory bank, one classifier per class, and one that adapts without the source.
FAMILIES = ("uniot", "unincm", "dann", "dance", "ovanet", "glc")


def examples(count: int, **others: Any) -> settings:
    """Return settings of a property test that needs `count` examples: all in the slow tier, at most 20 before it."""
    return settings(max_examples=count if THOROUGH else min(count, FEW_EXAMPLES), **others)


def slow_unless(values: Iterable[Any], ordinary: Iterable[Any] = FAMILIES) -> list[Any]:
    """Return parameters of which all but the `ordinary` ones are in the slow tier; a tuple is several arguments."""
    kept = set(ordinary)
    return [
        value
        if value in kept
        else pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)
        for value in values
    ]
