"""A trained method with the rule that it decides by: predicts, and is saved to and loaded from a run folder."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uniot.answers import AnswerWriter
from uniot.data.batches import generator_for
from uniot.data.samples import Samples
from uniot.discovery import (
    LabelledFeatures,
    NumberOfClasses,
    PrivateGroups,
    SeenTarget,
    absence,
    number_of_private_classes,
    private_groups,
)
from uniot.embeddings.image_reader import ImageReader
from uniot.errors import DataError, RunFolderError, SettingsError
from uniot.methods import Method, UniOTMethod, create_method
from uniot.networks.fine_tuned import FineTuned
from uniot.networks.small_cnn import SmallCNN
from uniot.prediction import Prediction
from uniot.processes import Processes
from uniot.run_folder import read_tensors, write_tensors, write_text
from uniot.settings import Settings
from uniot.training import History
from uniot.transport import UnbalancedPotential

# Samples always go through the networks in blocks of one size, so that an answer does not depend on its company.
_BLOCK_ROWS, _BLOCK_IMAGES, _IMAGE_VALUES = 128, 16, 100_000
# So many labelled samples are enough to see how the classes lie; all of a large source would take long.
_MOST_SOURCE_ROWS = 5000
# So many target samples are enough to count the private classes by.
_MOST_COUNTED_ROWS = 3000
_WEIGHTS, _RULE, _SOURCE_ROWS, _COUNTED_ROWS = 100, 101, 102, 103
_MODEL, _FEATURES, _BACKBONE = "model.safetensors", "features.safetensors", "backbone.safetensors"


def build_method(
    input_shape: Sequence[int], n_classes: int, settings: Settings, reader: ImageReader | None = None
) -> Method:
    """The networks with the weights that the seed decides; torch's own random state stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(int(generator_for(settings.seed, _WEIGHTS).initial_seed()))
        if settings.backbone == "small-cnn":
            backbone = SmallCNN()
            return create_method(settings, backbone.out_features, n_classes, backbone)
        if reader is not None and reader.fine_tunes:
            tail = FineTuned(reader.tail, settings.input_norm, reader.settings.accumulate)
            return create_method(settings, reader.width, n_classes, tail)
        return create_method(settings, int(np.prod(input_shape)), n_classes)


def carry_over(
    method: Method, start: AdaptedModel, classes: np.ndarray, source: Samples, source_classes: Tensor
) -> None:
    """Gives a new UniOT the weights that another run of UniOT ended with.

    Classes that the run had keep their prototype and their mass. A new one begins at the mean direction of its
    samples, with an even share. The queue is filled anew: the target may be another.

    Args:
        method: changed in place.
        start: what the other run ended with.
        classes: of the new run, sorted.
        source: labelled samples of the new run.
        source_classes: (n,), class index of each.
    """
    if not isinstance(method, UniOTMethod) or not isinstance(start.method, UniOTMethod):
        raise SettingsError(
            "going on from another run is for UniOT alone. Leave `start` out, or set method to 'uniot'."
        )
    weights = dict(start.method.state_dict())
    old_prototypes, old_mass = weights.pop("classes.weight"), weights.pop("class_mass")
    kept = {
        name: value
        for name, value in weights.items()
        if not name.startswith("queue.") and name != "potential" and value.shape == method.state_dict()[name].shape
    }
    method.load_state_dict(kept, strict=False)
    place = {str(name): index for index, name in enumerate(start.classes.tolist())}
    prototypes, mass = method.classes.weight.detach().clone(), torch.full_like(method.class_mass, 1 / len(classes))
    for index, name in enumerate(classes.tolist()):
        if str(name) in place:
            prototypes[index], mass[index] = old_prototypes[place[str(name)]], old_mass[place[str(name)]]
            continue
        features, _ = _features_of_samples(method, source, torch.nonzero(source_classes == index).flatten())
        prototypes[index] = F.normalize(features.mean(dim=0), dim=0)
    with torch.no_grad():
        method.classes.weight.copy_(prototypes)
        method.class_mass.copy_(mass / mass.sum())


