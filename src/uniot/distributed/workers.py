"""The processes of the actor pool: each computes the shards that Ray Data sends to it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any
from uuid import uuid4

import torch

from uniot.distributed.computations import Bundle, Computation, ComputeShard
from uniot.distributed.inputs import Kind, RowGroups, Shard
from uniot.distributed.locations import Location
from uniot.errors import DataError, UniotError

_MOST_ATTEMPTS = 4
# PR_SET_PDEATHSIG of Linux's <sys/prctl.h>.
_SIGNAL_WHEN_PARENT_ENDS = 1


def end_with_parent() -> None:
    """Have Linux kill this process when its parent ends; do nothing on other systems.

    A worker of Ray whose node has ended shuts itself down, and now and then hangs in the middle of that: it would stay
    for good, with its memory.
    """
    if sys.platform != "linux":
        return
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_SIGNAL_WHEN_PARENT_ENDS, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call
        os._exit(1)


class ShardWorker:
    """Computes the shards that Ray Data sends to this process.

    Args:
        computation: what is computed.
        bundle: what the computation loads.
        source: the input.
        kind: kind of the input.
        out: folder of the output.
        strict: whether an image that cannot be read is an error.
        cores: cores of this process.
        attempts: actor that counts how often each shard was begun; None outside Ray.
    """

    def __init__(
        self,
        computation: Computation,
        bundle: Bundle,
        source: Location,
        kind: Kind,
        out: Location,
        strict: bool,
        cores: int,
        attempts: Any,
    ) -> None:
        torch.set_num_threads(cores)
        if attempts is not None:
            end_with_parent()
        self._computation, self._bundle, self._cores, self._strict = computation, bundle, cores, strict
        self._source, self._kind, self._out = source, kind, out
        self._attempts = attempts
        self._process = uuid4().hex

    @cached_property
    def _compute(self) -> ComputeShard:
        # With the first shard, and not in the constructor, so that an error is reported as one of the shard.
        return self._computation.start(self._bundle, self._cores)

    def __call__(self, batch: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
        """Compute shards.

        Args:
            batch: `shard`, each the text of `Shard.to_json`.

        Returns:
            Number, images or rows and skipped images of each shard, the number of workers that ended early so far, and
            the error of the shard: class and message.
        """
        answers: dict[str, list[Any]] = {
            name: [] for name in ("number", "count", "skipped", "lost", "error", "message")
        }
        for text in batch["shard"]:
            shard = Shard.from_json(str(text), self._kind, self._source)
            attempts, lost = self._begun(shard.number)
            n_skipped, error, message = 0, "", ""
            try:
                if attempts > _MOST_ATTEMPTS:
                    raise DataError(_deadly(shard, attempts - 1))
                n_skipped = len(self._compute(shard, self._source, self._out, strict=self._strict))
            except UniotError as problem:
                error, message = type(problem).__name__, str(problem)
            except MemoryError:
                error, message = "DataError", "a worker has not enough memory. Use fewer --workers, and run it again."
            values = (shard.number, shard.count, n_skipped, lost, error, message)
            for column, value in zip(answers.values(), values, strict=True):
                column.append(value)
        return answers

    def _begun(self, number: int) -> tuple[int, int]:
        """Return how often the shard was begun, and how many workers ended early so far."""
        if self._attempts is None:
            return 1, 0
        import ray

        # An actor that Ray restarts keeps its name in another process.
        actor = ray.get_runtime_context().get_actor_id()
        with suppress(ray.exceptions.RayError):  # the machine that counted is gone
            attempts, lost = ray.get(self._attempts.begin.remote(number, actor, self._process))
            return int(attempts), int(lost)
        return 1, 0


class Attempts:
    """Counts how often each shard was begun, and the workers that ended early; an actor, which outlives them."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._processes: set[tuple[str, str]] = set()

    def begin(self, number: int, actor: str, process: str) -> tuple[int, int]:
        """Count an attempt of a worker; return the attempts at this shard, and the workers that ended so far."""
        self._counts[number] = self._counts.get(number, 0) + 1
        self._processes.add((actor, process))
        return self._counts[number], len(self._processes) - len({actor for actor, _ in self._processes})


def _deadly(shard: Shard, attempts: int) -> str:
    if isinstance(shard.content, RowGroups):
        first = shard.content.name
    else:
        first = f"{shard.content[0].name!r} to {shard.content[-1].name!r}"
    return (
        f"shard {shard.number} ({first}) ended its worker {attempts} times, as a lack of memory does. Use fewer "
        "--workers, or leave these samples out; then run the same command again."
    )
