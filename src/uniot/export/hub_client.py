"""The client of the Hugging Face hub: its errors in plain words, and the model card of a shared run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from uniot import __version__
from uniot.errors import DataError, RunFolderError, UniotError, import_optional
from uniot.io.text import as_utf8, command, counted
from uniot.methods.registry import method_info
from uniot.metrics.evaluate import SCORE_MEANINGS
from uniot.neighbours import LEAST_SAMPLES
from uniot.runs.files import RunFiles

if TYPE_CHECKING:
    from uniot.training.model import AdaptedModel

_LOG_IN = "Log in with `hf auth login`, or set HF_TOKEN to a token of https://huggingface.co/settings/tokens"


class Hub(Protocol):
    """The methods of `huggingface_hub.HfApi` that are used."""

    def create_repo(self, repo_id: str, *, repo_type: str, private: bool, exist_ok: bool) -> object:
        """Create a repository if it does not exist; return its address."""

    def repo_info(self, repo_id: str, *, repo_type: str) -> Any:
        """Return information on a repository, with the attribute `private`."""

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
        """Upload the files of a folder in one commit, which also deletes matching files that are not in the folder."""

    def snapshot_download(
        self, repo_id: str, *, repo_type: str, revision: str | None, local_dir: Path, allow_patterns: list[str]
    ) -> object:
        """Download the files that match the patterns."""


def open_hub(token: str | None) -> Hub:
    """Return a client of the Hugging Face hub."""
    hub: Hub = _imported("huggingface_hub").HfApi(token=token, library_name="uniot", library_version=__version__)
    return hub


def _imported(module: str) -> Any:
    return import_optional(module, "hub", "sharing runs on the Hugging Face hub")


@contextmanager
def explained(repository: str, revision: str | None = None) -> Iterator[None]:
    """Turn errors of the hub, the network and the disk into a DataError or RunFolderError that says what to do."""
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
        raise DataError(f"the hub requires you to log in. {_LOG_IN}.") from None
    except OSError as error:
        raise RunFolderError(
            f"{repository} cannot be copied ({error.strerror or error}). Check that the disk has space, and try again."
        ) from error


def _refusal(errors: Any, error: Any, repository: str, revision: str | None) -> str:
    """Return what an error response of the hub means, and what to do."""
    if isinstance(error, errors.GatedRepoError):
        return (
            f"{repository} requires you to accept its terms. Do so at https://huggingface.co/{repository}, "
            "log in with `hf auth login`, and try again."
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"there is no {repository} on the hub, or you may not see it. Check the name. {_LOG_IN}."
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{repository} has no revision {revision!r}. Give one of its branches, tags or commits."
    status = error.response.status_code
    if status in (401, 403):
        return f"the hub denies access to {repository} ({status}). {_LOG_IN}; the token must allow writing there."
    return f"the hub responds with {status} ({_first_line(error)}). Try again later."


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


_TAGS = ("uniot", "domain-adaptation", "universal-domain-adaptation", "optimal-transport")
_OF_TRAINING = ("steps", "batch_size", "feature_size")
_LIMITS = """\
- Every sample is classified on its own, by a rule that was fitted to one target. For a collection from another domain,
  adapt again.
- Unknown means unlike the classes above as they looked in that target. A sample of one of them that looks different may
  be called unknown, and something new that resembles one may be called known.
- The groups of unknown samples are numbers without names, found by clustering.
- The confidence is the probability of the prediction, of its class or of being unknown, estimated without labels on
  that target. On another collection it may be too high.
- These files contain no sample of either collection, and no prediction for one. They contain means over the target: its
  centre, the class mass and the cluster prototypes, if the method has them, the prototypes of classes that people named
  in the target, and the centres of the groups. The mean of a single sample is that sample's feature."""
_LANDMARKS = f"""\
- The run itself compares a sample with its neighbours in the target, which is not shared. Instead, averages of at least
  {LEAST_SAMPLES} target samples each are shared, and a linear map fitted to all of them; no single sample. Some new
  samples get another prediction than from the run itself: about one in twenty on average, and one in ten or more if the
  target had only a hundred samples."""


