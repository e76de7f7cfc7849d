"""Arrays give what tensors give, and are left as they were."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from uniot.errors import DataError
from uniot.transport.balanced import balanced_plan
from uniot.transport.filling import common_rows, filled_potential
from uniot.transport.rows import FeatureRows, as_tensor
from uniot.transport.unbalanced import unbalanced_plan, unbalanced_potential


@pytest.fixture
def problem(make_problem, uneven_mass) -> dict[str, np.ndarray]:
    made = make_problem(60, 5)
    return {
        "similarity": made.similarity.numpy(),
        "features": made.features.numpy(),
        "prototypes": made.prototypes.numpy(),
        "class_mass": uneven_mass(5).numpy(),
        "counts": np.arange(60) % 3.0,
    }


def both(values: dict[str, np.ndarray]) -> list[dict[str, np.ndarray | torch.Tensor]]:
    return [values, {name: torch.from_numpy(value) for name, value in values.items()}]


def test_plans_of_arrays_are_those_of_tensors(problem):
    plans = [unbalanced_plan(of["similarity"], of["class_mass"], start=of["class_mass"]) for of in both(problem)]
    assert torch.equal(plans[0].mass, plans[1].mass)
    assert torch.equal(*(balanced_plan(of["similarity"]).mass for of in both(problem)))


def test_potentials_of_arrays_are_those_of_tensors(problem):
    solved = []
    for of in both(problem):
        potential = unbalanced_potential(of["similarity"], of["class_mass"], row_counts=of["counts"])
        filled = filled_potential(
            of["similarity"],
            of["prototypes"],
            of["class_mass"],
            counts=of["counts"],
            generator=torch.Generator().manual_seed(0),
        )
        streamed = unbalanced_potential(FeatureRows(of["features"], of["prototypes"]))
        answers = [potential.assign(of["similarity"]).confidence, common_rows(filled, of["similarity"])]
        solved.append([*(each.class_potential for each in (potential, filled, streamed)), *answers])
    assert all(torch.equal(first, second) for first, second in zip(*solved, strict=True))


def test_arrays_are_left_as_they_were(problem):
    before = {name: value.copy() for name, value in problem.items()}
    unbalanced_plan(problem["similarity"], problem["class_mass"])
    balanced_plan(problem["similarity"])
    for name, value in problem.items():
        np.testing.assert_array_equal(value, before[name])


def test_array_shares_its_memory_where_it_can(problem):
    similarity = problem["similarity"]
    assert as_tensor(similarity, "similarity").data_ptr() == similarity.ctypes.data
    similarity.setflags(write=False)
    for array in (similarity, similarity[::-1], np.asfortranarray(similarity), similarity.astype(np.float16)):
        np.testing.assert_array_equal(as_tensor(array, "similarity").numpy(), array)
    assert as_tensor([[0.5, 1.0]], "similarity").tolist() == [[0.5, 1.0]]


@pytest.mark.parametrize("wrong", [np.array([["a"]]), [[1.0], [1.0, 2.0]], np.array([[None]])])
def test_what_holds_no_numbers_is_named(wrong):
    with pytest.raises(DataError, match="similarity cannot be read as numbers .* Give a tensor or an array of floats"):
        unbalanced_plan(wrong)
