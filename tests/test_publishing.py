"""What is published: wheel and source distribution, installed without the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest

import uniot
from uniot.datasets import make_toy_domains

ROOT = Path(__file__).parents[1]


def run(*command: object, cwd: Path) -> str:
    """Run a command outside of the checkout and return its output; a failure shows what it printed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, cwd=cwd, env=environment, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-d", out, cwd=ROOT)
    return out


def test_wheel_holds_the_package_with_its_pages_and_nothing_else(distributions):
    (wheel,) = distributions.glob("*.whl")
    assert wheel.name == f"uniot-{uniot.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {"uniot/py.typed", "uniot/report/templates/report.html.j2", "uniot/labelling/static/page.js"} <= set(names)
    assert {name.split("/")[0] for name in names} == {"uniot", f"uniot-{uniot.__version__}.dist-info"}


def test_source_distribution_holds_what_builds_and_tests_it(distributions):
    (archive,) = distributions.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    assert {"pyproject.toml", "README.md", "Makefile", "constraints.txt", "src/uniot/__init__.py"} <= names
    assert not any(name.startswith((".venv", "runs/", "site/")) for name in names)


@pytest.mark.slow
def test_wheel_works_in_an_empty_environment(distributions, tmp_path):
    (wheel,) = distributions.glob("*.whl")
    venv.create(tmp_path / "env", with_pip=True)
    binaries = tmp_path / "env" / ("Scripts" if os.name == "nt" else "bin")
    install = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-compile",
        "-c",
        ROOT / "constraints.txt",
    ]
    run(binaries / "python", *install, f"{wheel}[report]", cwd=tmp_path)
    toy = make_toy_domains(3, 1, 2, samples_per_class=30, dimensions=16)
    np.savez(tmp_path / "labelled.npz", x=toy.x_source, y=toy.y_source)
    np.savez(tmp_path / "unlabelled.npz", x=toy.x_target)
    run(binaries / "uniot", "adapt", "labelled.npz", "unlabelled.npz", "--out", "run", cwd=tmp_path)
    run(binaries / "uniot", "report", "run", cwd=tmp_path)
    assert (tmp_path / "run" / "report.html").stat().st_size > 100_000
    # `make test` runs the demo; here its data have to be in the wheel.
    digits = "from uniot.datasets.digits import load_digits_pair; print(len(load_digits_pair().target_images))"
    assert int(run(binaries / "python", "-c", digits, cwd=tmp_path)) > 1000
    where = run(binaries / "python", "-c", "import uniot; print(uniot.__file__, uniot.__version__)", cwd=tmp_path)
    assert str(tmp_path / "env") in where
    assert uniot.__version__ in where
