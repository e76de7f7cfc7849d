"""Times taken in turn in one process, and figures that are printed as they come and kept for JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

# Idle threads of torch and of OpenBLAS go on spinning for a while and would be charged to the next one's run.
_PAUSE_SECONDS = 0.1


def interleaved(
    runs: Mapping[str, Callable[[], object]],
    repeats: Mapping[str, int] | int,
    *,
    warm: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of each run, taken in turn after one unmeasured round.

    Args:
        runs: name to what is measured.
        repeats: how often; a name may have fewer than another, and is then in the first rounds.
        warm: whether an unmeasured run precedes each measured one, after the pause.
        clock: `time.process_time` for the time of the processor, which other processes hardly change.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    wanted = dict.fromkeys(runs, repeats) if isinstance(repeats, int) else dict(repeats)
    for run in runs.values():
        run()
    for turn in range(max(wanted.values())):
        for name, run in runs.items():
            if turn < wanted[name]:
                time.sleep(_PAUSE_SECONDS)
                if warm:
                    run()
                times[name].append(seconds(run, clock))
    return times


def seconds(run: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    begin = clock()
    run()
    return clock() - begin


@dataclass(frozen=True)
class Figure:
    """One line of a report; `must_reach` is None for what is only told."""

    what: str
    measured: float
    unit: str = ""
    must_reach: str | None = None
    reached: bool | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        told = f"{self.what:<92} {self.measured:>9.4g} {self.unit:<2}"
        if self.must_reach is None:
            return told.rstrip()
        return f"{told} must reach {self.must_reach:<8} {'yes' if self.reached else 'NO'}"


@dataclass
class Report:
    """The figures of one run of a script."""

    script: str
    quick: bool
    figures: list[Figure] = field(default_factory=list)

    def __post_init__(self) -> None:
        print(f"{self.script}: {', '.join(f'{key} {value}' for key, value in machine().items())}")
        if self.quick:
            print("--quick: the sizes are small and the repeats few; the figures only show that the script runs.")

    def at_least(self, what: str, measured: float, bound: float, unit: str = "", **detail: Any) -> None:
        self._add(Figure(what, measured, unit, f">= {bound:g}", measured >= bound, detail))

    def at_most(self, what: str, measured: float, bound: float, unit: str = "", **detail: Any) -> None:
        self._add(Figure(what, measured, unit, f"<= {bound:g}", measured <= bound, detail))

    def tell(self, what: str, measured: float, unit: str = "", **detail: Any) -> None:
        self._add(Figure(what, measured, unit, detail=detail))

    def faster(
        self,
        what: str,
        times: Mapping[str, list[float]],
        peer: str,
        ours: str,
        bound: float | None = None,
        **detail: Any,
    ) -> None:
        """How many times as fast as a peer, from medians."""
        median = {name: statistics.median(times[name]) for name in (peer, ours)}
        ratio = median[peer] / median[ours]
        what = f"{what} ({_time(median[peer])} / {_time(median[ours])})"
        detail |= {"seconds": {name: times[name] for name in (peer, ours)}}
        if bound is None:
            self.tell(what, ratio, "x", **detail)
        else:
            self.at_least(what, ratio, bound, "x", **detail)

    def finish(self, path: Path | None) -> None:
        bounded = [figure for figure in self.figures if figure.reached is not None]
        missed = [figure for figure in bounded if not figure.reached]
        print(f"{len(bounded) - len(missed)} of {len(bounded)} figures reached.")
        if path is not None:
            about = {"script": self.script, "quick": self.quick, "machine": machine()}
            text = json.dumps(about | {"figures": [asdict(figure) for figure in self.figures]}, indent=1)
            path.write_text(text + "\n", encoding="utf-8")

    def _add(self, figure: Figure) -> None:
        self.figures.append(figure)
        print(figure, flush=True)


def machine() -> dict[str, str]:
    """What a figure depends on."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    about = {"python": platform.python_version(), "cores": str(cores)}
    return about | {package: _version(package) for package in ("torch", "numpy", "POT", "ott-jax", "jax")}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def arguments(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="small sizes and few repeats: only shows that it runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    return parser


def _time(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.3g} ms"
