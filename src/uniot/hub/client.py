"""Who talks to the hub, and what may go wrong between here and there, in words that say what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from uniot import __version__
from uniot.errors import DataError, RunFolderError, UniotError

_LOG_IN = "Log in with `hf auth login`, or set HF_TOKEN to a token of https://huggingface.co/settings/tokens"


class Hub(Protocol):
    """What is asked of `huggingface_hub.HfApi`."""

    def create_repo(self, repo_id: str, *, repo_type: str, private: bool, exist_ok: bool) -> object:
        """Makes a repository where there is none; returns its address."""

    def repo_info(self, repo_id: str, *, repo_type: str) -> Any:
        """Says, among other things, whether it is `private`."""

    def upload_folder(
        self,
        *,
        repo_id: str,
        repo_type: str,
        folder_path: Path,
        allow_patterns: list[str],
        delete_patterns: list[str],
        commit_message: str,
    ) -> object:
        """Sends the files of a folder in one commit, which removes files that match and are not sent."""

    def snapshot_download(
        self, repo_id: str, *, repo_type: str, revision: str | None, local_dir: Path, allow_patterns: list[str]
    ) -> object:
        """Fetches the files that match."""


def open_hub(token: str | None) -> Hub:
    """The hub of Hugging Face."""
    hub: Hub = _imported("huggingface_hub").HfApi(token=token, library_name="uniot", library_version=__version__)
    return hub


def _imported(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise DataError(
            f"the hub is reached through huggingface_hub, which cannot be imported ({error}). "
            "Run `pip install 'uniot[hub]'`."
        ) from None


@contextmanager
def explained(repository: str, revision: str | None = None) -> Iterator[None]:
    """Gives errors of the hub, of the network and of this machine another wording."""
    errors = _imported("huggingface_hub.errors")
    try:
        yield
    except UniotError:
        raise
    except errors.HFValidationError as error:
        raise DataError(
            f"{repository!r} cannot be the name of a repository ({_first_line(error)}). "
            "Give `owner/name`; a folder is written ./name."
        ) from None
    except errors.HfHubHTTPError as error:
        raise DataError(_refusal(errors, error, repository, revision)) from None
    except (errors.HTTPError, errors.LocalEntryNotFoundError, ConnectionError, TimeoutError) as error:
        raise DataError(
            f"the hub cannot be reached ({_first_line(error)}). Check the network and try again; without one, share "
            "through a folder: `uniot push run/ ./shared`, `uniot pull ./shared --out run/`."
        ) from None
    except errors.LocalTokenNotFoundError:
        raise DataError(f"the hub wants to know who you are. {_LOG_IN}.") from None
    except OSError as error:
        raise RunFolderError(
            f"{repository} cannot be copied ({error.strerror or error}). Check that the disk has room, and try again."
        ) from error


def _refusal(errors: Any, error: Any, repository: str, revision: str | None) -> str:
    """What an answer of the hub means."""
    if isinstance(error, errors.GatedRepoError):
        return (
            f"{repository} is open only to those who accept its terms. Do so at https://huggingface.co/{repository}, "
            "log in with `hf auth login`, and try again."
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"there is no {repository} on the hub, or it is not open to you. Check the name. {_LOG_IN}."
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{repository} has no revision {revision!r}. Give a branch, a tag or a commit of it."
    status = error.response.status_code
    if status in (401, 403):
        return f"the hub does not let you into {repository} ({status}). {_LOG_IN}; it must be one that may write there."
    return f"the hub answers {status} ({_first_line(error)}). Try again later."


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
