"""A trained method with the rule that it decides by: predicts, and is saved to and loaded from a run folder."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from uniot.data.batches import generator_for
from uniot.discovery import PrivateGroups, private_groups
from uniot.errors import RunFolderError
from uniot.methods import UniOTMethod
from uniot.networks.small_cnn import SmallCNN
from uniot.prediction import Prediction
from uniot.run_folder import read_tensors, write_tensors, write_text
from uniot.settings import Settings
from uniot.training import History
from uniot.transport import UnbalancedPotential

# Rows are always projected in blocks of one size, so that a row's answer does not depend on its company.
_BLOCK_ROWS = 128
_RULE_TOLERANCE = 1e-9
_WEIGHTS, _RULE = 100, 101
_MODEL, _FEATURES = "model.safetensors", "features.safetensors"


def build_method(input_shape: Sequence[int], n_classes: int, settings: Settings) -> UniOTMethod:
    """The networks with the weights that the seed decides; torch's own random state stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(int(generator_for(settings.seed, _WEIGHTS).initial_seed()))
        if settings.backbone == "small-cnn":
            backbone = SmallCNN()
            return UniOTMethod(backbone.out_features, n_classes, settings, backbone)
        return UniOTMethod(int(np.prod(input_shape)), n_classes, settings)


@dataclass(frozen=True)
class AdaptedModel:
    """What a run ends with.

    Attributes:
        method: the trained networks.
        rule: the solved transport of the whole target, which decides about old and new samples alike.
        groups: the private groups of the target.
        classes: source classes, text or integers, (c,).
        unknown: what an unknown sample is called.
        settings: resolved settings.
        input_shape: of one sample.
        target: the answers for the target that was fitted.
        target_features: (n, feature_size), float32.
        history: numbers step by step.
        fingerprint: of data and settings.
    """

    method: UniOTMethod
    rule: UnbalancedPotential
    groups: PrivateGroups
    classes: np.ndarray
    unknown: str | int
    settings: Settings
    input_shape: tuple[int, ...]
    target: Prediction
    target_features: np.ndarray
    history: History
    fingerprint: str

    @classmethod
    def conclude(
        cls,
        method: UniOTMethod,
        inputs: Tensor,
        *,
        classes: np.ndarray,
        unknown: str | int,
        settings: Settings,
        history: History,
        fingerprint: str,
    ) -> AdaptedModel:
        """Solves the test problem of the whole target and groups what it leaves unknown.

        Paper: the testing phase; the class is the row's largest entry, and there is no column test.
        """
        features = _features(method, inputs)
        cosines = _cosines(method, features)
        rule = method.transport(cosines, None, generator_for(settings.seed, _RULE), _RULE_TOLERANCE)
        assignment = rule.assign(cosines)
        known = assignment.known.numpy()
        groups = private_groups(features.numpy()[~known], settings.n_private_classes, seed=settings.seed)
        group = np.full(len(known), -1, dtype=np.int64)
        group[~known] = groups.group
        target = Prediction(assignment.nearest.numpy(), known, _confidence(assignment.confidence, rule), group)
        shape = tuple(int(size) for size in inputs.shape[1:])
        return cls(
            method, rule, groups, classes, unknown, settings, shape, target, features.numpy(), history, fingerprint
        )

    def predict(self, inputs: Tensor) -> Prediction:
        """Answers for samples, fitted or new, each on its own. An unknown one gets the nearest private group."""
        features = _features(self.method, inputs)
        assignment = self.rule.assign(_cosines(self.method, features))
        known = assignment.known.numpy()
        group = np.full(len(known), -1, dtype=np.int64)
        if self.groups.n_groups:
            group[~known] = self.groups.nearest(features.numpy()[~known])
        return Prediction(assignment.nearest.numpy(), known, _confidence(assignment.confidence, self.rule), group)

    def features(self, inputs: Tensor) -> np.ndarray:
        """Adapted features of unit norm, (n, feature_size)."""
        return np.asarray(_features(self.method, inputs).numpy())

    def probabilities(self, inputs: Tensor) -> np.ndarray:
        """(n, c + 1): the classes in order, then unknown. The largest entry is what `predict` says.

        Each class counts the mass that the plan gives it, in units of a row's mean mass; unknown counts one such
        unit, for that is what the rule compares with.
        """
        cosines = _cosines(self.method, _features(self.method, inputs))
        mass = self.rule.log_mass(cosines).exp() * self.rule.n_rows
        assignment = self.rule.assign(cosines)
        # A known sample on the border may lie a rounding below it; its class must not lose to unknown by that.
        row = torch.arange(len(mass))
        best = mass[row, assignment.nearest]
        mass[row, assignment.nearest] = torch.where(assignment.known, best.clamp_min(1), best.clamp_max(1 - 1e-9))
        weights = torch.cat([mass, torch.ones(len(mass), 1, dtype=mass.dtype)], dim=1)
        return np.asarray((weights / weights.sum(dim=1, keepdim=True)).numpy())

    def labels(self, prediction: Prediction) -> np.ndarray:
        """Class names, and the unknown label."""
        return prediction.labels(self.classes, self.unknown)

    def save(self, folder: Path, ids: Sequence[str] | None = None, inputs: dict[str, Any] | None = None) -> None:
        """Writes the run folder; `model.safetensors` comes last, so that where it is, the rest is."""
        write_text(folder / "settings.toml", self.settings.to_toml(**({"inputs": inputs} if inputs else {})))
        write_text(folder / "history.csv", self.history.to_csv())
        write_text(folder / "predictions.csv", predictions_csv(self, self.target, ids))
        features = torch.from_numpy(self.target_features).half()
        write_tensors(folder / _FEATURES, {"target": features}, {"fingerprint": self.fingerprint})
        tensors = {f"method.{name}": value for name, value in self.method.state_dict().items()}
        tensors |= {
            "rule.class_potential": self.rule.class_potential,
            "rule.class_confidence": self.rule.class_confidence,
            "groups.centres": torch.from_numpy(self.groups.centres),
            "history": torch.tensor(self.history.rows, dtype=torch.float64),
        }
        for name in ("nearest", "known", "confidence", "group"):
            tensors[f"target.{name}"] = torch.from_numpy(getattr(self.target, name))
        about = {
            "classes": self.classes.tolist(),
            "unknown": self.unknown,
            "settings": self.settings.model_dump(),
            "input_shape": self.input_shape,
            "rule": {
                "total_mass": self.rule.total_mass,
                "n_rows": self.rule.n_rows,
                "epsilon": self.rule.epsilon,
                "marginal_penalty": self.rule.marginal_penalty,
                "tolerance": self.rule.tolerance,
                "converged": self.rule.converged,
                "passes": self.rule.passes,
            },
            "columns": self.history.columns,
            "fingerprint": self.fingerprint,
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
        method = build_method(shape, len(classes), settings)
        start = len("method.")
        method.load_state_dict({k[start:]: v for k, v in tensors.items() if k.startswith("method.")})
        method.eval()
        rule = UnbalancedPotential(
            class_potential=tensors["rule.class_potential"],
            class_confidence=tensors["rule.class_confidence"],
            **cast(dict[str, Any], about["rule"]),
        )
        target = Prediction(
            *(tensors[f"target.{name}"].numpy() for name in ("nearest", "known", "confidence", "group"))
        )
        return cls(
            method=method,
            rule=rule,
            groups=PrivateGroups(target.group[~target.known], tensors["groups.centres"].numpy()),
            classes=classes,
            unknown=cast("str | int", about["unknown"]),
            settings=settings,
            input_shape=shape,
            target=target,
            target_features=features["target"].float().numpy(),
            history=History(cast(list[str], about["columns"]), tensors["history"].tolist()),
            fingerprint=cast(str, about["fingerprint"]),
        )


def predictions_csv(model: AdaptedModel, prediction: Prediction, ids: Sequence[str] | None = None) -> str:
    """One line per sample: path, label, known, confidence, nearest_class, group; group is empty where known."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["path", "label", "known", "confidence", "nearest_class", "group"])
    names = ids if ids is not None else [str(row) for row in range(len(prediction))]
    labels = model.labels(prediction)
    for row, name in enumerate(names):
        group = "" if prediction.group[row] < 0 else int(prediction.group[row])
        nearest = model.classes[prediction.nearest[row]]
        known = str(bool(prediction.known[row])).lower()
        writer.writerow([name, labels[row], known, f"{prediction.confidence[row]:.6f}", nearest, group])
    return text.getvalue()


def sample_names(folder: Path) -> list[str]:
    """Names of the target's samples, from a run's predictions.csv."""
    try:
        with (folder / "predictions.csv").open(encoding="utf-8", newline="") as file:
            return [row["path"] for row in csv.DictReader(file)]
    except (OSError, KeyError, UnicodeDecodeError, csv.Error) as error:
        raise RunFolderError(f"{folder / 'predictions.csv'} cannot be read ({error}). Make the run again.") from None


@torch.no_grad()
def _features(method: UniOTMethod, inputs: Tensor) -> Tensor:
    method.eval()
    features = []
    for block in inputs.split(_BLOCK_ROWS):
        missing = _BLOCK_ROWS - len(block)
        padded = torch.cat([block, block.new_zeros(missing, *block.shape[1:])]) if missing else block
        features.append(method.features(padded)[: len(block)])
    return torch.cat(features)


@torch.no_grad()
def _cosines(method: UniOTMethod, features: Tensor) -> Tensor:
    return features.double() @ method.classes.weight.double().t()


def _confidence(mass: Tensor, rule: UnbalancedPotential) -> np.ndarray:
    """From a row's largest mass to 0…1, one half where it equals the mean mass."""
    ratio = mass.double() * rule.n_rows
    return np.asarray((ratio / (1 + ratio)).numpy())
