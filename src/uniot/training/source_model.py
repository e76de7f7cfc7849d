"""Train a classifier on the source alone, save it, and adapt it to a target later without the source."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Self

from uniot.config import Settings
from uniot.data_quality.feature_values import feature_warnings
from uniot.errors import DataError, RunFolderError, SettingsError
from uniot.images.backbones import ImageReader
from uniot.io.arrays import as_inputs
from uniot.io.labels import as_labels, class_names_problem
from uniot.io.tensor_files import StoredTensors, describe_tensors, read_tensors, write_tensors
from uniot.methods.registry import METHODS, check_method, method_info, resolved_settings
from uniot.methods.source_free import SourceFreeMethod, as_source_free
from uniot.training.domains import Domains, domains_from_arrays, inputs_array
from uniot.training.fit import OnStep, build_method
from uniot.training.loop import train
from uniot.training.samples import ScaledRows, TensorSamples

_KIND = "source-model"
_WEIGHTS, _BACKBONE = "method.", "backbone."
_WRITERS = "`uniot train-source`, or `SourceModel.save` in Python,"


@dataclass(frozen=True)
class SourceModel:
    """A classifier that was trained on a source, without any of its samples.

    Attributes:
        classes: classes of the source, sorted, (n_classes,).
        class_sizes: number of labelled samples per class, (n_classes,).
        class_means: mean input per class, (n_classes, n_features), which stands for the source in maps and reports.
        weights: of the networks, by name.
        settings: resolved settings of its training.
        reader: backbone that the embeddings of images came from; None for other embeddings.
        feature_names: names of the features, (n_features,); None if they have none.
    """

    classes: np.ndarray
    class_sizes: np.ndarray
    class_means: Tensor
    weights: Mapping[str, Tensor] = field(repr=False)
    settings: Settings = field(repr=False)
    reader: ImageReader | None = field(default=None, repr=False)
    feature_names: tuple[str, ...] | None = field(default=None, repr=False)

    def save(self, path: str | Path) -> None:
        """Write the model to a safetensors file: weights, class names, class sizes and class means, no sample."""
        tensors = {f"{_WEIGHTS}{name}": tensor for name, tensor in self.weights.items()}
        if self.reader is not None:
            trunk = self.reader.split.trunk.state_dict()
            tensors |= {f"{_BACKBONE}{name}": tensor for name, tensor in trunk.items()}
        tensors |= {"class_means": self.class_means, "class_sizes": torch.from_numpy(self.class_sizes)}
        names = {} if self.feature_names is None else {"feature_names": list(self.feature_names)}
        write_tensors(Path(path), tensors, {"kind": _KIND, **self._description(), **names})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the model in a file, which may come from anybody: nothing in it is executed.

        Sizes are compared with those that the settings require before anything is allocated.

        Raises:
            RunFolderError: the file is missing, damaged, or holds something else.
        """
        path = Path(path)
        if not path.is_file():
            raise RunFolderError(f"{path} is not a file. Give one that {_WRITERS} wrote.")
        outline, about = describe_tensors(path)
        if about.get("kind") != _KIND:
            raise RunFolderError(f"{path} is not a source model. Give a file that {_WRITERS} wrote.")
        try:
            classes, settings = _checked_classes(about["classes"]), Settings.checked(**about["settings"])
            width = outline["class_means"].shape[1]
            networks = StoredTensors(str(path), outline).below(_WEIGHTS).tensors
            check_source_free(settings)
            with torch.device("meta"):
                _untrained(width, len(classes), settings).load_source(networks)
            names = _checked_names(about.get("feature_names"), width)
            reader = None
            if "reader" in about:
                trunk = StoredTensors(str(path), outline).below(_BACKBONE).tensors
                reader = ImageReader.described(path, trunk, about["reader"])
                _check_reader(reader, width)
        except (AttributeError, KeyError, IndexError, OverflowError, RuntimeError, TypeError, ValueError) as error:
            raise RunFolderError(
                f"{path} cannot be read as a source model ({type(error).__name__}: {str(error)[:200]}). Train it again."
            ) from None
        except (DataError, SettingsError) as error:
            raise RunFolderError(f"{path} cannot be read as a source model ({error}). Train it again.") from None
        stored = StoredTensors(str(path), read_tensors(path)[0])
        stored.check_finite()
        sizes = stored.take("class_sizes", (len(classes),), torch.int64, low=1)
        means = stored.take("class_means", (len(classes), None), torch.float32)
        reader = None if reader is None else reader.with_weights(stored.below(_BACKBONE))
        return cls(classes, sizes.numpy(), means, dict(stored.below(_WEIGHTS).tensors), settings, reader, names)

    def domains(
        self, X_target: Any, settings: Settings, *, feature_names: Sequence[str] | np.ndarray | None = None
    ) -> Domains:
        """Return a target with the class means in place of a source.

        Args:
            X_target: target embeddings, (n_target, n_features).
            settings: of the fit.
            feature_names: names of the features, (n_features,); they are numbered in warnings if None.

        Raises:
            DataError: the embeddings are of another width than those of the source.
            SettingsError: the fit scales embeddings to another norm than the source model did.
        """
        if settings.input_norm != self.settings.input_norm:
            raise SettingsError(
                f"input_norm is {settings.input_norm:g}, and the source model was trained with "
                f"{self.settings.input_norm:g}. Give the same one."
            )
        rows = as_inputs(X_target, "X_target")
        target = inputs_array(rows, "X_target", settings)
        if target.shape[1:] != self.class_means.shape[1:]:
            raise DataError(
                f"X_target has {target.shape[1]} features, and the source model was trained on "
                f"{self.class_means.shape[1]}. Give embeddings of the model that made the source's."
            )
        digest = hashlib.sha256(json.dumps(self._description()).encode())
        for tensor in (self.class_means, *(self.weights[name] for name in sorted(self.weights)), target):
            digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return Domains(
            TensorSamples(self.class_means),
            self.classes,
            ScaledRows(rows, settings.input_norm),
            np.zeros(len(self.classes), dtype=bool),
            digest.hexdigest(),
            self.reader,
            class_sizes=self.class_sizes,
            feature_warnings=feature_warnings({"target": rows}, feature_names),
            feature_names=None if feature_names is None else tuple(map(str, feature_names)),
        )

    def _description(self) -> dict[str, object]:
        about = {"classes": self.classes.tolist(), "settings": self.settings.model_dump(mode="json")}
        return about if self.reader is None else about | {"reader": self.reader.description}


