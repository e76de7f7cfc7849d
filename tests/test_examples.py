"""Every example runs, stays short, and prints what its reader is promised."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tiers import slow_unless  # isort: skip

EXAMPLES = Path(__file__).parent.parent / "examples"
PROMISES = {
    "first_steps.py": [
        "H-score: 100.0",
        "groups among the unknown: ",
        "new sample: common-0, confidence 0.",
        "new sample: unknown, confidence 0.",
    ],
    "compare_methods.py": [
        "open-partial  UniOT ",
        "open-partial  UniNCM     100.0%",
        "closed        UniNCM     100.0%     0.0%",
    ],
    "plain_torch_uniot.py": ["correct: 100%"],
    "transport_alone.py": ["converged: True", "known among the near: 200 of 200", "class 0, known: True"],
}


def test_every_example_is_tried() -> None:
    # run_onnx by test_export, on a model that it has made; choose_settings by test_validation, with fewer settings;
    # write_your_own_method by test_example_method, which looks at its parts too
    elsewhere = {"run_onnx.py", "choose_settings.py", "write_your_own_method.py"}
    assert {path.name for path in EXAMPLES.glob("*.py")} - elsewhere == set(PROMISES)


@pytest.mark.parametrize("name", slow_unless(sorted(PROMISES), PROMISES.keys() - {"compare_methods.py"}))
def test_example_prints_what_it_promises(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    printed = capsys.readouterr().out
    for promise in PROMISES[name]:
        assert promise in printed
