"""What of a run is shared, and how it gets there and back."""

from __future__ import annotations

import hashlib
import re
import shutil
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from uniot import __version__
from uniot.errors import DataError, RunFolderError, UniotError
from uniot.evaluation import SCORE_MEANINGS
from uniot.hub.card import model_card
from uniot.hub.client import Hub, explained, open_hub
from uniot.model import AdaptedModel
from uniot.model_files import load_model, save_model
from uniot.prediction import Prediction
from uniot.run_folder import only_one_writer, replacing, write_text
from uniot.untrusted import MOST_SETTINGS_BYTES, open_regular, parse_json, read_bounded

_MODEL = "model.safetensors"
# No other file is ever sent or fetched. The model comes last: where it is, the rest is.
_FILES = ("README.md", "settings.toml", "history.csv", "features.safetensors", "backbone.safetensors", _MODEL)


def push(
    run: Path,
    repository: str,
    *,
    private: bool = True,
    licence: str | None = None,
    token: str | None = None,
    hub: Hub | None = None,
) -> str:
    """Shares a finished run: weights, rule, class names and settings, with a model card.

    What belongs to the target stays here: its answers and features, names of files, and paths of this machine.

    Args:
        run: folder of the run.
        repository: `owner/name` on the hub; or a folder, which begins with `/`, `.`, `~` or `file:`, or exists.
        private: whether nobody else may see the repository. One that exists stays what it is; it is refused if it
            should be private and is not.
        licence: for the card, as the hub abbreviates it: `mit`, `cc-by-4.0`; none is named if None.
        token: of the hub; the one that `hf auth login` or HF_TOKEN gave if None.
        hub: who does the sending; `huggingface_hub.HfApi` if None.

    Returns:
        Where it is now.

    Raises:
        DataError: the hub cannot be reached, or refuses.
        RunFolderError: the run cannot be read, or the folder is not to be written to.
    """
    if licence is not None and not re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", licence):
        raise DataError(f"the licence is {licence!r}. Give its abbreviation in small letters: mit, cc-by-4.0.")
    folder = _local_folder(repository)
    if folder is not None:
        _check_place(folder)
    model = load_model(run)
    with TemporaryDirectory(prefix="uniot-") as temporary:
        shared = Path(temporary)
        save_model(without_data(model), shared)
        (shared / "predictions.csv").unlink()  # a header without rows
        write_text(shared / "README.md", model_card(model, None if folder else repository, licence, _scores(run)))
        if folder is None:
            return _upload(shared, repository, private, token, hub)
        with only_one_writer(folder):
            _put_files(shared, folder)
        return str(folder)


def pull(
    repository: str, out: Path, revision: str | None = None, *, token: str | None = None, hub: Hub | None = None
) -> AdaptedModel:
    """Fetches a run that `push` shared.

    Only the files that a run consists of are fetched, tensors and text, and none of them is in its place before all
    have been read and their checksums compared. Nothing that was fetched is executed.

    Args:
        repository: as for `push`.
        out: the run folder; new, or empty.
        revision: branch, tag or commit on the hub; its main branch if None.
        token: as for `push`.
        hub: who does the fetching; `huggingface_hub.HfApi` if None.

    Returns:
        The model. It has no answers for a target.

    Raises:
        DataError: the hub cannot be reached, does not know the repository or revision, or refuses.
        RunFolderError: what came is no run, or is damaged; or `out` cannot be written, or is not empty.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunFolderError(f"{out} is not an empty folder. Give a new one.")
    folder = _local_folder(repository)
    if folder is not None and revision is not None:
        raise DataError(f"{folder} is a folder, which has no revisions. Leave {revision!r} out.")
    with only_one_writer(out), TemporaryDirectory(prefix=".pull-", dir=out) as temporary:
        fetched = Path(temporary)
        if folder is None:
            _download(repository, revision, fetched, token, hub)
        else:
            _copy_files(folder, fetched)
        model = _checked(fetched, repository)
        _put_files(fetched, out)
        return model


def without_data(model: AdaptedModel) -> AdaptedModel:
    """A model that holds no sample of whoever made it, and decides the same as far as it can without.

    Gone are the answers and features of the target, the features in the queue, and the path of the weights. Left are
    means over the target: class mass, cluster prototypes, centres of groups (that of a group of one sample is its
    feature). The fingerprint is another, lest `adapt` should take this for a run that it has finished.
    """
    method = deepcopy(model.method)
    method.forget_samples()
    reader = model.reader
    if reader is not None:
        reader = replace(reader, settings=reader.settings.model_copy(update={"weights": None}))
    none = np.zeros(0, dtype=np.int64)
    return replace(
        model,
        method=method,
        reader=reader,
        groups=replace(model.groups, group=none),
        target=Prediction.none(),
        target_shares=model.target_shares[:0],
        target_class_probability=model.target_class_probability[:0],
        target_features=model.target_features[:0],
        source=model.source.none(),
        fingerprint=hashlib.sha256(f"shared {model.fingerprint}".encode()).hexdigest(),
    )


def _local_folder(repository: str) -> Path | None:
    """The folder that is meant; None for a repository on the hub."""
    path = Path(repository.removeprefix("file:")).expanduser()
    is_path = repository.startswith((".", "/", "\\", "~", "file:")) or path.is_absolute()
    return path if is_path or path.is_dir() else None


def _check_place(folder: Path) -> None:
    """A run must not be replaced by its own shared form, nor the files of something else by ours."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise RunFolderError(f"{folder} is a file. Give a folder to share the run in.")
    # A clone of a repository has hidden files from the start.
    visible = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    if visible & {"predictions.csv", "checkpoints"}:
        raise RunFolderError(f"{folder} holds a run with its answers, which would be lost. Give another folder.")
    if visible and _MODEL not in visible:
        raise RunFolderError(f"{folder} holds other files, {min(visible)} for one. Give a new folder.")


