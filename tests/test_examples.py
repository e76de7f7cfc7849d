"""Every example runs, stays short, and prints what its reader is promised."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

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
    "transport_alone.py": ["converged: True", "known among the near: 200 of 200", "class 0, known: True"],
}


def test_every_example_is_tried() -> None:
    # run_onnx by test_export, on a model that it has made; choose_settings by test_validation, with fewer settings;
    # write_your_own_method by test_example_method, which looks at its parts too
    elsewhere = {"run_onnx.py", "choose_settings.py", "write_your_own_method.py"}
    assert {path.name for path in EXAMPLES.glob("*.py")} - elsewhere == set(PROMISES)


SLOW = {"compare_methods.py"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in sorted(PROMISES)]
)
def test_example_prints_what_it_promises(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert len((EXAMPLES / name).read_text().splitlines()) < 80
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    printed = capsys.readouterr().out
    for promise in PROMISES[name]:
        assert promise in printed
