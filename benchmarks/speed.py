"""Time for one problem: against its unavoidable parts, and against POT and OTT-JAX."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from accuracy import ACCURACY, error, reference
from measure import Report, interleaved
from peers import BEST_MOMENTUM, Ott, Pot, fewest_iterations
from problems import Problem, clustered

from uniot.transport.threads import flushed_subnormals, one_numpy_thread
from uniot.transport.unbalanced import unbalanced_plan, unbalanced_potential

# OTT-JAX computes in float32 throughout and stays between one and two times our accuracy.
OTT_ACCURACY = 2e-6
OTT_MOMENTUM = 1.6


@dataclass(frozen=True)
class Size:
    """Rows and classes of a problem, bounds on its times, and the number of repeats.

    Attributes:
        n: number of rows.
        c: number of classes.
        bounds: how many times as fast as POT the plan and the potential must be.
        parts: how many times its unavoidable parts a plan may take on one thread; None for no bound.
        repeats: number of runs of our solver.
        peer_repeats: number of runs of the others.
    """

    n: int
    c: int
    bounds: tuple[float, float]
    parts: float | None
    repeats: int
    peer_repeats: int

    def __str__(self) -> str:
        return f"{self.n}x{self.c}"


def measure_parts(report: Report, sizes: tuple[Size, ...], two_threads_from: int) -> None:
    """Time of a plan over the time of what no solver of this kind can avoid, and time of one thread over that of two.

    One exponential of the matrix and two matrix-vector products per pass are unavoidable. They and the plan are timed
    in turn on one thread, each right after an unmeasured run of its own, as in a training loop; the time is that of the
    processor. Two threads are compared with one by elapsed time, so nothing else should be running; from
    `two_threads_from` entries on they must be 1.5 times as fast.
    """
    threads = torch.get_num_threads()
    for size in sizes:
        problem = clustered(size.n, size.c, seed=0)
        similarity, beta = problem.similarity, problem.class_mass
        passes = unbalanced_plan(similarity, beta).passes
        one: Callable[[], object] = lambda s=similarity, b=beta: _on_threads(1, s, b)  # noqa: E731
        two: Callable[[], object] = lambda s=similarity, b=beta: _on_threads(2, s, b)  # noqa: E731
        runs = {"parts": _UnavoidableParts(similarity, passes), "plan": one}
        with one_numpy_thread(), flushed_subnormals():
            times = interleaved(runs, max(size.repeats, 15), warm=True, clock=time.process_time)
        median = {name: statistics.median(of_run) for name, of_run in times.items()}
        took = f"{1000 * median['plan']:.3g} ms / {1000 * median['parts']:.3g} ms"
        what = f"{size}: plan over its unavoidable parts, {passes} passes ({took})"
        if size.parts is None:
            report.tell(what, median["plan"] / median["parts"], "x", seconds=times)
        else:
            report.at_most(what, median["plan"] / median["parts"], size.parts, "x", seconds=times)
        times = interleaved({"one thread": one, "two threads": two}, max(size.repeats, 15), warm=True)
        bound = 1.5 if size.n * size.c >= two_threads_from else None
        report.faster(f"{size}: two threads against one", times, "one thread", "two threads", bound)
    torch.set_num_threads(threads)


def _on_threads(number: int, similarity: torch.Tensor, beta: torch.Tensor) -> None:
    torch.set_num_threads(number)
    unbalanced_plan(similarity, beta)


class _UnavoidableParts:
    """One exponential of the matrix and two matrix-vector products per pass, on one thread."""

    def __init__(self, similarity: torch.Tensor, passes: int) -> None:
        self._exponent = ((similarity - similarity.amax(dim=1, keepdim=True)) / 0.01).clamp_(min=-86)
        self._kernel = torch.empty_like(self._exponent)
        self._rows = np.ones(len(similarity), dtype=np.float32)
        self._columns = np.ones(similarity.shape[1], dtype=np.float32)
        self._passes = passes

    def __call__(self) -> None:
        torch.set_num_threads(1)
        kernel = torch.exp(self._exponent, out=self._kernel).numpy()
        for _ in range(self._passes):
            kernel @ self._columns
            self._rows @ kernel


def measure_speed(report: Report, sizes: tuple[Size, ...]) -> None:
    """Time for the same problem, all solvers in turn; each peer makes as few iterations as its accuracy allows."""
    # Where the search for that number begins; afterwards where it ended for the size before.
    counts = {"POT": 300, "OTT": 60, "OTT best": 40}
    for size in sizes:
        problem = clustered(size.n, size.c, seed=0)
        solution = reference(problem)
        pot, ott = Pot(problem), _ott(problem)
        counts["POT"] = _needed(lambda k, pot=pot: pot.class_potential(0, k)[0], solution, ACCURACY, counts["POT"])
        for name, solver in ott.items():
            counts[name] = _needed(solver.class_potential, solution, OTT_ACCURACY, counts[name])
        times = _times(size, problem, pot, ott, counts)
        _report_pot(report, size, times, counts["POT"], pot, solution)
        for name, solver in ott.items():
            _report_ott(report, size, times, name, counts[name], solver, problem, solution)


def _needed(solve: Callable[[int], np.ndarray], solution: np.ndarray, accuracy: float, start: int) -> int:
    return fewest_iterations(lambda count: error(solve(count), solution), accuracy, start)


def _times(
    size: Size, problem: Problem, pot: Pot, ott: dict[str, Ott], counts: dict[str, int]
) -> dict[str, list[float]]:
    similarity, beta = problem.similarity, problem.class_mass
    runs: dict[str, Callable[[], object]] = {
        "our plan": lambda: unbalanced_plan(similarity, beta),
        "our potential": lambda: unbalanced_potential(similarity, beta),
        "our plan, flushed": lambda: _flushed(similarity, beta),
        "POT 1e-6": pot.plan,
        "POT": lambda: pot.plan(0, counts["POT"]),
    }
    for name, solver in ott.items():
        for answer in ("plan", "potential"):
            runs[f"{name} {answer}"] = solver.compiled(counts[name], plan=answer == "plan")
    repeats = {name: size.repeats if name.startswith("our") else size.peer_repeats for name in runs}
    return interleaved(runs, repeats)


def _flushed(similarity: torch.Tensor, beta: torch.Tensor) -> None:
    torch.set_flush_denormal(True)
    try:
        unbalanced_plan(similarity, beta)
    finally:
        torch.set_flush_denormal(False)


def _ott(problem: Problem) -> dict[str, Ott]:
    try:
        return {"OTT": Ott(problem, OTT_MOMENTUM), "OTT best": Ott(problem, BEST_MOMENTUM)}
    except ImportError as missing:
        print(f"OTT-JAX is left out ({missing}). Install benchmarks/requirements.txt.")
        return {}


def _report_pot(
    report: Report, size: Size, times: dict[str, list[float]], count: int, pot: Pot, solution: np.ndarray
) -> None:
    loose, loose_count = pot.class_potential()
    stopped = f"{size}: POT at 1e-6, {loose_count} iterations, error {error(loose, solution):.0e}"
    exact = f"{size}: POT at equal accuracy, {count} iterations"
    for ours, bound in zip(("plan", "potential"), size.bounds, strict=True):
        report.faster(f"{stopped}, our {ours}", times, "POT 1e-6", f"our {ours}", bound)
    for ours in ("plan", "potential"):
        report.faster(f"{exact}, our {ours}", times, "POT", f"our {ours}", 15)
    ratio = statistics.median(times["our plan"]) / statistics.median(times["our plan, flushed"])
    report.at_most(
        f"{size}: our plan, time relative to a thread that always flushes subnormal numbers", ratio, 1.05, "x"
    )


def _report_ott(
    report: Report,
    size: Size,
    times: dict[str, list[float]],
    name: str,
    count: int,
    solver: Ott,
    problem: Problem,
    solution: np.ndarray,
) -> None:
    momentum = OTT_MOMENTUM if name == "OTT" else BEST_MOMENTUM
    reached = error(solver.class_potential(count), solution)
    what = f"{size}: OTT-JAX momentum {momentum:.3g}, {count} iterations, error {reached:.0e}"
    for answer in ("plan", "potential"):
        bound = 4 if name == "OTT" else None
        report.faster(f"{what}, {answer}", times, f"{name} {answer}", f"our {answer}", bound, error=reached)
    theirs = torch.from_numpy(np.array(solver.compiled(count, plan=True)()))
    ours = unbalanced_plan(problem.similarity, problem.class_mass).mass
    distance = float((theirs / theirs.sum() - ours).abs().sum()) / 2
    report.at_most(f"{size}: its plan against ours, total variation", distance, 1e-3)
