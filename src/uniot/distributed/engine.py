"""Start or join Ray, quietly, and run the shards of an input through an actor pool of Ray Data."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from uniot import errors
from uniot.distributed.inputs import Shard, ShardedInput
from uniot.distributed.locations import Location
from uniot.errors import MissingPackageError, UniotError
from uniot.images.embedding import available_cores
from uniot.io.visible import VisibleStream, escape_output

OnProgress = Callable[[int, int, int, float], None]
# A worker takes the memory of torch and of the model, and its threads share them.
_CORES_PER_WORKER = 2
# Of a Ray that is started here. It holds the names of the images, and not the images.
_STORE_BYTES = 1 << 30
# Of a thread of Ray Data that was told to end: less than one, on a busy machine a few.
_SECONDS_TO_END = 30
_DATA_THREADS = ("StreamingExecutor-", "iter_threaded")


def import_ray(cluster: Cluster) -> Any:
    """Return the module `ray`.

    Raises:
        MissingPackageError: Ray is not installed.
    """
    # Before the import, which reads them: nothing is reported to Ray's makers, and a Ray that is started here listens
    # on the loopback interface only. The second name is misleading: it decides on Linux, too.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if not cluster.chosen_address:
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import ray
            import ray.data
    except ImportError:
        raise MissingPackageError("--engine ray needs Ray. Install it with: pip install 'uniot[ray]'") from None
    return ray


@dataclass(frozen=True)
class Work:
    """A sharded input, what workers compute from it, and the folder of the results.

    Attributes:
        computation: what is computed, from `uniot.distributed.workers`.
        bundle: what each worker loads once.
        source: the input.
        out: folder of the output.
        strict: whether an image that cannot be read is an error.
    """

    computation: Any
    bundle: Any
    source: ShardedInput
    out: Location
    strict: bool = False


@dataclass(frozen=True)
class Cluster:
    """The Ray cluster that computes, and the number of worker processes.

    Attributes:
        address: of a Ray cluster; that of `$RAY_ADDRESS`, or else a Ray of its own on this machine if None.
        workers: number of processes; one per two cores if None.
    """

    address: str | None = None
    workers: int | None = None

    @property
    def chosen_address(self) -> str | None:
        """Return the address of a cluster to join; None to compute on this machine."""
        return self.address or os.environ.get("RAY_ADDRESS") or None


def run_shards(work: Work, missing: Sequence[Shard], cluster: Cluster, on_progress: OnProgress | None = None) -> int:
    """Compute the missing shards of an output.

    Args:
        work: what the workers do.
        missing: shards that are not done yet.
        cluster: where to compute.
        on_progress: callback with samples done, total, computed, and samples per second.

    Returns:
        How many workers ended early and were replaced; their shards were computed again.

    Raises:
        UniotError: a shard failed. Finished shards are kept.
    """
    total, computed, lost = work.source.count, 0, 0
    before = total - sum(shard.count for shard in missing)
    began = time.perf_counter()
    with _quiet(), _ray(cluster) as (ray, is_own):
        nodes = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
        size = pool_size(nodes, cluster.workers, len(missing))
        for answer in _answers(ray, work, missing, size, is_own=is_own):
            if answer["error"]:
                kind = getattr(errors, answer["error"], errors.DataError)
                raise kind(answer["message"])
            computed += answer["count"]
            lost = max(lost, answer["lost"])
            if on_progress is not None:
                seconds = time.perf_counter() - began
                on_progress(before + computed, total, computed, computed / max(seconds, 1e-9))
    return lost


def _answers(
    ray: Any, work: Work, missing: Sequence[Shard], size: tuple[int, int], *, is_own: bool
) -> Iterator[dict[str, Any]]:
    from uniot.distributed.workers import Attempts, ShardWorker

    count, cores = size
    # Workers of a Ray that was started here see the same files.
    bundle = work.bundle if is_own else replace(work.bundle, sent=ray.put(work.bundle.content()))
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    items = [{"shard": shard.to_json()} for shard in missing]
    made = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
        ShardWorker,
        batch_size=1,
        # Ray Data restarts a worker that ends, and sends its shard again.
        compute=ray.data.ActorPoolStrategy(size=count, max_tasks_in_flight_per_actor=2),
        num_cpus=cores,
        fn_constructor_kwargs={
            "computation": work.computation,
            "bundle": bundle,
            "source": work.source.location,
            "kind": work.source.kind,
            "out": work.out,
            "strict": work.strict,
            "cores": cores,
            "attempts": ray.remote(num_cpus=0, max_restarts=-1)(Attempts).remote(),
        },
    )
    try:
        yield from made.iter_rows()
    except (ray.exceptions.RayError, RuntimeError) as error:
        if isinstance(error, UniotError):
            raise
        reason = next(
            (line.strip() for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__
        )
        raise errors.DataError(
            f"Ray could not go on ({reason[:300]}). Finished shards are kept; run the same command again to continue."
        ) from error


def pool_size(nodes: Sequence[int], workers: int | None, n_shards: int) -> tuple[int, int]:
    """Return the number of workers, and the cores of each.

    Args:
        nodes: cores of each machine, (n_machines,); a machine with 0 gets no worker.
        workers: wanted number; one per two cores if None or 0.
        n_shards: number of shards, beyond which a worker would have nothing to do.
    """
    largest = max(nodes, default=0)
    if largest < 1:
        return 1, 1

    def room(cores: int) -> int:
        return sum(node // cores for node in nodes)

    if not workers:
        cores = min(_CORES_PER_WORKER, largest)
        return min(room(cores), n_shards), cores
    wanted = min(workers, n_shards)
    fitting = [cores for cores in range(1, largest + 1) if room(cores) >= wanted]
    # More workers than cores would wait for each other.
    return (wanted, fitting[-1]) if fitting else (room(1), 1)


@contextmanager
def _ray(cluster: Cluster) -> Iterator[tuple[Any, bool]]:
    """Yield the module `ray`, connected for the block, and whether this process started the Ray that it uses."""
    ray = import_ray(cluster)
    if ray.is_initialized():
        yield ray, False
        return
    address = cluster.chosen_address
    quietly = {"log_to_driver": False, "configure_logging": False, "logging_level": logging.CRITICAL}
    try:
        if address:
            ray.init(address=address, **quietly)
        else:
            cores = available_cores()
            with _without_api_server():
                ray.init(
                    address="local",
                    num_cpus=cores,
                    object_store_memory=_STORE_BYTES,
                    include_dashboard=False,
                    **quietly,
                )
    except Exception as error:  # Ray raises a plain Exception if one of its processes does not start
        raise errors.DataError(_not_started(address, error)) from None
    try:
        yield ray, not address
    except BaseException as error:
        # Iterators of Ray Data report to Ray when they end. In the frames of a traceback they would outlive it.
        traceback.clear_frames(error.__traceback__)
        raise
    finally:
        _end_threads()
        ray.shutdown()


def _not_started(address: str | None, error: Exception) -> str:
    reason = str(error).partition("\n")[0][:300] or type(error).__name__
    if address:
        return (
            f"expected a Ray cluster at {address}, but it cannot be reached ({reason}). Check --ray-address and "
            "RAY_ADDRESS, or leave them out to compute on this machine."
        )
    return (
        f"expected Ray to start on this machine, but it did not ({reason}). Its log files are in session_latest/logs "
        "of Ray's temporary folder, by default /tmp/ray. Free memory and disk space and run the same command again, or "
        "leave out --engine ray."
    )


@contextmanager
def _without_api_server() -> Iterator[None]:
    """Let Ray start without its API server in the block.

    Without a dashboard the server has no task but usage statistics. Even if these are off, it asks the metadata
    addresses of cloud providers (169.254.169.254, metadata.google.internal) where it runs, and no setting of Ray
    prevents that.
    """
    from ray._private import services

    before = getattr(services, "start_api_server", None)
    if before is None:  # another version of Ray
        yield
        return
    # This is what Ray goes on with if the server cannot be started: no URL and no process.
    services.start_api_server = lambda *_, **__: (None, None)
    try:
        yield
    finally:
        services.start_api_server = before


def _data_threads() -> list[Any]:
    """Return the running threads in which Ray Data executes, and in which it fetches and formats results."""
    return [thread for thread in threading.enumerate() if thread.name.startswith(_DATA_THREADS)]


def _end_threads() -> None:
    """End the threads of Ray Data; without Ray they would write a traceback to the terminal, or end the process.

    Ray Data ends those that execute if an interrupt reaches its own code, but not if it reaches ours. The others end
    then by themselves, which takes them a moment.
    """
    threads, until = _data_threads(), time.monotonic() + _SECONDS_TO_END
    for thread in threads:
        with suppress(Exception):  # another version of Ray, a thread of another kind, or one that has just ended
            thread.shutdown(force=False)
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the messages of Ray off the terminal for the block; what this process writes to sys.stderr still appears."""
    loggers = [logging.getLogger(name) for name in ("ray", "ray.data", "ray.serve")]
    levels = [logger.level for logger in loggers]
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.callback(_restore, loggers, levels)
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        nowhere = stack.enter_context(Path(os.devnull).open("w", encoding="utf-8"))
        # Ray prints from a thread to sys.stdout, and its C++ part writes to the file descriptor 2.
        stack.enter_context(redirect_stdout(nowhere))
        stack.enter_context(_without_descriptor(nowhere.fileno()))
        yield


def _restore(loggers: Sequence[logging.Logger], levels: Sequence[int]) -> None:
    """Restore the levels of loggers, unless a thread of Ray Data that could not be ended may still write to them."""
    if _data_threads():
        return
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@contextmanager
def _without_descriptor(nowhere: int) -> Iterator[None]:
    """Point the file descriptor 2 elsewhere for the block, and sys.stderr to where it pointed."""
    try:
        is_standard = sys.stderr.fileno() == 2
    except (OSError, ValueError, AttributeError):  # a stream in memory
        is_standard = False
    kept = os.dup(2)
    before = sys.stderr
    if is_standard:
        before.flush()
        opened = open(  # noqa: SIM115 - closed with the descriptor
            kept, "w", encoding=before.encoding, errors=before.errors, buffering=1, closefd=False
        )
        sys.stderr = escape_output(opened) if isinstance(before, VisibleStream) else opened
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        if is_standard:
            sys.stderr.flush()
            sys.stderr = before
        os.close(kept)
