"""Share a run without its samples, on the Hugging Face hub or in a folder, and download it again."""

from __future__ import annotations

import hashlib
import re
import shutil
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from uniot import __version__
from uniot.errors import DataError, RunFolderError, UniotError
from uniot.export.hub_client import Hub, explained, model_card, open_hub
from uniot.io.files import open_regular, replacing
from uniot.io.predictions import Prediction
from uniot.metrics.evaluate import SCORE_MEANINGS
from uniot.rejection.answers import Answers
from uniot.runs.files import RunFiles
from uniot.runs.run import Run

if TYPE_CHECKING:
    from uniot.training.model import AdaptedModel

# No other file is ever uploaded or downloaded.
_FILES = RunFiles.SHARED


def push(
    run: Path,
    repository: str,
    *,
    private: bool = True,
    licence: str | None = None,
    token: str | None = None,
    hub: Hub | None = None,
) -> str:
    """Share a finished run: weights, decision rule, class names and settings, with a model card.

    The predictions and features of the target, file names and paths of this machine are not shared.

    Args:
        run: the run folder.
        repository: `owner/name` on the hub; or a folder, which starts with `/`, `.`, `~` or `file:`, or exists.
        private: whether the repository is visible to its owner alone. An existing repository keeps its visibility; it
            is an error if it is public and should be private.
        licence: licence for the card, as the hub abbreviates it: `mit`, `cc-by-4.0`; none if None.
        token: token of the hub; that of `hf auth login` or HF_TOKEN if None.
        hub: client of the hub; `huggingface_hub.HfApi` if None.

    Returns:
        The address of the repository, or the path of the folder.

    Raises:
        DataError: the hub cannot be reached, or rejects the request.
        RunFolderError: the run cannot be read, or the folder has other files or a run with its predictions.
    """
    if licence is not None and not re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", licence):
        raise DataError(f"the licence is {licence!r}. Give its abbreviation in small letters: mit, cc-by-4.0.")
    folder = _local_folder(repository)
    if folder is not None:
        _check_place(folder)
    opened = Run.open(run)
    model = opened.answered_model
    with TemporaryDirectory(prefix="uniot-") as temporary:
        with Run.writer(temporary) as writer:
            writer.save(without_data(model))
            writer.write_card(model_card(model, None if folder else repository, licence, _scores(opened)))
        if folder is None:
            return _upload(writer.folder, repository, private, token, hub)
        with Run.writer(folder) as place:
            place.take_shared(writer.folder)
        return str(folder)


def pull(
    repository: str, out: Path, revision: str | None = None, *, token: str | None = None, hub: Hub | None = None
) -> AdaptedModel:
    """Download a run that `push` shared.

    Only the files of a shared run are downloaded, tensors and text. They are moved to `out` after all of them have been
    read and their checksums compared. Nothing in them is executed.

    Args:
        repository: as for `push`.
        out: the run folder, new or empty.
        revision: branch, tag or commit on the hub; its main branch if None.
        token: as for `push`.
        hub: client of the hub; `huggingface_hub.HfApi` if None.

    Returns:
        The model, which has no predictions for a target.

    Raises:
        DataError: the hub cannot be reached, rejects the request, or lacks the repository or revision.
        RunFolderError: the files are not a run, or are damaged; or `out` cannot be written, or is not empty.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunFolderError(f"{out} is not an empty folder. Give a new one.")
    folder = _local_folder(repository)
    if folder is not None and revision is not None:
        raise DataError(f"{folder} is a folder, which has no revisions. Leave {revision!r} out.")
    with Run.writer(out) as writer, TemporaryDirectory(prefix=".pull-", dir=out) as temporary:
        fetched = Path(temporary)
        if folder is None:
            _download(repository, revision, fetched, token, hub)
        else:
            _copy_files(folder, fetched)
        model = _checked(fetched, repository)
        writer.take_shared(fetched)
        return model


def without_data(model: AdaptedModel) -> AdaptedModel:
    """Return the model without any sample; it decides the same as far as that is possible.

    Removed are the predictions and features of the target, the features in the queue, and the path of the weights. Kept
    are means over the target: class mass, cluster prototypes, centres of groups (that of a group of one sample is its
    feature). The fingerprint differs, so that `adapt` does not take the shared run for its own finished run.
    """
    method = deepcopy(model.method)
    method.forget_samples()
    none = np.zeros(0, dtype=np.int64)
    return replace(
        model,
        method=method,
        reader=None if model.reader is None else model.reader.without_path(),
        groups=replace(model.groups, group=none),
        target=Prediction.none(),
        target_odds=model.target_odds[:0],
        target_nearest=model.target_nearest[:0],
        target_class_probability=model.target_class_probability[:0],
        target_class_log_odds=model.target_class_log_odds[:0],
        target_features=model.target_features[:0],
        feature_rows=None,
        nearest_groups=None,
        source=model.source.none(),
        answers=Answers(),
        fingerprint=hashlib.sha256(f"shared {model.fingerprint}".encode()).hexdigest(),
    )


def _local_folder(repository: str) -> Path | None:
    """Return the folder that is named; None for a repository on the hub."""
    path = Path(repository.removeprefix("file:")).expanduser()
    is_path = repository.startswith((".", "/", "\\", "~", "file:")) or path.is_absolute()
    return path if is_path or path.is_dir() else None


def _check_place(folder: Path) -> None:
    """Raise RunFolderError if sharing here would replace a run that has its predictions, or files of something else."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise RunFolderError(f"{folder} is a file. Give a folder to share the run in.")
    # A clone of a repository has hidden files.
    visible = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    files = RunFiles(folder)
    if visible & {files.predictions.name, files.checkpoints.name}:
        raise RunFolderError(f"{folder} contains a run with its predictions, which would be lost. Give another folder.")
    if visible and files.model.name not in visible:
        raise RunFolderError(f"{folder} contains other files, such as {min(visible)}. Give a new folder.")