@dataclass(frozen=True)
class AdaptedModel:
    """What a run ends with.

    Attributes:
        method: the trained networks, with the rule that decides about old and new samples alike.
        groups: the private groups of the target.
        absence: from 0 to 1, how surely each source class is absent from the target, (c,).
        classes: source classes, text or integers, (c,).
        unknown: what an unknown sample is called.
        settings: resolved settings.
        input_shape: of one sample.
        target: the answers for the target that was fitted.
        target_features: (n, feature_size), float32.
        source: features and classes of the labelled samples, or of some of them, drawn evenly from the classes.
        history: numbers step by step.
        fingerprint: of data and settings.
        reader: what makes inputs from images; None where the run was made from arrays.
    """

    method: Method
    groups: PrivateGroups
    absence: np.ndarray
    classes: np.ndarray
    unknown: str | int
    settings: Settings
    input_shape: tuple[int, ...]
    target: Prediction
    target_features: np.ndarray
    source: LabelledFeatures
    history: History
    fingerprint: str
    reader: ImageReader | None = None

    @classmethod
    def conclude(
        cls,
        method: Method,
        source: Samples,
        source_classes: Tensor,
        target: Samples,
        *,
        classes: np.ndarray,
        unknown: str | int,
        settings: Settings,
        history: History,
        fingerprint: str,
        reader: ImageReader | None = None,
        processes: Processes | None = None,
    ) -> AdaptedModel:
        """Fixes the rule on the whole target and groups what it leaves unknown.

        Where there are several processes, each looks at its own part of the target, and all end with the same answer.
        """
        processes = processes or Processes()
        own, shape = _features_of_samples(method, target, _shared(torch.arange(len(target)), processes))
        seen = _even_rows(source_classes, _MOST_SOURCE_ROWS, generator_for(settings.seed, _SOURCE_ROWS))
        own_source, _ = _features_of_samples(method, source, _shared(seen, processes))
        counted = _some_rows(len(target), _MOST_COUNTED_ROWS, generator_for(settings.seed, _COUNTED_ROWS))
        embeddings = processes.gather_parts(_embeddings(method, target, _shared(counted, processes)), len(counted))
        cast(nn.Module, method).cpu()
        source_features = _unit(processes.gather_parts(own_source, len(seen)))
        labelled = LabelledFeatures(source_features, source_classes[seen].numpy(), seen.numpy())
        method.conclude(own, generator_for(settings.seed, _RULE), processes if processes.count > 1 else None)
        decision = method.decide(own)
        features = _unit(processes.gather_parts(own, len(target)))
        nearest = processes.gather_parts(decision.nearest, len(target)).numpy()
        known = processes.gather_parts(decision.known.byte(), len(target)).bool().numpy()
        confidence = processes.gather_parts(decision.confidence, len(target)).numpy()
        number: int | NumberOfClasses | None = settings.n_private_classes
        if number is None:
            rows = counted.numpy()
            clusters = method.cluster_prototypes()
            prototypes = None if clusters is None else (features[rows] @ clusters.numpy().T).argmax(axis=1)
            number = number_of_private_classes(
                SeenTarget(embeddings.numpy(), prototypes, known[rows], nearest[rows]), seed=settings.seed
            )
        groups = private_groups(features[~known], number, seed=settings.seed)
        group = np.full(len(known), -1, dtype=np.int64)
        group[~known] = groups.group
        answers = Prediction(nearest, known, confidence, group, groups.confidence(features, group))
        return cls(
            method=method,
            groups=groups,
            absence=absence(answers, len(classes)),
            classes=classes,
            unknown=unknown,
            settings=settings,
            input_shape=shape,
            target=answers,
            target_features=features,
            source=labelled,
            history=history,
            fingerprint=fingerprint,
            reader=reader,
        )

    def predict(self, inputs: Tensor) -> Prediction:
        """Answers for samples, fitted or new, each on its own. An unknown one gets the nearest private group."""
        raw = _features(self.method, inputs)
        decision, features = self.method.decide(raw), _unit(raw)
        known = decision.known.numpy()
        group = np.full(len(known), -1, dtype=np.int64)
        if self.groups.n_groups:
            group[~known] = self.groups.nearest(features[~known])
        return Prediction(
            nearest=decision.nearest.numpy(),
            known=known,
            confidence=decision.confidence.numpy(),
            group=group,
            group_confidence=self.groups.confidence(features, group),
        )

    def features(self, inputs: Tensor) -> np.ndarray:
        """Adapted features of unit norm, (n, feature_size)."""
        return _unit(_features(self.method, inputs))

    def probabilities(self, inputs: Tensor) -> np.ndarray:
        """(n, c + 1): the classes in order, then unknown. The largest entry is what `predict` says."""
        return np.asarray(self.method.decide(_features(self.method, inputs)).probabilities().numpy())

    @cached_property
    def class_centres(self) -> np.ndarray:
        """Where the classes are among the features, (c, d), unit rows: prototypes, or means of the labelled samples."""
        prototypes = self.method.class_prototypes()
        if prototypes is not None:
            return _unit(prototypes.float())
        sums = np.zeros((len(self.classes), self.source.features.shape[1]), dtype=np.float32)
        np.add.at(sums, self.source.classes, self.source.features)
        return _unit(torch.from_numpy(sums))

    @property
    def rule(self) -> UnbalancedPotential:
        """The solved transport of the whole target, where the method is UniOT."""
        solved = self.method.solved if isinstance(self.method, UniOTMethod) else None
        if solved is None:
            raise DataError(
                f"this run was made with {self.settings.method!r}, which has no transport. Give one of UniOT."
            )
        return solved

    def labels(self, prediction: Prediction) -> np.ndarray:
        """Class names, and the unknown label."""
        return prediction.labels(self.classes, self.unknown)

    def save(self, folder: Path, names: Sequence[str] | None = None, inputs: dict[str, Any] | None = None) -> None:
        """Writes the run folder; `model.safetensors` comes last, so that where it is, the rest is.

        Args:
            folder: made if it does not exist.
            names: what the samples of the target are called; numbers if None.
            inputs: where the data came from, for settings.toml.

        Raises:
            RunFolderError: the folder holds another run, whose files would be mixed with these.
        """
        if self.is_saved(folder) and read_tensors(folder / _MODEL)[1]["fingerprint"] != self.fingerprint:
            raise RunFolderError(f"{folder} holds another run. Give another folder, or remove that one first.")
        images = None if self.reader is None else self.reader.settings
        write_text(folder / "settings.toml", self.settings.to_toml(images, **({"inputs": inputs} if inputs else {})))
        write_text(folder / "history.csv", self.history.to_csv())
        with AnswerWriter(folder / "predictions.csv", self.classes, self.unknown) as answers:
            answers.write(names, self.target)
        features = {
            "target": torch.from_numpy(self.target_features).half(),
            "source": torch.from_numpy(self.source.features).half(),
            "source.classes": torch.from_numpy(self.source.classes),
            "source.rows": torch.from_numpy(self.source.rows),
        }
        write_tensors(folder / _FEATURES, features, {"fingerprint": self.fingerprint})
        if self.reader is not None:
            self.reader.save(folder / _BACKBONE)
        rule_tensors, rule_about = self.method.rule_state()
        weights = cast(nn.Module, self.method).state_dict()
        tensors = {f"method.{name}": value for name, value in weights.items()}
        tensors |= {f"rule.{name}": value for name, value in rule_tensors.items()}
        tensors |= {"groups.centres": torch.from_numpy(self.groups.centres), "absence": torch.from_numpy(self.absence)}
        tensors |= self.history.tensors()
        for name in _ANSWERS:
            tensors[f"target.{name}"] = torch.from_numpy(getattr(self.target, name))
        about = {
            "classes": self.classes.tolist(),
            "unknown": self.unknown,
            "settings": self.settings.model_dump(),
            "input_shape": self.input_shape,
            "rule": rule_about,
            "columns": self.history.columns,
            "number": asdict(self.groups.number),
            "fingerprint": self.fingerprint,
            "from_images": self.reader is not None,
        }
        write_tensors(folder / _MODEL, tensors, about)

    @staticmethod
    def is_saved(folder: Path) -> bool:
        """Whether the folder holds a finished run."""
        return (folder / _MODEL).is_file()

    @classmethod
    def load(cls, folder: Path) -> AdaptedModel:
        """Reads a finished run."""
        if not folder.is_dir():
            raise RunFolderError(f"{folder} is not a folder. Give the folder of a run made with `uniot adapt`.")
        if not cls.is_saved(folder) and (folder / "checkpoints").exists():
            raise RunFolderError(
                f"{folder} holds a run that has not finished. Run the command that began it again; it goes on."
            )
        tensors, about = read_tensors(folder / _MODEL)
        features, about_features = read_tensors(folder / _FEATURES)
        if about_features["fingerprint"] != about["fingerprint"]:
            raise RunFolderError(
                f"{folder} mixes files of two runs ({_MODEL} and {_FEATURES} disagree). Make the run again."
            )
        settings = Settings.checked(**cast(dict[str, Any], about["settings"]))
        classes = np.array(about["classes"])
        shape = tuple(cast(list[int], about["input_shape"]))
        if about["from_images"] and not (folder / _BACKBONE).is_file():
            raise RunFolderError(f"{folder / _BACKBONE} is missing: the run was made from images. Make it again.")
        reader = ImageReader.load(folder / _BACKBONE) if about["from_images"] else None
        method = build_method(shape, len(classes), settings, reader)
        module = cast(nn.Module, method)
        module.load_state_dict(_below("method.", tensors))
        module.eval()
        method.load_rule_state(_below("rule.", tensors), cast(dict[str, Any], about["rule"]))
        target = Prediction(**{name: tensors[f"target.{name}"].numpy() for name in _ANSWERS})
        return cls(
            method=method,
            groups=PrivateGroups(
                target.group[~target.known],
                tensors["groups.centres"].numpy(),
                NumberOfClasses.of(cast(dict[str, Any], about["number"])),
            ),
            absence=tensors["absence"].numpy(),
            classes=classes,
            unknown=cast("str | int", about["unknown"]),
            settings=settings,
            input_shape=shape,
            target=target,
            target_features=features["target"].float().numpy(),
            source=LabelledFeatures(
                features["source"].float().numpy(), features["source.classes"].numpy(), features["source.rows"].numpy()
            ),
            history=History.of(cast(list[str], about["columns"]), tensors),
            fingerprint=cast(str, about["fingerprint"]),
            reader=reader,
        )


