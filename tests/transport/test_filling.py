from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from uniot.transport.filling import (
    FilledRows,
    adaptive_filling,
    common_rows,
    draw_rows,
    fake_private_similarity,
    filled_potential,
)
from uniot.transport.unbalanced import unbalanced_potential

GAMMA = 0.7


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


def never(similarity, counts):
    raise AssertionError("nobody should ask for confident rows here")


def fill(similarity, confident=never, counts=None, prototypes=None, seed=0) -> FilledRows:
    counts = torch.ones(len(similarity)) if counts is None else counts
    prototypes = torch.eye(similarity.shape[1]) if prototypes is None else prototypes
    generator = torch.Generator().manual_seed(seed)
    return adaptive_filling(similarity, counts, prototypes, confident, GAMMA, generator)


def positives_and_negatives(filled: FilledRows) -> tuple[int, int]:
    positive = filled.similarity.amax(dim=1) > GAMMA
    return int(filled.counts[positive].sum()), int(filled.counts[~positive].sum())


def rows_with(n_positive: int, n_negative: int) -> torch.Tensor:
    """Unit features in the plane of two orthogonal prototypes, or far from it."""
    return torch.tensor([[0.9, 0.1]] * n_positive + [[0.2, 0.3]] * n_negative)


# --- too few positives ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_positive", "n_negative"), [(3, 9), (1, 20), (5, 6)])
def test_repeating_confident_rows_makes_positives_as_many_as_negatives(n_positive, n_negative):
    similarity = rows_with(n_positive, n_negative)
    filled = fill(similarity, confident=lambda s, counts: s.amax(dim=1) > GAMMA)
    assert filled.n_filled == n_negative - n_positive
    assert positives_and_negatives(filled) == (n_negative, n_negative)
    assert torch.equal(filled.similarity, similarity)


def test_only_confident_rows_are_repeated():
    confident = torch.tensor([True, False, True] + [False] * 9)
    filled = fill(rows_with(3, 9), confident=lambda s, counts: confident)
    extra = filled.counts - 1
    assert int(extra.sum()) == 6
    assert extra[~confident].tolist() == [0] * 10


def test_a_row_that_stands_often_is_repeated_more_often():
    counts = torch.tensor([30.0, 10.0, 1000.0])
    filled = fill(
        torch.tensor([[0.9, 0.0], [0.0, 0.9], [0.1, 0.1]]), lambda s, c: torch.tensor([True, True, False]), counts
    )
    extra = filled.counts - counts
    assert int(extra.sum()) == 1000 - 40
    assert float(extra[0] / extra[1]) == pytest.approx(3, rel=0.2)


def test_without_a_confident_row_nothing_is_filled():
    similarity = rows_with(2, 7)
    filled = fill(similarity, confident=lambda s, counts: torch.zeros(9, dtype=torch.bool))
    assert filled.n_filled == 0
    assert torch.equal(filled.counts, torch.ones(9))


def test_exactly_half_needs_no_filling_and_no_unfilled_problem():
    filled = fill(rows_with(5, 5))
    assert filled.n_filled == 0
    assert len(filled.similarity) == 10


def test_positive_means_above_the_threshold_not_at_it():
    similarity = torch.tensor([[0.7, 0.0], [0.71, 0.0]], dtype=torch.float64)
    assert fill(similarity, counts=torch.ones(2, dtype=torch.float64)).n_filled == 0


# --- too few negatives ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_positive", "n_negative"), [(9, 3), (20, 0), (6, 5)])
def test_fakes_make_negatives_as_many_as_positives(n_positive, n_negative):
    # Orthogonal prototypes: a fake is never closer than √½ … to z's own, and farther from γ when z is not on it.
    similarity = rows_with(n_positive, n_negative)
    filled = fill(similarity)
    assert filled.n_filled == n_positive - n_negative
    assert int(filled.counts.sum()) == 2 * n_positive
    assert torch.equal(filled.similarity[: len(similarity)], similarity)
    assert torch.equal(filled.counts[: len(similarity)], torch.ones(len(similarity)))


