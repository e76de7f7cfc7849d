"""Settings that make one processor compute as another one does.

`python tests/processors.py` compares the answers of every method under these settings (`test_processors.py`, which
`make test-slow` runs too), and then runs the numerical tests under each of them; that is `make test-processors`.
`python tests/processors.py FILE` fits every method as the environment says and writes the answers to an .npz file.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np

TESTS = Path(__file__).parent
# What numpy chooses by the processor when it starts; the rest of it is the same everywhere.
OF_NUMPY = " ".join(np.show_config(mode="dicts")["SIMD Extensions"].get("found", []))
ONE_THREAD = {"OMP_NUM_THREADS": "1", "UNIOT_TEST_THREADS": "1"}
AS_IT_IS = "as it is"
# The sums of a product or a mean are added in another order under each of them. A library that a setting does not
# concern, or a processor that has nothing better, ignores it.
SETTINGS = {
    AS_IT_IS: ONE_THREAD,
    "torch without vector instructions": ONE_THREAD | {"ATEN_CPU_CAPABILITY": "default"},
    "torch with AVX2": ONE_THREAD | {"ATEN_CPU_CAPABILITY": "avx2"},
    "MKL of any processor": ONE_THREAD | {"MKL_CBWR": "COMPATIBLE"},
    "numpy and OpenBLAS of an old processor": ONE_THREAD
    | {"OPENBLAS_CORETYPE": "Prescott"}
    | ({"NPY_DISABLE_CPU_FEATURES": OF_NUMPY} if OF_NUMPY else {}),
    "two threads": {"OMP_NUM_THREADS": "2", "UNIOT_TEST_THREADS": "2"},
}
# What is computed, and not how it is read, written, drawn or served.
NUMERICAL = (
    "transport",
    "losses",
    "metrics",
    "reference",
    "methods",
    "discovery",
    "rejection",
    "data_quality",
    "runs/test_old_runs.py",
    "test_ask_tell.py",
    "test_estimators.py",
    "test_preference.py",
    "test_prototypes.py",
)
# Rounding grows with every step of training: after 20 of them DANN's probabilities differ by 1.1e-5.
STEPS = 5


def environment(setting: str) -> dict[str, str]:
    """The environment of a process that computes as the setting says."""
    changed = {name for values in SETTINGS.values() for name in values}
    return {name: value for name, value in os.environ.items() if name not in changed} | SETTINGS[setting]


def fit_every_method(file: Path) -> None:
    """Fits every method to the same made-up data, and writes its labels and probabilities."""
    import torch

    from uniot import UniDAClassifier
    from uniot.datasets import make_toy_domains
    from uniot.methods.registry import METHODS, hyperparameters

    warnings.simplefilter("ignore")
    torch.set_num_threads(int(os.environ["UNIOT_TEST_THREADS"]))
    data = make_toy_domains(n_common=6, n_source_private=4, n_target_private=4, samples_per_class=20)
    answers = {"threads": np.array(torch.get_num_threads())}
    for method in METHODS:
        steps = {"steps": STEPS} if "steps" in hyperparameters(method) else {}
        model = UniDAClassifier(method, n_private_classes=4, random_state=0, **steps)
        model.fit(data.x_source, data.y_source, data.x_target)
        answers[f"{method} labels"] = model.labels_
        answers[f"{method} probabilities"] = model.predict_proba(data.x_target)
    np.savez(file, **answers)


def run_pytest(setting: str, *arguments: str) -> bool:
    """Runs tests as the setting says; whether they pass."""
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-n", "auto", "--dist", "worksteal"]
    done = subprocess.run([*command, *arguments], cwd=TESTS.parent, env=environment(setting), check=False)
    sys.stdout.write(f"{setting}: {time.monotonic() - began:.0f} s, exit code {done.returncode}\n")
    sys.stdout.flush()
    return done.returncode == 0


def main() -> None:
    if len(sys.argv) > 1:
        fit_every_method(Path(sys.argv[1]))
        return
    folders = [str(TESTS / name) for name in NUMERICAL]
    passed = [run_pytest(AS_IT_IS, str(TESTS / "test_processors.py"))]
    passed += [run_pytest(setting, "-m", "not slow", *folders) for setting in SETTINGS if setting != AS_IT_IS]
    sys.exit(not all(passed))


if __name__ == "__main__":
    main()
