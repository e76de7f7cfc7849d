"""Methods of other packages, by entry points of the group "uniot.methods"."""

from __future__ import annotations

import math
import os
import runpy
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
import torch

import uniot
from uniot.config import Settings
from uniot.errors import PackageWarning, SettingsError
from uniot.methods import source_only
from uniot.methods.base import Batch
from uniot.methods.fitted import GivenPrototypes
from uniot.methods.registry import METHODS, MethodRegistry, method_info

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

BUILT_IN = METHODS["dance"]
MODULE = '''
import torch.nn.functional as F
from pydantic import Field
from uniot.methods import Losses, MethodInfo, MethodOptions
from uniot.methods.head import HeadMethod

class SmoothedOptions(MethodOptions):
    """Hyper-parameters."""
    smoothing: float = Field(0.1, ge=0, lt=1, description="Of the labels.")

class Smoothed(HeadMethod):
    """A classifier trained with smoothed labels."""
    def step(self, batch):
        source, _ = self.batch_features(batch)
        smoothing = self.options.smoothing
        loss = F.cross_entropy(self.classifier(source), batch.source_labels, label_smoothing=smoothing)
        return Losses(loss, {"source": loss})

INFO = MethodInfo("smoothed", "Smoothed", "its authors, 2026", "unknown if unsure", Smoothed, SmoothedOptions)
'''
FIT = """
import sys
import numpy as np
import uniot
rng, labels = np.random.default_rng(0), np.repeat([0, 1], 20)
x = np.eye(2, 4)[labels] + 0.1 * rng.normal(size=(40, 4))
model = uniot.UniDAClassifier("smoothed", steps=3, smoothing=0.2, random_state=0).fit(x, labels, x)
model.save(sys.argv[1])
assert (uniot.load(sys.argv[1]).predict(x) == model.labels_).all()
"""


def install(site: Path, name: str, code: str, entries: str) -> Path:
    """Write an installed package as pip leaves it: a module, and metadata with entry points."""
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[uniot.methods]\n{entries}\n")
    (site / f"{name.replace('-', '_')}.py").write_text(code)
    return site


