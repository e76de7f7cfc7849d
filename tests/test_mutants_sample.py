"""A random sample of the mutants is killed by the tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "mutants.py"


@pytest.mark.slow
def test_a_sample_of_the_mutants_is_killed():
    command = [sys.executable, str(SCRIPT), "--sample", "20", "--seed", "0"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
