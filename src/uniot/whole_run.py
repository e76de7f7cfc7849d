"""A finished run as one network, from what a user has to the answers: what can be written as a graph."""

from __future__ import annotations

from dataclasses import fields
from typing import cast

import torch
from torch import Tensor, nn

from uniot.embeddings.image_reader import ImageReader
from uniot.methods import Decision, UniOTMethod, UniversalMethod
from uniot.model import AdaptedModel
from uniot.universal import Landmarks


class WholeRun(nn.Module):
    """From what a user has to what `AdaptedModel` answers, as one network."""

    centres: Tensor

    def __init__(self, model: AdaptedModel) -> None:
        super().__init__()
        norm = model.settings.input_norm
        if model.reader is not None:
            self.entrance: nn.Module = _Pixels(model.reader, norm)
        else:
            self.entrance = _Scaled(norm) if model.settings.network == "none" else nn.Identity()
        self.backbone = model.method.backbone
        method = model.method
        self._threshold, self._calibration = model.threshold, model.calibration
        self.rule = _Neighbourhoods(method) if isinstance(method, UniversalMethod) else _Transport(model)
        self.register_buffer("centres", torch.from_numpy(model.groups.centres).t().contiguous())

    def forward(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """Nearest class, known or not, confidence, group, probabilities and features."""
        features, shares, known = self.rule(self.backbone(self.entrance(inputs)))
        decision = Decision(shares, known).by_threshold(self._threshold)
        known = decision.known
        nearest = decision.nearest
        group = torch.full_like(nearest, -1)
        if self.centres.shape[1]:
            group = torch.where(known, group, (features @ self.centres).argmax(dim=1))
        probabilities = decision.probabilities(self._calibration)
        return nearest, known, decision.confidence(self._calibration), group, probabilities, features


class _Transport(nn.Module):
    """UniOT's rule: features, shares of the classes, and whether the largest is enough."""

    prototypes: Tensor

    def __init__(self, model: AdaptedModel) -> None:
        super().__init__()
        self._rule = model.rule
        method = cast(UniOTMethod, model.method)
        self.projection = method.projection
        self.register_buffer("prototypes", method.class_prototypes().double().t().contiguous())

    def forward(self, embeddings: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        features = self.projection(embeddings).float()
        # In units of a row's mean mass; in double precision, for cosines are divided by a small number.
        mass = self._rule.log_mass(features.double() @ self.prototypes).exp() * self._rule.n_rows
        return features, mass, mass.max(dim=1).values >= 1 - self._rule.tolerance


class _Neighbourhoods(nn.Module):
    """The rule of UniOT universal, with the target if the run keeps it, else with the landmarks that summarise it."""

    centre: Tensor
    basis: Tensor
    target: Tensor
    smoothed: Tensor
    keys: Tensor
    values: Tensor
    linear: Tensor

    def __init__(self, method: UniversalMethod) -> None:
        super().__init__()
        metric, stored, landmarks = method.learnt(), method.neighbours, method.landmarks
        self._method, self._k = method, None if stored is None else stored.k
        self._has_landmarks = stored is None and landmarks is not None
        self.register_buffer("centre", metric.target_centre)
        self.register_buffer("basis", metric.basis)
        if stored is not None:
            self.register_buffer("target", stored.rows.t().contiguous())
            self.register_buffer("smoothed", stored.smoothed)
        elif landmarks is not None:
            for part in fields(landmarks):
                self.register_buffer(part.name, getattr(landmarks, part.name).float())

    def forward(self, embeddings: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows = _unit((_unit(embeddings.flatten(1).float()) - self.centre) @ self.basis)
        if self._k is not None:
            rows = _unit(self.smoothed[(rows @ self.target).topk(self._k + 1, dim=1).indices].mean(dim=1))
        elif self._has_landmarks:
            rows = Landmarks(self.keys, self.values, self.linear).transform(rows)
        decision = self._method.decide(rows)
        return rows, decision.shares, decision.known


def _unit(rows: Tensor) -> Tensor:
    return nn.functional.normalize(rows, dim=1)


class _Scaled(nn.Module):
    """Rows brought to one norm, as `scaled_rows` does it."""

    def __init__(self, norm: float) -> None:
        super().__init__()
        self._norm = norm

    def forward(self, rows: Tensor) -> Tensor:
        # In double precision the squares of the largest and of the smallest float32 stay in range.
        rows = rows.double()
        length = rows.square().sum(dim=1, keepdim=True).sqrt()
        return (rows * (self._norm / torch.where(length > 0, length, 1))).float()


class _Pixels(nn.Module):
    """The frozen part of a backbone, from pixels on."""

    mean: Tensor
    std: Tensor

    def __init__(self, reader: ImageReader, norm: float) -> None:
        super().__init__()
        self.trunk = reader.split.trunk
        self.scaled = nn.Identity() if reader.fine_tunes else _Scaled(norm)
        self.register_buffer("mean", torch.tensor(reader.preparation.mean).view(3, 1, 1))
        self.register_buffer("std", torch.tensor(reader.preparation.std).view(3, 1, 1))

    def forward(self, pixels: Tensor) -> Tensor:
        # Half precision because that is what the run was trained on: embeddings are kept so.
        embeddings: Tensor = self.trunk((pixels.float() / 255 - self.mean) / self.std).half()
        scaled: Tensor = self.scaled(embeddings.float())
        return scaled