def _checked_classes(names: Any) -> np.ndarray:
    problem = class_names_problem(names)
    if problem is None and names != sorted(names):
        problem = "has class names that are not in order"
    if problem is not None or len(names) < 2:
        raise DataError(f"it {problem or 'has fewer than two classes'}")
    return as_labels(names, "classes")


def _checked_names(names: Any, width: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    if not isinstance(names, list) or len(names) != width or not all(isinstance(name, str) for name in names):
        raise ValueError(f"feature_names are not {width} texts")
    return tuple(names)


def _check_reader(reader: ImageReader, width: int) -> None:
    if reader.fine_tunes or reader.width != width:
        raise DataError(f"its network makes embeddings of {reader.width} numbers, and its class means have {width}")


def _untrained(width: int, n_classes: int, settings: Settings) -> SourceFreeMethod:
    return as_source_free(build_method((width,), n_classes, resolved_settings(settings, 2)))


def train_source(
    X: Any,
    y: Any,
    settings: Settings,
    *,
    reader: ImageReader | None = None,
    on_step: OnStep | None = None,
    feature_names: Sequence[str] | np.ndarray | None = None,
    warn: Callable[[str], None] | None = None,
) -> SourceModel:
    """Train the classifier of a source-free method on the source alone.

    Args:
        X: source embeddings, (n_source, n_features).
        y: source labels, (n_source,), text or integers.
        settings: of the method; `source_share` does not act here.
        reader: backbone that the embeddings of images came from; it becomes a part of the model.
        on_step: called with step, number of steps and the numbers of the step.
        feature_names: names of the features, (n_features,), for warnings; they are numbered if None.
        warn: called with each warning about the data before the training begins.

    Raises:
        DataError: an array cannot be used, or there is a single class.
        SettingsError: the method is not source-free.
    """
    check_source_free(settings)
    # The first stage does not read the target, which is why the source may stand in its place.
    domains = domains_from_arrays(X, y, X, settings, feature_names=feature_names)
    domains.check()
    if warn is not None:
        for words in domains.warnings("unknown"):
            warn(words)
    options = settings.method_options | {"source_share": 1.0}
    settings = resolved_settings(settings.model_copy(update={"method_options": options}), len(domains.target))
    classes, index, sizes = np.unique(domains.labels, return_inverse=True, return_counts=True)
    inputs = domains.source.batch(torch.arange(len(index)))
    method = build_method(inputs.shape[1:], len(classes), settings)
    source_classes = torch.from_numpy(index.astype(np.int64))
    steps = settings.steps or 0
    train(
        method,
        domains.source,
        source_classes,
        domains.target,
        settings,
        on_step=None if on_step is None else lambda step, row: on_step(step, steps, row),
    )
    sums = torch.zeros(len(classes), inputs.shape[1]).index_add_(0, source_classes, inputs)
    weights = as_source_free(method.cpu()).source_weights()
    means = sums / torch.from_numpy(sizes)[:, None]
    reader = None if reader is None else reader.without_path()
    return SourceModel(classes, sizes.astype(np.int64), means, weights, settings, reader, domains.feature_names)


def check_source_free(settings: Settings) -> None:
    """Raise SettingsError if the method cannot be fitted without the source, or something is trained on images."""
    check_method(settings)
    if not method_info(settings.method).is_source_free:
        able = ", ".join(name for name, info in METHODS.items() if info.is_source_free)
        raise SettingsError(
            f"{settings.method} needs the labelled samples when it adapts. Methods that adapt a source model are "
            f"{able}."
        )
    if settings.network != "none":
        raise SettingsError("a source model is trained on embeddings. Leave out network, or fit on both collections.")