def model_card(
    model: AdaptedModel, repository: str | None, licence: str | None = None, scores: Mapping[str, float] | None = None
) -> str:
    """Return the model card: Markdown with the metadata header of the hub.

    Args:
        model: the model of the run.
        repository: `owner/name`; None if it is shared in a folder, whose path is not published.
        licence: licence as the hub abbreviates it.
        scores: scores from 0 to 1 by their names in `SCORE_MEANINGS`.
    """
    title = "A run of uniot" if repository is None else repository.rpartition("/")[2]
    parts = [
        _header(model, licence),
        f"# {title}",
        f"Gives {_kind(model)} one of {len(model.classes)} labels, or calls them {json.dumps(model.unknown)} and puts "
        f"them into {counted(model.groups.n_groups, 'group')}. {method_info(model.settings.method).title} adapted it "
        "from a labelled collection to an unlabelled one of another domain, without knowing which of the classes are "
        "in it and what else is: universal domain adaptation.",
        "## Use",
        _install(model),
        _commands(model, repository),
        _inputs(model),
        "## Classes",
        _as_it_is("\n".join(" ".join(str(name).split()) for name in model.classes.tolist())),
        "## Settings",
        _table(("setting", "value"), _settings(model).items()),
        f"All of them are in `{RunFiles(Path()).settings.name}`.",
    ]
    if scores:
        rows = [(name, f"{100 * value:.1f}", SCORE_MEANINGS[name]) for name, value in scores.items()]
        parts += ["## Scores", f"On the target that the run was made for{_of_whom(model)}; in percent."]
        parts += [_table(("score", "value", "meaning"), rows)]
    stored = model.method.stored_target()
    limits = [_LIMITS, _LANDMARKS] if stored.n_samples or stored.n_means else [_LIMITS]
    parts += ["## Limits", "\n".join(limits), f"Made with uniot {__version__}."]
    return as_utf8("\n\n".join(parts)) + "\n"


def _of_whom(model: AdaptedModel) -> str:
    keeps = model.method.stored_target().n_samples > 0
    return ", by the run itself, which compares samples with that target; without it they differ" if keeps else ""


def _header(model: AdaptedModel, licence: str | None) -> str:
    lines = ["---", "library_name: uniot"]
    lines += [f"license: {licence}"] if licence else []
    lines += ["pipeline_tag: image-classification"] if model.reader is not None else []
    return "\n".join([*lines, "tags:", *(f"- {tag}" for tag in _TAGS), "---"])


def _kind(model: AdaptedModel) -> str:
    if model.reader is not None:
        return "images"
    return "embeddings" if model.settings.network == "none" else "small grey images"


def _install(model: AdaptedModel) -> str:
    extras = "the extras `hub` and `images`" if model.reader is not None else "the extra `hub`"
    return f"Install uniot with {extras}, as its README says."


def _commands(model: AdaptedModel, repository: str | None) -> str:
    new = "photos/" if model.reader is not None else "new.npz"
    lines = [command("pull", repository or "path/of/this/folder", "--out", "run/"), command("predict", "run/", new)]
    return "\n".join(["```console", *(f"$ {line}" for line in lines), "```"])


def _inputs(model: AdaptedModel) -> str:
    if model.reader is not None:
        preparation = model.reader.preparation
        return f"Images of any size; the network reads {preparation.crop} × {preparation.crop} pixels of them."
    shape = " × ".join(map(str, model.input_shape))
    if model.settings.network == "none":
        return f"Embeddings have {shape} numbers, and must come from the same network as those of the run."
    return f"Images have {shape} pixels, grey, with values from 0 to 1."


def _settings(model: AdaptedModel) -> dict[str, object]:
    shown: dict[str, object] = {}
    if model.reader is not None:
        shown = {name: getattr(model.reader.settings, name) for name in ("backbone", "flip", "fine_tune")}
    elif model.settings.network != "none":
        shown = {"network": model.settings.network}
    names = ("method", *(_OF_TRAINING if model.settings.steps else ()), "seed")
    return shown | {name: getattr(model.settings, name) for name in names} | model.settings.method_options


def _table(header: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def _as_it_is(text: str) -> str:
    """Return a code block whose fence is longer than any in the text, since class names may contain anything."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"