def test_fake_similarity_is_that_of_the_explicit_fake_feature(make_problem):
    problem = make_problem(50, 6)
    farthest = problem.prototypes[problem.similarity.argmin(dim=1)]
    explicit = F.normalize(problem.features / 2 + farthest / 2, dim=1) @ problem.prototypes.t()
    found = fake_private_similarity(problem.similarity, problem.prototypes)
    assert found.numpy() == pytest.approx(explicit.numpy(), abs=1e-12)


def test_filling_adds_fakes_of_the_rows_that_were_drawn(make_problem):
    problem = make_problem(40, 5)
    z = F.normalize(problem.prototypes[torch.arange(40) % 5] + 0.01 * problem.features, dim=1)
    similarity = z @ problem.prototypes.t()
    filled = fill(similarity, prototypes=problem.prototypes)
    farthest = problem.prototypes[similarity.argmin(dim=1)]
    explicit = F.normalize(z / 2 + farthest / 2, dim=1) @ problem.prototypes.t()
    for row in filled.similarity[40:]:
        assert float((explicit - row).abs().amax(dim=1).min()) < 1e-6
    assert int(filled.counts[40:].sum()) == 40


def test_fake_of_a_sample_opposite_to_its_farthest_prototype_is_finite():
    similarity = torch.tensor([[1.0, -1.0]])
    prototypes = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    assert torch.isfinite(fake_private_similarity(similarity, prototypes)).all()


# --- drawing ----------------------------------------------------------------------------------------------


def test_draws_are_counted_and_never_fall_on_an_empty_row(generator):
    pool = torch.tensor([0.0, 3.0, 0.0, 1.0, 0.0])
    drawn = draw_rows(pool, 4000, generator)
    assert int(drawn.sum()) == 4000
    assert drawn[pool == 0].tolist() == [0, 0, 0]
    assert float(drawn[1]) == pytest.approx(3000, abs=150)


def test_draws_are_with_replacement(generator):
    drawn = draw_rows(torch.ones(100), 100, generator)
    assert int(drawn.sum()) == 100
    # Of 100 draws from 100 rows about 63 rows are met: 1 − 1/e.
    assert 50 <= int((drawn > 0).sum()) <= 75


def test_same_generator_draws_the_same_rows():
    first, second = (draw_rows(torch.ones(50), 30, torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(first, second)


# --- the filled problem -----------------------------------------------------------------------------------


def test_filled_problem_counts_its_filling_in_n(make_problem):
    problem = make_problem(60, 5)
    positive = int((problem.similarity.amax(dim=1) > GAMMA).sum())
    solved = filled_potential(
        problem.similarity,
        problem.prototypes,
        torch.full((5,), 0.2),
        generator=torch.Generator().manual_seed(0),
    )
    assert positive != 30
    assert solved.n_rows == 60 + abs(60 - 2 * positive)


def test_filled_problem_is_the_unbalanced_problem_of_the_filled_rows(make_problem):
    problem = make_problem(60, 5)
    beta = torch.full((5,), 0.2, dtype=torch.float64)

    def confident(rows, counts):
        return common_rows(unbalanced_potential(rows, beta, tolerance=1e-10, row_counts=counts), rows)

    filled = adaptive_filling(
        problem.similarity,
        torch.ones(60, dtype=torch.float64),
        problem.prototypes,
        confident,
        GAMMA,
        torch.Generator().manual_seed(3),
    )
    expected = unbalanced_potential(filled.similarity, beta, tolerance=1e-10, row_counts=filled.counts)
    solved = filled_potential(
        problem.similarity, problem.prototypes, beta, tolerance=1e-10, generator=torch.Generator().manual_seed(3)
    )
    assert filled.n_filled > 0
    assert solved.class_potential.numpy() == pytest.approx(expected.class_potential.numpy(), abs=1e-7)


def test_without_a_confident_row_the_unfilled_solution_is_the_answer():
    # Rows alike and classes alike: every row sends 1/c of its share to each class, none is confident.
    similarity = torch.full((8, 4), 0.1)
    solved = filled_potential(
        similarity, torch.eye(4), torch.full((4,), 0.25), generator=torch.Generator().manual_seed(0)
    )
    assert solved.n_rows == 8
    assert not common_rows(solved, similarity).any()
    assert solved.class_confidence.tolist() == pytest.approx([0.25] * 4)
