"""The solver beside recorded numbers of POT; needs no POT."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from uniot.transport.filling import common_rows
from uniot.transport.unbalanced import unbalanced_plan, unbalanced_potential

RECORDED = json.loads(Path(__file__).with_name("transport.json").read_text(encoding="utf-8"))
# Numbers of another machine; `tests/transport` compares closer, with POT on this one.
STORED = 1e-5
SETTINGS = {"epsilon": RECORDED["epsilon"], "marginal_penalty": RECORDED["marginal_penalty"]}


@pytest.fixture(scope="module")
def problem() -> tuple[torch.Tensor, torch.Tensor]:
    make_problem = runpy.run_path(str(Path(__file__).with_name("make_transport.py")))["make_problem"]
    similarity, class_mass = make_problem(RECORDED["seed"], RECORDED["n"], RECORDED["c"])
    assert similarity[0] == pytest.approx(np.array(RECORDED["first_similarities"]), abs=STORED)
    return torch.from_numpy(similarity), torch.from_numpy(class_mass)


def test_total_mass_and_column_sums_are_the_recorded_ones(problem):
    plan = unbalanced_plan(*problem, **SETTINGS, tolerance=1e-12)
    assert plan.total_mass == pytest.approx(RECORDED["total_mass"], rel=STORED)
    assert (plan.class_confidence * plan.total_mass).tolist() == pytest.approx(RECORDED["column_sums"], rel=STORED)
    assert plan.sample_confidence.tolist() == pytest.approx(RECORDED["sample_confidence"], rel=STORED)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_decisions_of_eq_7_are_the_recorded_ones(problem, dtype):
    similarity, class_mass = problem
    potential = unbalanced_potential(similarity.to(dtype), class_mass, **SETTINGS)
    assert potential.assign(similarity.to(dtype)).nearest.tolist() == RECORDED["nearest"]
    assert common_rows(potential, similarity.to(dtype)).tolist() == RECORDED["common"]


def test_recorded_decisions_are_of_both_kinds():
    assert 5 < sum(RECORDED["common"]) < 35