def run(*command: str, site: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python with the packages of a folder beside the installed ones."""
    paths = [str(Path(uniot.__file__).parents[1]), *([] if site is None else [str(site)])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "300"}
    command = (sys.executable, *command)
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)


@pytest.mark.medium
def test_a_package_adds_a_method_to_the_command_line_the_benchmark_and_the_estimators(tmp_path):
    site = install(tmp_path / "site", "uniot-smoothed", MODULE, "smoothed = uniot_smoothed:INFO")
    install(site, "uniot-broken", "import a_module_that_is_not_there", "broken = uniot_broken:INFO")
    shown = run("-m", "uniot", "methods", site=site)
    assert shown.returncode == 0, shown.stderr
    assert "smoothed" in shown.stdout
    assert "its authors, 2026 (from the package uniot-smoothed)" in shown.stdout
    # A package that cannot be imported is named, and harms nothing else.
    assert "Warning: the method 'broken' of the package uniot-broken is left out: it cannot be imported" in shown.stderr
    assert "No module named 'a_module_that_is_not_there'" in shown.stderr

    labels = np.repeat([0, 1], 20)
    for name in ("source", "target"):
        x = np.eye(2, 4)[labels] + 0.1 * np.random.default_rng(0).normal(size=(40, 4))
        np.savez(tmp_path / f"{name}.npz", x=x, y=labels)
    files = [str(tmp_path / "source.npz"), str(tmp_path / "target.npz")]
    adapt = ("-m", "uniot", "adapt", *files, "--method", "smoothed", "--steps", "2", "--out", str(tmp_path / "cli"))
    adapted = run(*adapt, site=site)
    assert adapted.returncode == 0, adapted.stderr
    planned = run(
        "-c",
        "from uniot.benchmark.jobs import check_methods, Options; check_methods(['smoothed'], Options())",
        site=site,
    )
    assert planned.returncode == 0, planned.stderr

    fitted = run("-c", FIT, str(tmp_path / "run"), site=site)
    assert fitted.returncode == 0, fitted.stderr
    opened = run(
        "-m", "uniot", "predict", str(tmp_path / "run"), files[1], "--out", str(tmp_path / "new.csv"), site=site
    )
    assert opened.returncode == 0, opened.stderr
    without = run("-m", "uniot", "predict", str(tmp_path / "run"), files[1], "--out", str(tmp_path / "new.csv"))
    assert without.returncode != 0
    message = "there is no method called 'smoothed': it comes from the package uniot-smoothed, which is not installed"
    assert message in without.stderr.replace("\n", " ")
    assert "pip install uniot-smoothed" in without.stderr.replace("\n", " ")


class Entry(EntryPoint):
    """An entry point that loads to a given value."""

    def load(self):
        return VALUES[self.name]


VALUES = {
    "dance": replace(source_only.INFO, name="dance"),
    "other": replace(source_only.INFO, name="another"),
    "number": 3,
    "fine": replace(source_only.INFO, name="fine"),
}


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("dance", r"'dance' of an unknown package is left out: it has a name that a method of uniot has already"),
        ("other", r"'other' .* is left out: it calls itself 'another'. Its authors have to give .* the same name"),
        ("number", r"'number' .* is left out: it loads to 3, expected a MethodInfo"),
    ],
)
def test_a_wrong_entry_is_left_out_with_words(name, problem, monkeypatch):
    entries = [Entry(name, "module:INFO", "uniot.methods"), Entry("fine", "module:INFO", "uniot.methods")]
    monkeypatch.setattr("uniot.methods.registry.entry_points", lambda group: entries)
    registry = MethodRegistry([BUILT_IN])
    with pytest.warns(PackageWarning, match=problem):
        names = list(registry)
    assert names == ["dance", "fine"]
    assert registry["dance"] is BUILT_IN


def test_packages_are_searched_once_and_not_before_the_first_look(monkeypatch):
    searches = []
    monkeypatch.setattr("uniot.methods.registry.entry_points", lambda group: searches.append(group) or [])
    registry = MethodRegistry([BUILT_IN])
    assert searches == []
    assert len(registry) == 1
    assert "ovanet" not in registry
    assert searches == ["uniot.methods"]


def test_methods_of_this_package_come_from_no_other():
    assert {METHODS.package_of(name) for name in METHODS} == {None}


def test_a_method_of_a_package_that_is_gone_names_the_package():
    with pytest.raises(SettingsError, match=r"comes from the package far-away, .* Run `pip install far-away`"):
        method_info("distant", "far-away")


# A package of its own, as a user would write one.
FOLDER = Path(__file__).parents[2] / "examples" / "cross_modal"
EXAMPLE = FOLDER / "uniot_cross_modal.py"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    entries = "\n".join(f"{name} = {place}" for name, place in project["entry-points"]["uniot.methods"].items())
    return install(tmp_path / "site", project["name"], EXAMPLE.read_text(encoding="utf-8"), entries)


@pytest.mark.medium
def test_command_line_and_benchmark_use_the_example_package(site, tmp_path):
    shown = run("-m", "uniot", "methods", site=site)
    assert "cross-modal" in shown.stdout, shown.stderr
    assert "(from the package uniot-cross-modal)" in shown.stdout
    labels = np.repeat([0, 1], 20)
    for name in ("source", "target"):
        x = np.eye(2, 4)[labels] + 0.1 * np.random.default_rng(0).normal(size=(40, 4))
        np.savez(tmp_path / f"{name}.npz", x=x, y=labels)
    files = [str(tmp_path / f"{name}.npz") for name in ("source", "target")]
    adapt = ("-m", "uniot", "adapt", *files, "--method", "cross-modal", "--steps", "2", "--out", str(tmp_path / "run"))
    adapted = run(*adapt, site=site)
    assert adapted.returncode == 0, adapted.stderr
    check = "from uniot.benchmark.jobs import check_methods, Options; check_methods(['cross-modal'], Options())"
    planned = run("-c", check, site=site)
    assert planned.returncode == 0, planned.stderr
    without = run("-c", check)
    assert "there is no method called 'cross-modal'" in without.stderr


def test_loss_of_the_example_package_worked_by_hand():
    info = runpy.run_path(str(EXAMPLE))["INFO"]
    settings = Settings.checked(method="source-only").resolved(4)
    method = info.build(2, 2, settings, info.options(temperature=1.0, text_weight=0.5), None)
    method.use_prototypes(GivenPrototypes(torch.eye(2)))
    source = torch.tensor([[3.0, 0.0], [0.0, 2.0]])
    losses = method.step(Batch(source, torch.tensor([0, 0]), source, torch.arange(2), 0, torch.Generator()))
    # Unit rows: logits (1, 0) with the right class first, and (0, 1) with the wrong one; each text is its own class.
    right, wrong = math.log(1 + math.exp(-1)), math.log(1 + math.exp(1))
    assert losses.total.item() == pytest.approx((right + wrong) / 2 + 0.5 * right, rel=1e-6)
    method.texts.zero_()
    without = method.step(Batch(source, torch.tensor([0, 0]), source, torch.arange(2), 0, torch.Generator()))
    assert without.parts["text"].item() == pytest.approx(math.log(2))
