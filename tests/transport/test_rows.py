"""Where the rows live does not change the answer: in memory, on disk, or on other machines."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from uniot.errors import DataError
from uniot.transport.rows import FeatureRows
from uniot.transport.unbalanced import UnbalancedPotential, unbalanced_potential

SCRIPT = Path(__file__).with_name("one_of_two_processes.py")


@pytest.fixture
def no_cache(monkeypatch):
    """Kernels are recomputed from the rows in every pass, in chunks of a few rows."""
    monkeypatch.setattr("uniot.transport.unbalanced._CACHED_ENTRIES", 0)
    monkeypatch.setattr("uniot.transport.unbalanced._CHUNK_ENTRIES", 1)


def same(a: UnbalancedPotential, b: UnbalancedPotential, within: float = 1e-7) -> bool:
    assert a.n_rows == b.n_rows
    assert a.converged
    assert b.converged
    assert a.total_mass == pytest.approx(b.total_mass, rel=1e-6)
    return a.class_potential.numpy() == pytest.approx(b.class_potential.numpy(), abs=within)


# --- features read chunk by chunk -------------------------------------------------------------------------


def test_features_met_in_chunks_are_the_same_problem(make_problem, uneven_mass):
    problem = make_problem(3000, 7)
    streamed = unbalanced_potential(FeatureRows(problem.features, problem.prototypes), uneven_mass(7), tolerance=1e-10)
    assert same(streamed, unbalanced_potential(problem.similarity, uneven_mass(7), tolerance=1e-10))


def test_kernels_made_anew_in_every_pass_are_the_same_problem(make_problem, uneven_mass, no_cache):
    problem = make_problem(2500, 7)
    recomputed = unbalanced_potential(
        FeatureRows(problem.features, problem.prototypes), uneven_mass(7), tolerance=1e-10
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("uniot.transport.unbalanced._CACHED_ENTRIES", 1 << 26)
        cached = unbalanced_potential(problem.similarity, uneven_mass(7), tolerance=1e-10)
    assert same(recomputed, cached)


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_memory_map_is_read_as_the_array_it_holds(mode, make_problem, tmp_path, no_cache):
    problem = make_problem(6000, 5)
    path = tmp_path / "features.npy"
    np.save(path, problem.features.numpy())
    mapped = np.load(path, mmap_mode=mode)
    streamed = unbalanced_potential(FeatureRows(mapped, problem.prototypes), tolerance=1e-10)
    assert same(streamed, unbalanced_potential(problem.similarity, tolerance=1e-10))
    assert np.array_equal(mapped, problem.features.numpy())


def test_features_stored_in_half_precision_are_multiplied_in_the_prototypes_precision(make_problem):
    problem = make_problem(50, 4)
    half = problem.features.half()
    stored = unbalanced_potential(FeatureRows(half.numpy(), problem.prototypes), tolerance=1e-10)
    assert same(stored, unbalanced_potential(half.double() @ problem.prototypes.t(), tolerance=1e-10))


def test_every_stride_is_what_slicing_gives(make_problem):
    problem = make_problem(23, 4)
    for features in (problem.features, problem.features.numpy()):
        rows = FeatureRows(features, problem.prototypes)
        assert rows.every(5).numpy() == pytest.approx(problem.similarity[::5].numpy())
        assert rows.chunk(7, 11).numpy() == pytest.approx(problem.similarity[7:11].numpy())
        assert len(rows) == 23


@pytest.mark.parametrize("wrong_row", [3, 1500, 4999])
def test_row_of_a_wrong_feature_is_named_as_the_user_counts_it(wrong_row, make_problem, no_cache):
    problem = make_problem(5000, 4)
    problem.features[wrong_row, 1] = torch.nan
    with pytest.raises(DataError, match=f"features and prototypes holds nan in row {wrong_row}, column 0"):
        unbalanced_potential(FeatureRows(problem.features, problem.prototypes))


@pytest.mark.parametrize(("features", "prototypes"), [((5, 3), (2, 4)), ((5,), (2, 5)), ((5, 3), (3,))])
def test_features_and_prototypes_of_other_widths_are_refused(features, prototypes):
    with pytest.raises(DataError, match=r"features have shape .* and prototypes .* with the same d"):
        FeatureRows(torch.zeros(features), torch.zeros(prototypes))


# --- rows shared by several processes ---------------------------------------------------------------------


class Meeting:
    """An all-reduce between threads, and a record of how much travelled."""

    def __init__(self, n: int) -> None:
        self._barrier = threading.Barrier(n, timeout=20)
        self._given: dict[int, torch.Tensor] = {}
        self.sizes: list[int] = []

    def reduce(self, vector: torch.Tensor) -> torch.Tensor:
        assert vector.dtype == torch.float64
        self._given[threading.get_ident()] = vector.clone()
        self._barrier.wait()
        total = sum(self._given.values())
        if self._barrier.wait() == 0:
            self.sizes.append(len(vector))
        return total


def solve_together(parts: list, **settings) -> list[UnbalancedPotential]:
    """One thread per part of the rows, as processes would do it."""
    meeting = Meeting(len(parts))
    answers: list = [None] * len(parts)

    def work(i: int) -> None:
        rows, counts = parts[i]
        try:
            answers[i] = unbalanced_potential(rows, row_counts=counts, reduce=meeting.reduce, **settings)
        except BaseException as error:
            answers[i] = error
            meeting._barrier.abort()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(parts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    assert all(torch.equal(answers[0].class_potential, other.class_potential) for other in answers)
    solve_together.sizes = meeting.sizes
    return answers


@pytest.mark.parametrize("cuts", [[100], [3], [40, 120], [0], [200]])
def test_processes_that_share_the_rows_find_the_one_solution(cuts, make_problem, uneven_mass):
    # A cut at 0 or at 200 leaves one process without any row.
    similarity, beta = make_problem(200, 6).similarity, uneven_mass(6)
    parts = [(part, None) for part in similarity.tensor_split(cuts)]
    together = solve_together(parts, class_mass=beta, tolerance=1e-10)
    assert same(together[0], unbalanced_potential(similarity, beta, tolerance=1e-10))


def test_the_jacobian_of_few_classes_travels_with_the_sums(make_problem):
    similarity = make_problem(200, 6).similarity
    answers = solve_together([(part, None) for part in similarity.tensor_split(2)])
    assert solve_together.sizes == [1] + [6 * 7] * answers[0].passes


def test_of_many_classes_at_most_two_numbers_each_travel_in_a_pass(make_problem, monkeypatch):
    monkeypatch.setattr("uniot.transport.unbalanced._FULL_JACOBIAN_PRODUCTS", 0)
    similarity = make_problem(300, 70, d=64).similarity
    answers = solve_together([(part, None) for part in similarity.tensor_split(2)])
    assert solve_together.sizes[1:] == [140] * 3 + [70] * (answers[0].passes - 3)


def test_counts_are_added_up_over_processes(make_problem):
    similarity = make_problem(60, 4).similarity
    counts = torch.arange(60) % 3
    parts = [(similarity[:20], counts[:20]), (similarity[20:], counts[20:])]
    together = solve_together(parts, tolerance=1e-10)
    assert together[0].n_rows == int(counts.sum())
    assert same(together[0], unbalanced_potential(similarity, row_counts=counts, tolerance=1e-10))


def test_a_process_with_too_many_rows_to_keep_agrees_with_one_that_keeps_them(make_problem, monkeypatch):
    similarity = make_problem(200, 6).similarity
    alone = unbalanced_potential(similarity, tolerance=1e-10)
    monkeypatch.setattr("uniot.transport.unbalanced._CACHED_ENTRIES", 100 * 6)
    together = solve_together([(similarity[:50], None), (similarity[50:], None)], tolerance=1e-10)
    assert same(together[0], alone)


def test_large_shared_problem_starts_from_a_sample_too(make_problem):
    similarity = make_problem(9000, 4, d=6).similarity
    parts = [(similarity[:6500], None), (similarity[6500:], None)]
    together = solve_together(parts, tolerance=1e-9)
    assert same(together[0], unbalanced_potential(similarity, tolerance=1e-9), within=1e-5)


@pytest.mark.medium
def test_two_gloo_processes_find_what_one_process_finds(make_problem, uneven_mass, tmp_path):
    problem, beta = make_problem(400, 8), uneven_mass(8)
    np.save(tmp_path / "similarity.npy", problem.similarity.numpy())
    np.save(tmp_path / "class_mass.npy", beta.numpy())
    processes = [subprocess.Popen([sys.executable, SCRIPT, str(rank), tmp_path]) for rank in range(2)]
    assert [process.wait(timeout=60) for process in processes] == [0, 0]
    alone = unbalanced_potential(problem.similarity, beta, tolerance=1e-10).class_potential.numpy()
    for cut in (200, 37):
        first, second = (np.load(tmp_path / f"potential-{cut}-{rank}.npy") for rank in range(2))
        assert np.array_equal(first, second)
        assert first == pytest.approx(alone, abs=1e-7)
