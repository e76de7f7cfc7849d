"""A loop in plain PyTorch around `UniOTLoss` is the method `UniOT`, to rounding."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from uniot import UniOT
from uniot.io.arrays import scaled_rows

EXAMPLE = Path(__file__).parents[2] / "examples" / "plain_torch_uniot.py"


@pytest.fixture(scope="module")
def plain():
    return runpy.run_path(str(EXAMPLE))


@pytest.fixture(scope="module")
def domains():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(7, 32))
    labels, truth = np.arange(200) % 5, np.arange(240) % 7
    source, target = (
        centres[labels] + 0.6 * rng.normal(size=(200, 32)),
        centres[truth] + 0.6 * rng.normal(size=(240, 32)),
    )
    return source, labels, target + 0.3


def test_the_loop_trains_the_weights_and_predicts_the_labels_of_the_estimator(plain, domains):
    source, labels, target = domains
    sizes = {"hidden_size": 256, "feature_size": 64, "n_clusters": 20, "queue_size": 180}
    estimator = UniOT(steps=plain["STEPS"], random_state=0, n_private_classes=2, **sizes)
    estimator.fit(source, labels, target)
    seed = estimator.model_.settings.seed
    scaled = [scaled_rows(x, plain["NORM"]) for x in (source, target)]
    network, loss = plain["train"](scaled[0], torch.from_numpy(labels), scaled[1], seed)
    expected = estimator.model_.method.state_dict()
    for name, value in network.state_dict().items():
        torch.testing.assert_close(value, expected[f"projection.{name}"], rtol=1e-5, atol=1e-5)
    for name, value in loss.state_dict().items():
        torch.testing.assert_close(value, expected[f"loss.{name}"], rtol=1e-5, atol=1e-5)
    # Common-class detection took part, or half of the loss would be untested.
    assert float((loss.common.class_mass - 1 / 5).abs().max()) > 1e-3
    found = plain["predict"](network, loss, scaled[1], seed).numpy()
    assert (found == estimator.labels_).all()
    assert {-1, 0, 1, 2, 3, 4} == set(found.tolist())


def test_the_loop_uses_nothing_of_the_library_but_losses_and_transport():
    lines = EXAMPLE.read_text(encoding="utf-8")
    assert len(lines.splitlines()) <= 80
    modules = [
        node.module if isinstance(node, ast.ImportFrom) else alias.name
        for node in ast.walk(ast.parse(lines))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    ]
    assert {name for name in modules if name.startswith("uniot")} <= {"uniot.losses", "uniot.transport"}
