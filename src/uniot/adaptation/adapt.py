"""Fit a method to two collections and write the run folder; the same call continues an interrupted run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from uniot.adaptation.describing import check_terms, describe_groups, open_terms
from uniot.errors import RunFolderError
from uniot.images.embedding import ReadOptions
from uniot.methods.registry import method_info
from uniot.runs import Run
from uniot.training.fit import FitContext, fit
from uniot.training.processes import Processes
from uniot.training.true_labels import oracle_watch

if TYPE_CHECKING:
    import numpy as np

    from uniot.adaptation.collections import Collections
    from uniot.config import ImageSettings, Settings
    from uniot.data_quality.checks import CheckedCollections
    from uniot.runs.saving import RunWriter
    from uniot.training.domains import Domains
    from uniot.training.fit import OnStep
    from uniot.training.history import ExperimentLogger
    from uniot.training.model import AdaptedModel


class Progress(Protocol):
    """Callbacks that show progress while a run is made."""

    def working(self, words: str) -> AbstractContextManager[object]:
        """Return a context in which something is done, as the words say."""
        ...

    def fitting(self, title: str) -> AbstractContextManager[OnStep | None]:
        """Return a context that yields the callback for the training steps of the method with this title."""
        ...

    @property
    def warn(self) -> Callable[[str], None] | None:
        """Return the function that is called with each warning about the data; None for no function."""
        ...


class NoProgress:
    """Progress that shows nothing."""

    @property
    def warn(self) -> None:
        """Return None: the warnings are in the model, too."""

    def working(self, words: str) -> AbstractContextManager[object]:
        """Return an empty context."""
        return nullcontext()

    def fitting(self, title: str) -> AbstractContextManager[OnStep | None]:
        """Return a context without a callback."""
        return nullcontext()


@dataclass(frozen=True)
class AdaptedRun:
    """A run that was made.

    Attributes:
        model: the fitted model.
        domains: the samples that it was fitted to.
        truth: true labels of the target, (n_target,); None if they are not known.
        faults: probably wrong labels and near-duplicates; None in processes other than the first.
        was_finished: whether the run was finished before, so that nothing was fitted.
    """

    model: AdaptedModel
    domains: Domains
    truth: np.ndarray | None
    faults: CheckedCollections | None
    was_finished: bool


def adapt(
    collections: Collections,
    settings: Settings,
    out: Path,
    *,
    images: ImageSettings | None = None,
    options: ReadOptions | None = None,
    processes: Processes | None = None,
    logger: ExperimentLogger | None = None,
    resume: bool = False,
    overwrite: bool = False,
    parquet: bool = False,
    terms: Path | None = None,
    progress: Progress | None = None,
) -> AdaptedRun:
    """Fit a method to two collections and write the run folder.

    Args:
        collections: a labelled and an unlabelled collection.
        settings: of the fit.
        out: the run folder; an interrupted run in it is continued.
        images: the backbone and what of it is trained; the default network if None.
        options: how image files are read.
        processes: processes that share the work; the first one writes.
        logger: for settings and losses, if something is trained.
        resume: require an interrupted run in `out`; without it, a new run is started if there is none.
        overwrite: whether to remove the run that is in the folder.
        parquet: whether to write predictions.parquet as well.
        terms: file of terms from which names for the groups are suggested, in the format of `open_terms`.
        progress: what is shown while the run is made.

    Returns:
        The model, the domains and what was found in them.

    Raises:
        RunFolderError: the folder contains another run, or no interrupted one although `resume` is given.
    """
    processes, progress = processes or Processes(), progress or NoProgress()
    if terms is not None:
        check_terms(terms, collections)
    leads, writer = processes.rank == 0, Run.writer(out)
    with ExitStack() as stack:
        if leads:
            stack.enter_context(writer)
            if resume and not Run.has_checkpoint(out):
                raise RunFolderError(f"{out} contains no interrupted run. Leave --resume out to start one.")
            if overwrite:
                writer.clear()
        processes.wait()
        was_finished = Run.is_finished(out)
        collections = collections.embedded(options)
        domains = collections.domains(settings, images, options, processes=processes, working=progress.working)
        truth, names = collections.truth_of(domains), domains.target_names or ()
        annotations, source_model = collections.annotations, collections.source_model
        with progress.fitting(method_info(settings.method).title) as on_step:
            context = FitContext(
                source_weights=None if source_model is None else source_model.weights,
                start=collections.start,
                answers=None if annotations is None else annotations.answers(names, domains.classes),
                checkpoints=writer.checkpoints,
                finished=writer.finished,
                processes=processes,
                watch=None if truth is None else oracle_watch(truth, domains.classes, len(domains.target)),
                on_step=on_step,
                logger=logger,
                warn=progress.warn,
            )
            model = fit(domains, settings, context)
        if was_finished:
            writer.check_names(names)
        faults = None
        if leads:
            with progress.working("Looking for wrong labels and near-duplicates"):
                faults = domains.find_faults(model)
            _save(writer, model, collections, domains, faults, parquet=parquet)
            if model.groups.n_groups:
                with progress.working("Describing the groups"):
                    listed = None if terms is None else open_terms(terms, collections, options)
                    descriptions = describe_groups(model, collections, domains, listed)
                if descriptions is not None:
                    writer.write_descriptions(descriptions)
        processes.wait()
    return AdaptedRun(model, domains, truth, faults, was_finished)


def _save(
    writer: RunWriter,
    model: AdaptedModel,
    collections: Collections,
    domains: Domains,
    faults: CheckedCollections,
    *,
    parquet: bool,
) -> None:
    """Write the model and its predictions; for report and labelling page, the paths and faults of the samples."""
    writer.save(model, domains.target_names, collections.inputs, parquet=parquet)
    writer.write_checks(faults)
    source, target = collections.source, collections.target
    if target.path is None and source.rows is not None and target.rows is not None:
        writer.write_pixels(source.rows, target.rows)
    if domains.images is not None:
        writer.write_image_paths(domains.images.source.files, domains.images.target.files)
        writer.write_skipped(domains.images.skipped)
        writer.write_duplicates(domains.images.duplicates)
    if target.shown is not None:
        writer.write_shown(source.shown, target.shown)
    if collections.source_labels is not None:
        writer.write_source_labels(collections.source_labels.lines())
    if collections.annotations is not None:
        writer.write_names(collections.annotations.lines())
    if collections.cells is not None and target.path is not None:
        from uniot.cells.saving import save_cells

        save_cells(writer, target.path, model, target.names, collections.cells)
