"""Threads and subnormal numbers are set around the arithmetic and restored after it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info

from uniot.errors import DataError
from uniot.transport import (
    FeatureRows,
    balanced_plan,
    common_rows,
    filled_potential,
    partial_plan,
    unbalanced_plan,
    unbalanced_potential,
)
from uniot.transport.threads import (
    flushed_subnormals,
    one_thread,
    one_thread_if_small,
    over_rows,
    solver_arithmetic,
)
from uniot.transport.unbalanced import Kernel

CLASS_MASS = torch.full((5,), 0.2)
SOLVERS: dict[str, Callable[[torch.Tensor], object]] = {
    "balanced": lambda s: balanced_plan(similarity=s),
    "unbalanced": lambda s: unbalanced_plan(similarity=s),
    "potential": lambda s: unbalanced_potential(rows=s),
    "assign": lambda s: unbalanced_potential(s).assign(similarity=s),
    "partial": lambda s: partial_plan(similarity=s, sample_mass=torch.ones(60), class_mass=CLASS_MASS, mass=0.5),
    "filled": lambda s: filled_potential(
        similarity=s, prototypes=torch.eye(5).double(), class_mass=CLASS_MASS, generator=torch.Generator()
    ),
    "common rows": lambda s: common_rows(unbalanced_potential(s), similarity=s),
}


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", SOLVERS)
def test_small_problem_is_solved_by_one_thread_also_if_given_by_keyword(name, make_problem, two_threads, monkeypatch):
    used = []

    def watched(real: Callable[..., object]) -> Callable[..., object]:
        return lambda *args, **settings: used.append(torch.get_num_threads()) or real(*args, **settings)

    for owner, operation in (
        (torch.Tensor, "logsumexp"),
        (torch.Tensor, "amax"),
        (torch, "amax"),
        (torch, "logsumexp"),
        (torch, "add"),
    ):
        monkeypatch.setattr(owner, operation, watched(getattr(owner, operation)))
    SOLVERS[name](make_problem(60, 5).similarity)
    assert set(used) == {1}
    assert torch.get_num_threads() == 2


def test_large_problem_keeps_its_threads(two_threads):
    with one_thread_if_small((1 << 20) + 1):
        assert torch.get_num_threads() == 2
    with one_thread_if_small(1 << 20):
        assert torch.get_num_threads() == 1
    with pytest.raises(RuntimeError, match="stop"), one_thread_if_small(1):
        raise RuntimeError("stop")
    assert torch.get_num_threads() == 2


def test_rows_are_shared_by_threads_that_flush_and_answers_keep_their_order(two_threads):
    def look(item: int) -> tuple[int, int, int, float]:
        # Long enough for the other thread to begin.
        time.sleep(0.01)
        return item, threading.get_ident(), torch.get_num_threads(), halves_the_smallest()

    with solver_arithmetic((1 << 20) + 1):
        seen = over_rows(look, range(5))
    assert [item for item, *_ in seen] == list(range(5))
    assert len({thread for _, thread, *_ in seen}) == 2
    assert {(count, half) for *_, count, half in seen} == {(1, 0.0)}
    with solver_arithmetic(1 << 20):
        assert {thread for _, thread, *_ in over_rows(look, range(2))} == {threading.get_ident()}
    assert {thread for _, thread, *_ in over_rows(look, range(2))} == {threading.get_ident()}
    assert torch.get_num_threads() == 2


def test_error_of_another_thread_is_raised_here(two_threads):
    def fail_on_the_last(item: int) -> int:
        if item == 3:
            raise DataError("wrong rows")
        return item

    with solver_arithmetic((1 << 20) + 1), pytest.raises(DataError, match="wrong rows"):
        over_rows(fail_on_the_last, range(4))


@pytest.mark.parametrize("kept", [True, False])
def test_two_threads_give_the_plan_of_one(kept, make_problem, monkeypatch, two_threads):
    monkeypatch.setattr("uniot.transport.threads._SMALL_ENTRIES", 0)
    monkeypatch.setattr("uniot.transport.unbalanced._CHUNK_ENTRIES", 0)
    monkeypatch.setattr("uniot.transport.unbalanced._CACHED_ENTRIES", 1 << 20 if kept else 0)
    problem = make_problem(3000, 6, dtype=torch.float32)
    with_two = (
        unbalanced_plan(problem.similarity),
        unbalanced_potential(FeatureRows(problem.features, problem.prototypes)),
    )
    torch.set_num_threads(1)
    with_one = (
        unbalanced_plan(problem.similarity),
        unbalanced_potential(FeatureRows(problem.features, problem.prototypes)),
    )
    assert torch.equal(with_two[0].mass, with_one[0].mass)
    assert torch.equal(with_two[0].sample_potential, with_one[0].sample_potential)
    assert torch.equal(with_two[1].class_potential, with_one[1].class_potential)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_process_starts_threads_of_its_own():
    code = """
import os, torch
from uniot.transport.threads import over_rows, solver_arithmetic
torch.set_num_threads(2)
def solve():
    with solver_arithmetic((1 << 20) + 1):
        return over_rows(abs, range(4))
solve()
child = os.fork()
if child == 0:
    os._exit(7 if solve() == [0, 1, 2, 3] else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "7"


def test_one_thread_is_that_of_torch_and_of_numpy_until_it_is_left(two_threads):
    with one_thread():
        assert torch.get_num_threads() == 1
        assert {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"} == {1}
    assert torch.get_num_threads() == 2


def halves_the_smallest() -> float:
    return float(np.finfo(np.float32).tiny * np.float32(0.5))


@pytest.mark.parametrize("was_on", [True, False])
def test_subnormal_results_are_flushed_within_the_block_alone(was_on):
    torch.set_flush_denormal(was_on)
    try:
        before = halves_the_smallest()
        with flushed_subnormals():
            assert halves_the_smallest() == 0
            with flushed_subnormals():
                pass
            assert halves_the_smallest() == 0
        assert halves_the_smallest() == before
        assert (before == 0) == was_on
    finally:
        torch.set_flush_denormal(False)


def test_solve_that_fails_leaves_subnormal_numbers_as_they_were():
    with pytest.raises(RuntimeError, match="stop"), flushed_subnormals():
        raise RuntimeError("stop")
    assert halves_the_smallest() > 0


def test_solve_computes_without_subnormal_numbers(monkeypatch):
    # Cosines of -1 and 1 at ε = 0.01 are 200 apart in the exponent: the kernel has its smallest entries.
    seen = []
    sweep = Kernel.sweep
    monkeypatch.setattr(
        Kernel, "sweep", lambda *given, **more: seen.append(halves_the_smallest()) or sweep(*given, **more)
    )
    similarity = torch.eye(4).repeat(8, 1) * 2 - 1
    plan = unbalanced_plan(similarity)
    assert set(seen) == {0.0}
    assert halves_the_smallest() > 0
    mass = plan.mass[plan.mass > 0]
    assert mass.min() >= np.finfo(np.float32).tiny


@pytest.mark.medium
def test_threads_that_torch_starts_later_do_not_flush():
    code = """
import torch
from uniot.transport.threads import flushed_subnormals
torch.set_num_threads(2)
with flushed_subnormals():
    torch.ones(1 << 18).mul_(2)
print(int((torch.full((1 << 18,), 1e-39) * 0.5 == 0).sum()))
"""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "0"