def _upload(shared: Path, repository: str, private: bool, token: str | None, hub: Hub | None) -> str:
    with explained(repository):
        hub = hub or open_hub(token)
        address = hub.create_repo(repository, repo_type="model", private=private, exist_ok=True)
        if private and not hub.repo_info(repository, repo_type="model").private:
            raise DataError(
                f"{repository} is public, and this run was to be shared privately. Give another name, or allow it to "
                "be public (--public on the command line)."
            )
        hub.upload_folder(
            repo_id=repository,
            repo_type="model",
            folder_path=shared,
            allow_patterns=list(_FILES),
            delete_patterns=list(_FILES),  # files of an earlier run that this one lacks
            commit_message=f"A run of uniot {__version__}",
        )
    return str(address)


def _download(repository: str, revision: str | None, out: Path, token: str | None, hub: Hub | None) -> None:
    with explained(repository, revision):
        (hub or open_hub(token)).snapshot_download(
            repository, repo_type="model", revision=revision, local_dir=out, allow_patterns=list(_FILES)
        )


def _copy_files(folder: Path, out: Path) -> None:
    if not folder.is_dir():
        raise RunFolderError(f"{folder} is not a folder. Give one that `uniot push` wrote, or `owner/name` on the hub.")
    _check_no_links(folder, str(folder))
    for name in _FILES:
        if (folder / name).is_file():
            with replacing(out / name) as partial, partial.open("wb") as copy, open_regular(folder / name) as file:
                shutil.copyfileobj(file, copy)


def _checked(folder: Path, repository: str) -> AdaptedModel:
    """Return the model of untrusted files."""
    _check_no_links(folder, repository)
    if not Run.is_finished(folder):
        missing = RunFiles(folder).model.name
        raise RunFolderError(f"{repository} has no run of uniot: there is no {missing} in it. Check the name.")
    try:
        return Run.open(folder).saved_model
    except UniotError as error:
        raise type(error)(str(error).replace(str(folder), repository)) from None


def _check_no_links(folder: Path, repository: str) -> None:
    """Raise RunFolderError for a link, which could point to any file of this machine."""
    links = [name for name in _FILES if (folder / name).is_symlink()]
    if links:
        raise RunFolderError(
            f"{links[0]} of {repository} is a link to another file, which is not followed. If you trust it, copy the "
            "files themselves first, as `cp -L` does."
        )


def _scores(run: Run) -> dict[str, float]:
    """Return the scores of a run that was evaluated, from 0 to 1; none otherwise."""
    values = run.metrics or {}
    try:
        return {name: float(values[name]) for name in SCORE_MEANINGS if values.get(name) is not None}
    except (ValueError, TypeError) as error:
        raise RunFolderError(
            f"{run.files.metrics} cannot be read ({error}). Run `uniot evaluate` again, or remove it."
        ) from None
