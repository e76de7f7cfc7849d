"""The processes of the actor pool: each computes the shards that Ray Data sends to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import torch

from uniot.distributed.inputs import Kind, RowGroups, Shard
from uniot.distributed.jobs import Bundle, Compute, Job
from uniot.distributed.places import Place
from uniot.errors import DataError, UniotError

_MOST_ATTEMPTS = 4


class ShardWorker:
    """Computes the shards that Ray Data sends to this process.

    Args:
        job: what is computed.
        bundle: what the job loads.
        source: the input.
        kind: kind of the input.
        out: folder of the output.
        strict: whether an image that cannot be read is an error.
        cores: cores of this process.
        attempts: actor that counts how often each shard was begun.
    """

    def __init__(
        self,
        job: Job,
        bundle: Bundle,
        source: Place,
        kind: Kind,
        out: Place,
        strict: bool,
        cores: int,
        attempts: Any,
    ) -> None:
        torch.set_num_threads(cores)
        self._job, self._bundle, self._cores, self._strict = job, bundle, cores, strict
        self._source, self._kind, self._out = source, kind, out
        self._attempts = attempts

    @cached_property
    def _compute(self) -> Compute:
        # With the first shard, and not in the constructor, so that an error is reported as one of the shard.
        return self._job.start(self._bundle, self._cores)

    def __call__(self, batch: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
        """Compute shards.

        Args:
            batch: `shard`, each the text of `Shard.to_json`.

        Returns:
            Number, images or rows, skipped images and attempts of each shard, and its error: class and message.
        """
        answers: dict[str, list[Any]] = {
            name: [] for name in ("number", "count", "skipped", "attempts", "error", "message")
        }
        for text in batch["shard"]:
            shard = Shard.from_json(str(text), self._kind, self._source)
            attempts = self._begun(shard.number)
            n_skipped, error, message = 0, "", ""
            try:
                if attempts > _MOST_ATTEMPTS:
                    raise DataError(_deadly(shard, attempts - 1))
                n_skipped = len(self._compute(shard, self._source, self._out, strict=self._strict))
            except UniotError as problem:
                error, message = type(problem).__name__, str(problem)
            values = (shard.number, shard.count, n_skipped, attempts, error, message)
            for column, value in zip(answers.values(), values, strict=True):
                column.append(value)
        return answers

    def _begun(self, number: int) -> int:
        import ray

        if self._attempts is None:
            return 1
        with suppress(ray.exceptions.RayError):  # the machine that counted is gone
            return int(ray.get(self._attempts.begin.remote(number)))
        return 1


class Attempts:
    """Counts how often each shard was begun; an actor, which outlives the workers."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def begin(self, number: int) -> int:
        """Count an attempt; return their number."""
        self._counts[number] = self._counts.get(number, 0) + 1
        return self._counts[number]


def _deadly(shard: Shard, attempts: int) -> str:
    if isinstance(shard.content, RowGroups):
        first = shard.content.name
    else:
        first = f"{shard.content[0].name!r} to {shard.content[-1].name!r}"
    return (
        f"shard {shard.number} ({first}) ended its worker {attempts} times, as a lack of memory does. Use fewer "
        "--workers, or leave these samples out; then run the same command again."
    )
