"""An adapted model as the files of a run folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from uniot.annotations import FILE as ANNOTATIONS
from uniot.annotations import Annotations, read_annotations
from uniot.answers import AnswerWriter, read_answers
from uniot.data.text import as_utf8
from uniot.embeddings.image_reader import ImageReader
from uniot.errors import RunFolderError, UniotError
from uniot.method_building import build_method
from uniot.model import AdaptedModel
from uniot.prediction import Prediction
from uniot.restoring import restored
from uniot.run_contents import contents_text
from uniot.run_description import RunDescription
from uniot.run_folder import describe_tensors, read_tensors, write_tensors, write_text
from uniot.settings import Settings
from uniot.stored_tensors import StoredTensors, check_sizes

_MODEL, _FEATURES, _BACKBONE = "model.safetensors", "features.safetensors", "backbone.safetensors"
_ANSWERS = tuple(part.name for part in fields(Prediction))
# A step may lack one of its numbers, which is NaN then.
_HISTORY = ("history", "history.class_mass")


def save_model(
    model: AdaptedModel, folder: Path, names: Sequence[str] | None = None, inputs: dict[str, Any] | None = None
) -> None:
    """Writes the run folder; `model.safetensors` comes last, so that where it is, the rest is.

    Args:
        model: to be saved.
        folder: made if it does not exist.
        names: what the samples of the target are called; numbers if None.
        inputs: where the data came from, for settings.toml.

    Raises:
        RunFolderError: the folder holds another run, whose files would be mixed with these.
    """
    if is_saved(folder) and describe_tensors(folder / _MODEL)[1].get("fingerprint") != model.fingerprint:
        raise RunFolderError(f"{folder} holds another run. Give another folder, or remove that one first.")
    images = None if model.reader is None else model.reader.settings
    write_text(folder / "settings.toml", model.settings.to_toml(images, **({"inputs": inputs} if inputs else {})))
    if model.history.rows:
        write_text(folder / "history.csv", model.history.to_csv())
    write_answers(model, folder / "predictions.csv", names)
    features = _feature_tensors(model)
    write_tensors(folder / _FEATURES, features, {"fingerprint": model.fingerprint})
    if model.reader is not None:
        model.reader.save(folder / _BACKBONE)
    rule_tensors, rule_about = model.method.rule_state()
    write_text(folder / "contents.txt", contents_text(model, rule_tensors, features))
    about = {
        "classes": model.classes.tolist(),
        "unknown": model.unknown,
        "settings": model.settings.model_dump(),
        "input_shape": model.input_shape,
        "rule": rule_about,
        "columns": model.history.columns,
        "number": asdict(model.groups.number),
        "fingerprint": model.fingerprint,
        "from_images": model.reader is not None,
        "threshold": None if model.threshold is None else asdict(model.threshold),
        "calibration": asdict(model.calibration),
        "reliability": None if model.reliability is None else asdict(model.reliability),
    }
    write_tensors(folder / _MODEL, _model_tensors(model, rule_tensors), about)


def write_answers(model: AdaptedModel, path: Path, names: Sequence[str] | None) -> None:
    """Writes the answers for the target to a .csv or .parquet file, whole or not at all."""
    with AnswerWriter(path, model.classes, model.unknown, model.group_names) as answers:
        answers.write(names, model.target)


def rewrite_answers(model: AdaptedModel, folder: Path, names: Sequence[str] | None) -> None:
    """Writes the tables of a run folder again: predictions.csv, and predictions.parquet if the run has one."""
    for table in ("predictions.csv", "predictions.parquet"):
        if (folder / table).is_file():
            write_answers(model, folder / table, names)


def load_annotated(folder: Path, private_prior: float | None = None, prefer: str | None = None) -> AdaptedModel:
    """Reads a finished run whose answers follow a preference, if one is given, and what people decided about them.

    Decisions about an earlier run in the folder are left out: `annotations` of the model is None then.
    """
    model = load_model(folder)
    found = annotations_of(model, folder)
    model = model.with_preference(private_prior, prefer)
    return model if found is None else model.with_annotations(found)


def annotations_of(model: AdaptedModel, folder: Path) -> Annotations | None:
    """Return what people decided about a run; None if nobody did, or only about an earlier run in the folder.

    Args:
        model: as it was saved.
        folder: of the run.
    """
    table = folder / "predictions.csv"
    if not (folder / ANNOTATIONS).is_file() or not table.is_file():
        return None
    classes = [as_utf8(str(name)) for name in model.classes.tolist()]
    samples = read_answers(table).names
    return read_annotations(folder, model.fingerprint, samples, classes, model.target, model.groups.n_groups)


def is_saved(folder: Path) -> bool:
    """Whether the folder holds a finished run."""
    return (folder / _MODEL).is_file()


def load_model(folder: Path) -> AdaptedModel:
    """Reads a finished run, whoever made it: nothing in it is executed, and all of it is checked.

    Sizes are compared with those of the files before anything is allocated; shapes, types, ranges and finiteness of
    what was read before it is used.

    Raises:
        RunFolderError: the folder holds no finished run, or one that is damaged or contradicts itself.
        SettingsError: the run has settings that this version does not know.
    """
    if not folder.is_dir():
        raise RunFolderError(f"{folder} is not a folder. Give the folder of a run made with `uniot adapt`.")
    if not is_saved(folder) and (folder / "checkpoints").exists():
        raise RunFolderError(
            f"{folder} holds a run that has not finished. Run the command that began it again; it goes on."
        )
    try:
        return _loaded(folder)
    except UniotError:
        raise
    except (KeyError, MemoryError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        raise RunFolderError(
            f"{folder} holds nothing that this version of uniot can read ({type(error).__name__}: "
            f"{str(error).partition(chr(10))[0][:200]}). Use the version that it was made with, or make the run again."
        ) from error


def _loaded(folder: Path) -> AdaptedModel:
    path = folder / _MODEL
    outline, about = describe_tensors(path)
    run = RunDescription.of(path, about)
    settings, shape = run.checked_settings, tuple(run.input_shape)
    if run.from_images and not (folder / _BACKBONE).is_file():
        raise RunFolderError(f"{folder / _BACKBONE} is missing: the run was made from images. Make it again.")
    reader = ImageReader.outlined(folder / _BACKBONE) if run.from_images else None
    width = _checked_width(path, outline, run, settings, reader)
    tensors, features = StoredTensors(str(path), read_tensors(path)[0]), _stored_features(folder, run)
    tensors.check_finite(leave_out=_HISTORY)
    reader = None if reader is None else reader.filled(folder / _BACKBONE)
    method = build_method(shape, len(run.classes), settings, reader)
    module = cast(nn.Module, method)
    module.load_state_dict(tensors.below("method.").tensors)
    module.eval()
    method.load_rule_state(tensors.below("rule.").tensors, run.rule)
    prototypes = method.class_prototypes()
    if method.has_own_space and prototypes is not None:
        width = prototypes.shape[1]
    return restored(run, settings, tensors, features, method, reader, width)


def _checked_width(
    path: Path, outline: Mapping[str, Tensor], run: RunDescription, settings: Settings, reader: ImageReader | None
) -> int:
    """Compare the weights that the settings ask for with those of the file; return the width of a feature.

    Args:
        path: the file.
        outline: its tensors without numbers.
        run: its description.
        settings: of the run.
        reader: without weights.
    """
    weights = StoredTensors(str(path), outline).below("method.").tensors
    with torch.device("meta"), torch.no_grad():
        method = build_method(run.input_shape, len(run.classes), settings, reader)
        check_sizes(str(path), cast(nn.Module, method).eval(), weights)
        return int(method.features(torch.zeros(1, *run.input_shape)).shape[1])


def _stored_features(folder: Path, run: RunDescription) -> StoredTensors:
    features, about = read_tensors(folder / _FEATURES)
    if about.get("fingerprint") != run.fingerprint:
        raise RunFolderError(
            f"{folder} mixes files of two runs ({_MODEL} and {_FEATURES} disagree). Make the run again."
        )
    return StoredTensors(str(folder / _FEATURES), features)


def _feature_tensors(model: AdaptedModel) -> dict[str, Tensor]:
    return {
        "target": torch.from_numpy(model.target_features).half(),
        "source": torch.from_numpy(model.source.features).half(),
        "source.classes": torch.from_numpy(model.source.classes),
        "source.rows": torch.from_numpy(model.source.rows),
    }


def _model_tensors(model: AdaptedModel, rule: Mapping[str, Tensor]) -> dict[str, Tensor]:
    weights = cast(nn.Module, model.method).state_dict()
    return {
        **{f"method.{name}": value for name, value in weights.items()},
        **{f"rule.{name}": value for name, value in rule.items()},
        "groups.centres": torch.from_numpy(model.groups.centres),
        "absence": torch.from_numpy(model.absence),
        **model.history.tensors(),
        **{f"target.{name}": torch.from_numpy(getattr(model.target, name)) for name in _ANSWERS},
        "target.shares": torch.from_numpy(model.target_shares),
        "target.class_probability": torch.from_numpy(model.target_class_probability),
    }
