from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from uniot.errors import DataError, NumericalWarning, SettingsError
from uniot.transport.filling import common_rows
from uniot.transport.rows import SimilarityRows
from uniot.transport.unbalanced import unbalanced_plan, unbalanced_potential

SIZES = [(1, 1), (2, 2), (5, 9), (36, 20), (120, 7), (400, 31)]


def eq7(mass: np.ndarray) -> np.ndarray:
    """Common or not, row by row, straight from the text of Eq. (5) to (7)."""
    mass = mass / mass.sum()
    n, c = mass.shape
    columns = mass.sum(axis=0)
    return np.array([row.max() >= 1 / n and columns[row.argmax()] >= 1 / c for row in mass])


# --- the same answer as POT -------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "c"), SIZES)
@pytest.mark.parametrize("uneven", [False, True])
def test_plan_matches_pot_when_converged(n, c, uneven, make_problem, uneven_mass, pot_plan):
    similarity = make_problem(n, c, seed=n + c).similarity
    beta = uneven_mass(c) if uneven else None
    expected = pot_plan(similarity, beta)
    plan = unbalanced_plan(similarity, beta, tolerance=1e-12)
    assert plan.converged
    assert plan.total_mass == pytest.approx(expected.sum(), rel=1e-9)
    assert plan.mass.numpy() == pytest.approx(expected / expected.sum(), rel=1e-7, abs=1e-12)
    assert plan.sample_confidence.numpy() == pytest.approx(expected.max(axis=1) / expected.sum(), rel=1e-7)
    assert plan.class_confidence.numpy() == pytest.approx(expected.sum(axis=0) / expected.sum(), rel=1e-7)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_eq7_decides_as_it_does_on_the_plan_of_pot(seed, dtype, make_problem, uneven_mass, pot_plan):
    similarity = make_problem(200, 9, seed).similarity
    beta = uneven_mass(9)
    potential = unbalanced_potential(similarity.to(dtype), beta)
    decisions = common_rows(potential, similarity.to(dtype)).numpy()
    assert decisions.tolist() == eq7(pot_plan(similarity, beta)).tolist()
    assert 0 < decisions.sum() < 200


@pytest.mark.parametrize(("epsilon", "marginal_penalty"), [(0.05, 0.1), (0.02, 2.0), (1.0, 0.5), (10.0, 1000.0)])
def test_plan_matches_pot_at_other_weights(epsilon, marginal_penalty, make_problem, uneven_mass, pot_plan):
    similarity = make_problem(60, 5).similarity
    beta = uneven_mass(5)
    expected = pot_plan(similarity, beta, epsilon, marginal_penalty)
    plan = unbalanced_plan(similarity, beta, epsilon, marginal_penalty, tolerance=1e-11)
    assert plan.total_mass == pytest.approx(expected.sum(), rel=1e-7)
    assert plan.mass.numpy() == pytest.approx(expected / expected.sum(), rel=1e-5, abs=1e-10)