def _upload(shared: Path, repository: str, private: bool, token: str | None, hub: Hub | None) -> str:
    with explained(repository):
        hub = hub or open_hub(token)
        address = hub.create_repo(repository, repo_type="model", private=private, exist_ok=True)
        if private and not hub.repo_info(repository, repo_type="model").private:
            raise DataError(
                f"{repository} is public, and this run was to be shared in private. Give another name, or say that it "
                "may be public (--public on the command line)."
            )
        hub.upload_folder(
            repo_id=repository,
            repo_type="model",
            folder_path=shared,
            allow_patterns=list(_FILES),
            delete_patterns=list(_FILES),  # a file of an earlier run that this one does not have
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
        raise RunFolderError(f"{folder} is not a folder. Give one that `uniot push` wrote, or `owner/name` of the hub.")
    _check_no_links(folder, str(folder))
    for name in _FILES:
        if (folder / name).is_file():
            with replacing(out / name) as partial, partial.open("wb") as copy, open_regular(folder / name) as file:
                shutil.copyfileobj(file, copy)


def _put_files(folder: Path, out: Path) -> None:
    """Moves each file whole; those that another run left and this one does not have are removed first."""
    for name in _FILES:
        if not (folder / name).is_file():
            (out / name).unlink(missing_ok=True)
    for name in _FILES:
        if (folder / name).is_file():
            with replacing(out / name) as partial:
                shutil.move(folder / name, partial)


def _checked(folder: Path, repository: str) -> AdaptedModel:
    """The model in files from elsewhere, of which nothing is known."""
    _check_no_links(folder, repository)
    if not (folder / _MODEL).is_file():
        raise RunFolderError(f"{repository} holds no run of uniot: there is no {_MODEL} in it. Check the name.")
    try:
        return load_model(folder)
    except UniotError as error:
        raise type(error)(str(error).replace(str(folder), repository)) from None


def _check_no_links(folder: Path, repository: str) -> None:
    """A link could lead to any file of this machine, which would be taken for one of the run."""
    links = [name for name in _FILES if (folder / name).is_symlink()]
    if links:
        raise RunFolderError(
            f"{links[0]} of {repository} is a link to another file, which is not followed. If you trust it, copy the "
            "files themselves first, as `cp -L` does."
        )


def _scores(run: Path) -> dict[str, float]:
    """Those of metrics.json, where the run was scored."""
    path = run / "metrics.json"
    if not path.is_file():
        return {}
    try:
        values = parse_json(read_bounded(path, MOST_SETTINGS_BYTES))
        return {name: float(values[name]) for name in SCORE_MEANINGS if values.get(name) is not None}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise RunFolderError(f"{path} cannot be read ({error}). Run `uniot evaluate` again, or remove it.") from None
