"""The fitted state of UniNCM, and how it is stored."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from uniot.errors import RunFolderError
from uniot.io.tensor_files import MAKE_AGAIN, StoredTensors
from uniot.methods.decision import Decision
from uniot.methods.fitted import StoredTarget
from uniot.methods.unincm.named import NamedClasses
from uniot.methods.unincm.rejection import LEAST_LEVEL, Rejection, class_ratios
from uniot.methods.unincm.space import Metric
from uniot.neighbours import LEAST_SAMPLES, Landmarks, Neighbours

# If the rule calls a sample known, the odds of the named classes are at most this part of the largest odds by the rule.
_BEHIND = 0.5
# A cosine may exceed one by rounding.
_ONE = 1 + 1e-6
_SCALARS = ("level", "similarity_prior", "membership_prior", "similarity_weight", "private_mean")


@dataclass(frozen=True)
class UniNCMFit:
    """The parts of UniNCM that are fitted to both domains.

    Attributes:
        metric: the space, and the class means in it.
        rejection: the rule for the classes of the source; None before it is fitted, or if the source has no class.
        neighbours: the target in that space; None if it is not stored or not smoothed.
        landmarks: means of several target samples, which replace a target that is not stored.
        named: the rule for classes that people named in the target; None if there are none. If there are, the length of
            a transformed row is the odds that it is of one of them; its direction is the same as without them.
    """

    metric: Metric
    rejection: Rejection | None = None
    neighbours: Neighbours | None = None
    landmarks: Landmarks | None = None
    named: NamedClasses | None = None
    _named_prototypes: Tensor = field(init=False, repr=False)
    _order: Tensor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Computed here, because an exported graph cannot select by a mask.
        from_target = self.metric.from_target
        object.__setattr__(self, "_named_prototypes", self.metric.prototypes[from_target])
        object.__setattr__(self, "_order", from_target.byte().argsort(stable=True).argsort())

    @classmethod
    def read(cls, stored: StoredTensors, in_features: int, n_classes: int) -> UniNCMFit:
        """Return the stored fit; raises RunFolderError if it is damaged."""
        metric = Metric.read(stored.below("metric."), in_features, n_classes)
        width, n_named = metric.basis.shape[1], int(metric.from_target.sum())
        rule, named = stored.below("rejection."), stored.below("named.")
        rejection = _read_rejection(rule, width) if rule.tensors else None
        n_rejection = 0 if rejection is None else len(rejection.presence)
        if n_rejection != n_classes - n_named or bool(named.tensors) != (n_named > 0):
            raise RunFolderError(f"{stored.where} does not have one rejection rule per class. {MAKE_AGAIN}")
        neighbours, landmarks = stored.below("neighbours."), stored.below("landmarks.")
        return cls(
            metric,
            rejection,
            Neighbours.read(neighbours, width) if neighbours.tensors else None,
            Landmarks.read(landmarks, width) if landmarks.tensors else None,
            NamedClasses.read(named, in_features) if named.tensors else None,
        )

    def tensors(self) -> dict[str, Tensor]:
        """Return what a run folder stores, by name."""
        parts = {"metric": vars(self.metric)}
        if self.rejection is not None:
            parts["rejection"] = vars(self.rejection)
        if self.neighbours is not None:
            parts["neighbours"] = self.neighbours.tensors()
        if self.landmarks is not None:
            parts["landmarks"] = vars(self.landmarks)
        if self.named is not None:
            parts["named"] = vars(self.named)
        return {f"{part}.{name}": tensor for part, own in parts.items() for name, tensor in own.items()}

    def decide(self, rows: Tensor) -> Decision:
        """Return known for samples whose similarity, membership and presence together reach the threshold."""
        if self.named is not None:
            return self._decide_with_named(rows)
        assert self.rejection is not None  # a class is of the source or named, as `read` checks
        odds = self.rejection.odds(rows)
        return Decision(odds, odds.max(dim=1).values >= 1)

    def _decide_with_named(self, rows: Tensor) -> Decision:
        """Decide about rows whose length is the odds of a named class; the rule for source classes comes first."""
        length = rows.double().norm(dim=1, keepdim=True).clamp_min(1e-12)
        directions = (rows / length).float()
        parts = []
        if self.rejection is not None:
            parts.append(self.rejection.odds(directions))
            largest = parts[0].max(dim=1, keepdim=True).values
            length = torch.where(largest >= 1, length.minimum(_BEHIND * largest), length)
        parts.append(length * class_ratios(directions, self._named_prototypes))
        odds = torch.cat(parts, dim=1)[:, self._order]
        return Decision(odds, odds.max(dim=1).values >= 1)

    def stored_target(self) -> StoredTarget:
        """Describe the stored target and the landmarks."""
        means = {"n_means": 0 if self.landmarks is None else len(self.landmarks.keys), "least_averaged": LEAST_SAMPLES}
        if self.neighbours is None:
            return StoredTarget(**means)
        tensors = self.neighbours.tensors()
        (n_samples, n_features), n_neighbours = tensors["rows"].shape, tensors["nearest"].shape[1]
        n_bytes = sum(tensor.nbytes for tensor in tensors.values())
        return StoredTarget(n_samples, n_bytes, n_features, n_neighbours, **means)


def _read_rejection(stored: StoredTensors, width: int) -> Rejection:
    presence = stored.take("presence", (None,), torch.float64, low=0, high=_ONE)
    scalars = {
        name: stored.take(name, (), torch.float64, low=LEAST_LEVEL if name == "level" else 0, high=_ONE)
        for name in _SCALARS
    }
    return Rejection(
        prototypes=stored.take("prototypes", (len(presence), width), torch.float32),
        exemplars=stored.take("exemplars", (len(presence), width), torch.float32),
        presence=presence,
        **scalars,
    )