def test_smallest_epsilon_matches_plain_sinkhorn_in_logarithms(make_problem, uneven_mass, log_sinkhorn):
    similarity = make_problem(30, 4).similarity
    expected = log_sinkhorn(similarity, uneven_mass(4), epsilon=1e-3)
    plan = unbalanced_plan(similarity, uneven_mass(4), epsilon=1e-3, tolerance=1e-10)
    assert plan.total_mass == pytest.approx(float(expected.sum()), rel=1e-7)
    assert plan.mass.numpy() == pytest.approx((expected / expected.sum()).numpy(), abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_potential_is_within_the_tolerance_that_was_asked_for(seed, make_problem):
    similarity = make_problem(500, 12, seed).similarity
    exact = unbalanced_potential(similarity, tolerance=1e-13).class_potential
    for tolerance in (1e-3, 1e-5, 1e-7):
        rough = unbalanced_potential(similarity, tolerance=tolerance).class_potential
        assert 0.01 * float((rough - exact).abs().max()) <= tolerance
    in_float32 = unbalanced_potential(similarity.float(), tolerance=1e-6).class_potential
    assert 0.01 * float((in_float32 - exact).abs().max()) <= 1e-5


# --- worked by hand ---------------------------------------------------------------------------------------


def test_symmetric_two_by_two_worked_by_hand():
    # ε = κ = 1, so f = κ/(κ+ε) = 1/2. S = [[ln 3, 0], [0, ln 3]] gives the kernel K = exp(S/ε) = [[3, 1], [1, 3]],
    # whose rows and columns sum to 4. Masses are 1/2 on both sides, so u and v are the same constant x:
    #     x = (1/2 / (4 x))^f    ⇒    x^(3/2) = (1/8)^(1/2)    ⇒    x = 8^(-1/3) = 1/2.
    # Q = x² K = [[3, 1], [1, 3]] / 4: total mass 2, divided by it [[3, 1], [1, 3]] / 8, and l = ln x = −ln 2.
    similarity = torch.tensor([[math.log(3), 0], [0, math.log(3)]], dtype=torch.float64)
    plan = unbalanced_plan(similarity, epsilon=1, marginal_penalty=1, tolerance=1e-14)
    assert plan.total_mass == pytest.approx(2)
    assert plan.mass.tolist() == [pytest.approx([3 / 8, 1 / 8]), pytest.approx([1 / 8, 3 / 8])]
    assert plan.class_potential.tolist() == pytest.approx([-math.log(2)] * 2)
    assert plan.sample_confidence.tolist() == pytest.approx([3 / 8, 3 / 8])
    assert plan.class_confidence.tolist() == pytest.approx([1 / 2, 1 / 2])


def test_one_sample_between_uneven_classes_worked_by_hand():
    # ε = κ = 1, f = 1/2, one row, S = 0 so K = (1, 1), β = (1/5, 4/5).
    #     v_j = (β_j/u)^½,   u = (1 / (v_1 + v_2))^½ = (u^½ / σ)^½ with σ = √β_1 + √β_2 = 3/√5
    #     ⇒ u^(3/4) = σ^(-1/2) ⇒ u = σ^(-2/3), and the total is u (v_1 + v_2) = u^½ σ = σ^(2/3) = (9/5)^(1/3).
    # Each class receives in proportion to √β_j: 1/3 and 2/3. (With `reg_type="kl"` it would be another answer.)
    beta = torch.tensor([0.2, 0.8])
    plan = unbalanced_plan(torch.zeros(1, 2), beta, epsilon=1, marginal_penalty=1)
    assert plan.total_mass == pytest.approx((9 / 5) ** (1 / 3), rel=1e-6)
    assert plan.mass.tolist() == [pytest.approx([1 / 3, 2 / 3], rel=1e-6)]


# --- facts of the theory ----------------------------------------------------------------------------------


def test_solution_is_a_fixed_point_of_the_scaling_steps(make_problem, uneven_mass):
    similarity, beta = make_problem(80, 6).similarity, uneven_mass(6)
    epsilon, kappa = 0.01, 0.5
    plan = unbalanced_plan(similarity, beta, epsilon, kappa, tolerance=1e-13)
    f = kappa / (kappa + epsilon)
    logits = similarity / epsilon
    log_u = f * (-math.log(80) - torch.logsumexp(logits + plan.class_potential, dim=1))
    log_v = f * (beta.log() - torch.logsumexp(logits + log_u[:, None], dim=0))
    assert log_v.numpy() == pytest.approx(plan.class_potential.numpy(), abs=1e-9)


def test_what_a_class_receives_follows_from_its_potential_alone(make_problem, uneven_mass):
    # The derivative of the objective vanishes: Qᵀ1 = β exp(−ε l / κ).
    plan = unbalanced_plan(make_problem(80, 6).similarity, uneven_mass(6), 0.01, 0.5, tolerance=1e-13)
    received = uneven_mass(6) * torch.exp(-0.01 / 0.5 * plan.class_potential)
    assert (plan.class_confidence * plan.total_mass).numpy() == pytest.approx(received.numpy(), rel=1e-9)


def test_no_other_plan_scores_higher(make_problem, uneven_mass):
    similarity, beta = make_problem(20, 4).similarity, uneven_mass(4)
    epsilon, kappa = 0.05, 0.5

    def divergence(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        return (p * (p / q).log() - p + q).sum()

    def objective(q: torch.Tensor) -> float:
        entropy = -(q * (q.log() - 1)).sum()
        on_rows = divergence(q.sum(dim=1), torch.full((20,), 1 / 20, dtype=torch.float64))
        return float((q * similarity).sum() + epsilon * entropy - kappa * (on_rows + divergence(q.sum(dim=0), beta)))

    plan = unbalanced_plan(similarity, beta, epsilon, kappa, tolerance=1e-12)
    best = objective(plan.mass * plan.total_mass)
    generator = torch.Generator().manual_seed(0)
    for size in (1e-3, 1e-2, 0.3):
        for _ in range(20):
            noise = torch.randn(20, 4, generator=generator, dtype=torch.float64)
            assert objective(plan.mass * plan.total_mass * torch.exp(size * noise)) < best


def test_order_of_samples_and_classes_does_not_matter(make_problem, uneven_mass):
    similarity, beta = make_problem(90, 8).similarity, uneven_mass(8)
    rows, columns = torch.randperm(90), torch.randperm(8)
    plan = unbalanced_plan(similarity, beta, tolerance=1e-12)
    shuffled = unbalanced_plan(similarity[rows][:, columns], beta[columns], tolerance=1e-12)
    assert shuffled.mass.numpy() == pytest.approx(plan.mass[rows][:, columns].numpy(), abs=1e-10)
    assert shuffled.total_mass == pytest.approx(plan.total_mass)


def test_identical_classes_share_equally():
    similarity = torch.rand(30, 1, generator=torch.Generator().manual_seed(0)).expand(30, 5)
    plan = unbalanced_plan(similarity)
    assert plan.class_confidence.numpy() == pytest.approx(np.full(5, 0.2), abs=1e-6)


def test_a_repeated_row_is_a_count_on_it(make_problem, uneven_mass):
    similarity, beta = make_problem(50, 6).similarity, uneven_mass(6)
    counts = torch.randint(0, 4, (50,), generator=torch.Generator().manual_seed(1))
    counted = unbalanced_potential(similarity, beta, tolerance=1e-12, row_counts=counts)
    repeated = unbalanced_potential(similarity.repeat_interleave(counts, dim=0), beta, tolerance=1e-12)
    assert counted.n_rows == repeated.n_rows == int(counts.sum())
    assert counted.class_potential.numpy() == pytest.approx(repeated.class_potential.numpy(), abs=1e-8)
    assert counted.total_mass == pytest.approx(repeated.total_mass)


def test_counts_may_leave_out_every_row_that_a_rough_start_would_look_at(make_problem):
    similarity = make_problem(20, 3).similarity
    counts = torch.full((20,), 5000.0)
    counts[0] = 0
    # 95 000 rows are many enough for a rough start, from row 0 alone.
    counted = unbalanced_potential(similarity, tolerance=1e-12, row_counts=counts)
    even = unbalanced_potential(similarity[1:], tolerance=1e-12)
    assert counted.class_confidence.numpy() == pytest.approx(even.class_confidence.numpy(), abs=1e-9)


def test_warm_start_leads_to_the_same_plan_in_fewer_passes(make_problem):
    similarity = make_problem(300, 10).similarity
    cold = unbalanced_plan(similarity, tolerance=1e-11)
    warm = unbalanced_plan(similarity, tolerance=1e-11, start=cold.class_potential)
    elsewhere = unbalanced_plan(similarity, tolerance=1e-11, start=torch.linspace(-500, 800, 10))
    assert warm.passes < cold.passes
    assert warm.mass.numpy() == pytest.approx(cold.mass.numpy(), abs=1e-9)
    assert elsewhere.mass.numpy() == pytest.approx(cold.mass.numpy(), abs=1e-9)


def test_large_problem_starts_from_a_sample_and_ends_at_the_same_solution(make_problem):
    similarity = make_problem(9000, 4, d=6).similarity
    from_sample = unbalanced_potential(similarity, tolerance=1e-9)
    from_zero = unbalanced_potential(similarity, tolerance=1e-9, start=torch.zeros(4))
    assert from_sample.class_potential.numpy() == pytest.approx(from_zero.class_potential.numpy(), abs=1e-6)


# --- the inductive rule -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_a_fitted_sample_is_decided_alone_as_it_was_among_all(seed, make_problem):
    similarity = make_problem(150, 8, seed).similarity.float()
    plan = unbalanced_plan(similarity)
    potential = unbalanced_potential(similarity)
    together = plan.sample_confidence >= 1 / 150
    for i in range(150):
        alone = potential.assign(similarity[i : i + 1])
        assert bool(alone.known) == bool(together[i])
        assert int(alone.nearest) == int(plan.mass[i].argmax())
        assert float(alone.confidence) == pytest.approx(float(plan.sample_confidence[i]), rel=1e-4)


def test_rows_of_the_potential_are_the_rows_of_the_plan(make_problem, uneven_mass):
    similarity, beta = make_problem(70, 6).similarity, uneven_mass(6)
    potential = unbalanced_potential(similarity, beta, tolerance=1e-12)
    rows = potential.log_mass(similarity).exp()
    assert float(rows.sum()) == pytest.approx(1)
    assert rows.numpy() == pytest.approx(unbalanced_plan(similarity, beta, tolerance=1e-12).mass.numpy(), abs=1e-12)
    assert rows.sum(dim=0).numpy() == pytest.approx(potential.class_confidence.numpy(), rel=1e-8)


def test_assigning_in_parts_gives_the_same_answers(make_problem, monkeypatch):
    similarity = make_problem(100, 6).similarity
    potential = unbalanced_potential(similarity)
    whole = potential.assign(similarity)
    monkeypatch.setattr("uniot.transport.unbalanced._ENTRIES_AT_ONCE", 50)
    parts = potential.assign(similarity)
    assert torch.equal(whole.nearest, parts.nearest)
    assert torch.equal(whole.known, parts.known)
    assert torch.equal(whole.confidence, parts.confidence)


def test_single_sample_and_single_class_carry_exactly_the_mean_and_are_known():
    for similarity in (torch.tensor([[-0.3, 0.8, 0.1]]), torch.tensor([[0.9]]), torch.full((7, 1), -1.0)):
        potential = unbalanced_potential(similarity)
        if similarity.shape[1] == 1:
            assert potential.assign(similarity).known.all()
        assert potential.class_confidence.sum() == pytest.approx(1)


def test_identical_samples_get_one_answer():
    potential = unbalanced_potential(torch.tensor([[0.9, 0.1]]).expand(40, 2))
    answer = potential.assign(torch.tensor([[0.9, 0.1]]).expand(40, 2))
    assert len(set(answer.known.tolist())) == len(set(answer.nearest.tolist())) == 1


# --- what must hold for any input -------------------------------------------------------------------------

cosines = st.integers(1, 12).flatmap(
    lambda n: st.integers(1, 6).flatmap(
        lambda c: arrays(np.float32, (n, c), elements=st.floats(-1, 1, width=32, allow_subnormal=False))
    )
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    similarity=cosines,
    log10_epsilon=st.floats(-3, 1),
    marginal_penalty=st.sampled_from([0.05, 0.5, 5.0]),
    zeros=st.integers(0, 5),
)
def test_any_cosines_give_a_finite_plan_that_sums_to_one(similarity, log10_epsilon, marginal_penalty, zeros):
    similarity = torch.from_numpy(similarity)
    c = similarity.shape[1]
    beta = torch.full((c,), 1 / c)
    beta[: min(zeros, c - 1)] = 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        plan = unbalanced_plan(similarity, beta, epsilon=10**log10_epsilon, marginal_penalty=marginal_penalty)
    # A few problems at the far end of both ranges may not converge; then it is said, and nothing else is.
    assert [warning.category for warning in caught] == ([] if plan.converged else [NumericalWarning])
    assert torch.isfinite(plan.mass).all()
    assert torch.isfinite(plan.class_potential).all()
    assert float(plan.mass.min()) >= 0
    assert float(plan.mass.sum()) == pytest.approx(1, abs=1e-5)
    assert math.isfinite(plan.total_mass)
    assert plan.total_mass > 0


@settings(max_examples=40, derandomize=True)
@given(similarity=cosines, log10_epsilon=st.floats(-2, 0))
def test_any_float32_cosines_give_the_plan_of_plain_sinkhorn(log_sinkhorn, similarity, log10_epsilon):
    similarity = torch.from_numpy(similarity)
    c = similarity.shape[1]
    epsilon = 10**log10_epsilon
    expected = log_sinkhorn(similarity, torch.full((c,), 1 / c, dtype=torch.float64), epsilon, iterations=1200)
    plan = unbalanced_plan(similarity, epsilon=epsilon)
    assert plan.total_mass == pytest.approx(float(expected.sum()), rel=1e-3)
    assert plan.mass.numpy() == pytest.approx((expected / expected.sum()).numpy(), abs=1e-3)


@pytest.mark.parametrize("seed", range(40))
def test_paper_settings_converge_on_problems_of_any_shape(seed):
    generator = torch.Generator().manual_seed(seed)
    n, c = (int(size) for size in torch.randint(1, 41, (2,), generator=generator))
    similarity = torch.rand(n, c, generator=generator) * 2 - 1
    beta = torch.rand(c, generator=generator)
    beta[: seed % c] = 0
    assert unbalanced_plan(similarity, beta / beta.sum()).converged


def test_class_that_may_receive_nothing_receives_nothing(make_problem):
    similarity = make_problem(60, 5).similarity.float()
    plan = unbalanced_plan(similarity, torch.tensor([0.0, 0.25, 0.25, 0.25, 0.25]))
    assert plan.converged
    # κ = 0.5 makes the marginal soft, and only a soft wall keeps mass out.
    assert float(plan.class_confidence[0]) < 0.02
    # As if it were a class of next to no mass; one of twice that gets more.
    masses = [torch.tensor([least, 0.25, 0.25, 0.25, 0.25], dtype=torch.float64) for least in (1e-10, 2e-10)]
    same, more = (unbalanced_plan(similarity, mass).class_potential[0] for mass in masses)
    assert float(plan.class_potential[0]) == pytest.approx(float(same), abs=1e-3)
    assert float(more) > float(same) + 0.1


@pytest.mark.parametrize("level", [-1.0, -0.5, 0.0])
def test_batch_of_private_samples_only_is_still_a_plan(level):
    noise = 0.01 * torch.randn(36, 10, generator=torch.Generator().manual_seed(0))
    plan = unbalanced_plan((level + noise).clamp(-1, 1))
    assert plan.converged
    assert torch.isfinite(plan.mass).all()
    assert float(plan.mass.sum()) == pytest.approx(1, abs=1e-6)


def test_cosine_of_one_does_not_overflow():
    # exp(S/ε) leaves float32 above a cosine of 0.887.
    plan = unbalanced_plan(torch.eye(12))
    assert plan.mass.diagonal().tolist() == pytest.approx([1 / 12] * 12, rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_float_type_gives_the_same_plan_to_its_precision(dtype, make_problem):
    similarity = make_problem(40, 5).similarity.to(dtype)
    plan = unbalanced_plan(similarity)
    exact = unbalanced_plan(similarity.double(), tolerance=1e-12)
    assert plan.mass.double().numpy() == pytest.approx(exact.mass.numpy(), rel=1e-3, abs=1e-5)
    assert float(plan.mass.sum()) == pytest.approx(1, abs=1e-5)


def test_half_precision_is_enough_to_tell_known_from_unknown(make_problem):
    # 1/n is below what float16 resolves; the plan itself must not be rounded to it.
    similarity = make_problem(30_000, 4, d=6).similarity.half()
    plan = unbalanced_plan(similarity)
    same = unbalanced_plan(similarity.float())
    known = plan.sample_confidence * 30_000 >= 1
    assert known.tolist() == (same.sample_confidence * 30_000 >= 1).tolist()


def test_plan_of_a_similarity_that_is_being_trained_carries_no_gradient():
    similarity = torch.rand(10, 3, requires_grad=True)
    plan = unbalanced_plan(similarity)
    assert not plan.mass.requires_grad
    assert float(plan.mass.sum()) == pytest.approx(1, abs=1e-6)


# --- what is refused, and what is said --------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_wrong_number_is_named_with_its_row_and_column(wrong):
    similarity = torch.rand(7, 4)
    similarity[3, 2] = wrong
    with pytest.raises(DataError, match=rf"similarity holds {wrong} in row 3, column 2, one of 1 such"):
        unbalanced_plan(similarity)


def test_infinities_of_both_signs_do_not_hide_each_other():
    similarity = torch.zeros(7, 4)
    similarity[1, 1], similarity[2, 2] = math.inf, -math.inf
    with pytest.raises(DataError, match="holds inf in row 1, column 1, one of 2 such values"):
        SimilarityRows(similarity)


def test_solver_that_runs_out_of_passes_says_so(make_problem):
    similarity = make_problem(50, 6).similarity
    with pytest.warns(NumericalWarning, match=r"stopped after 1 passes.*1\.0e-06 was asked for. Raise max_passes"):
        plan = unbalanced_plan(similarity, max_passes=1)
    assert not plan.converged
    assert plan.passes == 1
    assert torch.isfinite(plan.mass).all()
    assert float(plan.mass.sum()) == pytest.approx(1)


@pytest.mark.parametrize("shape", [(4,), (2, 3, 4), (5, 0)])
def test_similarity_must_be_a_matrix(shape):
    with pytest.raises(DataError, match=r"similarity has shape .* one row per sample and one column per class"):
        unbalanced_plan(torch.zeros(shape))


def test_problem_without_rows_is_refused():
    with pytest.raises(DataError, match="no rows. Give at least one sample"):
        unbalanced_plan(torch.zeros(0, 3))
    with pytest.raises(DataError, match="no rows. Give at least one sample"):
        unbalanced_potential(torch.zeros(3, 3), row_counts=torch.zeros(3))


def test_class_mass_of_the_wrong_length_is_refused():
    with pytest.raises(DataError, match=r"class_mass has shape \(4,\) for 3 classes. Give one number per column"):
        unbalanced_plan(torch.zeros(5, 3), torch.ones(4))


@pytest.mark.parametrize("beta", [[math.nan, 1], [math.inf, 1], [-0.1, 1], [0, 0]])
def test_class_mass_must_be_a_mass(beta):
    with pytest.raises(DataError, match="class_mass holds NaN, infinite or negative numbers, or only zeros"):
        unbalanced_plan(torch.zeros(5, 2), torch.tensor(beta))


def test_row_counts_are_one_per_row():
    with pytest.raises(DataError, match=r"row_counts has shape \(4,\) for 5 rows. Give one per row"):
        unbalanced_potential(torch.zeros(5, 3), row_counts=torch.ones(4))


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1.0])
def test_row_counts_must_be_counts(wrong):
    counts = torch.ones(5)
    counts[2] = wrong
    with pytest.raises(DataError, match="row_counts holds NaN, infinite or negative numbers"):
        unbalanced_potential(torch.zeros(5, 3), row_counts=counts)


@pytest.mark.parametrize("start", [torch.zeros(2), torch.zeros(1), torch.zeros(3, 1), torch.full((3,), math.nan)])
def test_start_must_be_a_finite_potential_of_every_class(start):
    with pytest.raises(DataError, match="start .*one finite number per class, 3 of them"):
        unbalanced_plan(torch.zeros(5, 3), start=start)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("epsilon", 9e-4), ("epsilon", math.nan), ("marginal_penalty", 0), ("marginal_penalty", 2e3), ("tolerance", 0)],
)
def test_setting_outside_its_range_is_named_with_its_value(setting, value):
    with pytest.raises(SettingsError, match=f"{setting} is {value}; give a"):
        unbalanced_plan(torch.zeros(5, 3), **{setting: value})