_ANSWERS = tuple(part.name for part in fields(Prediction))


def _shared(ids: Tensor, processes: Processes) -> Tensor:
    """The part of the ids that this process looks at."""
    return ids[processes.part(len(ids))]


def _even_rows(classes: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """Rows in order, all of them where they are few; otherwise drawn, as many of each class as there are."""
    if len(classes) <= most:
        return torch.arange(len(classes))
    drawn = torch.randperm(len(classes), generator=generator)
    # The place of each drawn row among the drawn ones of its class; the smallest places are the evenest choice.
    by_class = torch.argsort(classes[drawn], stable=True)
    sizes = torch.bincount(classes)
    place = torch.arange(len(classes)) - torch.repeat_interleave(sizes.cumsum(0) - sizes, sizes)
    return drawn[by_class[torch.argsort(place, stable=True)[:most]]].sort().values


def _some_rows(n_rows: int, most: int, generator: torch.Generator) -> Tensor:
    """Rows in order, all of them or as many as `most`, drawn."""
    return torch.randperm(n_rows, generator=generator)[:most].sort().values


@torch.no_grad()
def _embeddings(method: Method, samples: Samples, ids: Tensor) -> Tensor:
    """Unit rows of the space that the projection begins in, (n, d)."""
    device = _device(method)
    blocks = [method.backbone(samples.batch(block).to(device)).flatten(1) for block in ids.split(_BLOCK_IMAGES)]
    return F.normalize(torch.cat(blocks).float(), dim=1).cpu()


def _features(method: Method, inputs: Tensor) -> Tensor:
    size = _block_size(inputs.shape[1:])
    return torch.cat([_features_of_block(method, block, size) for block in inputs.split(size)])


def _features_of_samples(method: Method, samples: Samples, ids: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """Features of the samples at `ids`, and the shape of one sample."""
    shape = samples.batch(torch.zeros(1, dtype=torch.long)).shape[1:]
    size = _block_size(shape)
    features = [_features_of_block(method, samples.batch(block), size) for block in ids.split(size)]
    return torch.cat(features), tuple(int(size) for size in shape)


def _block_size(shape: Sequence[int]) -> int:
    return _BLOCK_ROWS if math.prod(shape) < _IMAGE_VALUES else _BLOCK_IMAGES


def _device(method: Method) -> torch.device:
    return next(cast(nn.Module, method).parameters()).device


@torch.no_grad()
def _features_of_block(method: Method, block: Tensor, size: int) -> Tensor:
    cast(nn.Module, method).eval()
    missing = size - len(block)
    padded = torch.cat([block, block.new_zeros(missing, *block.shape[1:])]) if missing else block
    features: Tensor = method.features(padded.to(_device(method)))[: len(block)]
    return features.float().cpu()


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors whose name begins so, without the beginning."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _unit(rows: Tensor) -> np.ndarray:
    """Rows of unit norm; those that have it already stay as they are, to the last bit."""
    length = rows.norm(dim=1, keepdim=True)
    near_one = (length - 1).abs() < 1e-5
    return np.asarray(torch.where(near_one, rows, rows / length.clamp_min(1e-12)).numpy())
