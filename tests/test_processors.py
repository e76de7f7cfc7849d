"""The answers of every method under settings that make this processor compute as another one does."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import processors

pytestmark = [pytest.mark.slow, pytest.mark.processors]

OTHERS = [setting for setting in processors.SETTINGS if setting != processors.AS_IT_IS]
# Of float32, after as few steps of training.
TOLERANCE = 1e-5

Answers = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> dict[str, Answers]:
    """Labels and probabilities of every method, under each setting; a setting is read when a process starts."""
    found = {}
    for setting in processors.SETTINGS:
        file = tmp_path_factory.mktemp("answers") / "answers.npz"
        subprocess.run(
            [sys.executable, processors.__file__, str(file)], env=processors.environment(setting), check=True
        )
        with np.load(file) as values:
            found[setting] = dict(values)
    return found


@pytest.mark.parametrize("setting", OTHERS)
def test_every_label_is_that_of_another_processor(answers, setting):
    expected, found = answers[processors.AS_IT_IS], answers[setting]
    names = [name for name in expected if name.endswith(" labels")]
    differing = {name: int((found[name] != expected[name]).sum()) for name in names}
    assert len(names) > 30
    assert {name: count for name, count in differing.items() if count} == {}


@pytest.mark.parametrize("setting", OTHERS)
def test_probabilities_are_those_of_another_processor(answers, setting):
    expected, found = answers[processors.AS_IT_IS], answers[setting]
    names = [name for name in expected if name.endswith(" probabilities")]
    largest = {name: float(np.abs(found[name] - expected[name]).max()) for name in names}
    assert len(names) > 30
    assert {name: difference for name, difference in largest.items() if not difference <= TOLERANCE} == {}


def test_settings_change_what_is_computed(answers):
    """Without this, equal answers would mean nothing."""

    def differ(setting: str) -> bool:
        expected = answers[processors.AS_IT_IS]
        return any(not np.array_equal(values, expected[name]) for name, values in answers[setting].items())

    assert differ("torch without vector instructions")
    assert differ("two threads")
    assert {setting: int(found["threads"]) for setting, found in answers.items()} == dict.fromkeys(
        processors.SETTINGS, 1
    ) | {"two threads": 2}


def test_tests_have_as_many_threads_as_they_are_told():
    assert torch.get_num_threads() == int(os.environ.get("UNIOT_TEST_THREADS", "1"))
