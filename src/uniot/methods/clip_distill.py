"""Distil the calibrated zero-shot predictions for the target into a classifier (AutoDistill), or use them as they are.

References:
    Deng and Jia, Universal Domain Adaptation from Foundation Models: A Baseline Study, arXiv:2305.11092.
    Radford et al., Learning Transferable Visual Models From Natural Language Supervision, ICML 2021, arXiv:2103.00020.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot.config import Settings
from uniot.losses import distillation_loss, normalised_entropy
from uniot.methods.base import FinalFeatures, MethodInfo
from uniot.methods.calibrated import Calibrated, CalibratedOptions
from uniot.methods.decision import Decision

_BATCH, _LEARNING_RATE, _MOMENTUM, _WEIGHT_DECAY = 32, 0.01, 0.9, 5e-4


def distilled(
    rows: Tensor, teacher: Tensor, start: Tensor, temperature: float, steps: int, generator: torch.Generator
) -> Tensor:
    """Train a cosine classifier to predict what a teacher predicts, and return its unit rows, (c, d).

    Stochastic gradient descent with momentum 0.9, learning rate 0.01, which falls to zero as half a cosine, and batches
    of 32; the rows of the classifier are scaled to unit norm after each step.

    Args:
        rows: unit features of the target, (n, d).
        teacher: class probabilities, (n, c).
        start: unit rows from which the classifier starts, (c, d).
        temperature: cosines are divided by it.
        steps: number of steps.
        generator: for the order of the samples.
    """
    weight = start.clone().requires_grad_(True)
    optimiser = torch.optim.SGD([weight], lr=_LEARNING_RATE, momentum=_MOMENTUM, weight_decay=_WEIGHT_DECAY)
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(1, steps))
    size = min(_BATCH, len(rows))
    chosen = torch.zeros(0, dtype=torch.long)
    for _ in range(steps):
        if len(chosen) < size:
            chosen = torch.randperm(len(rows), generator=generator)
        batch, chosen = chosen[:size], chosen[size:]
        with torch.enable_grad():
            loss = distillation_loss(rows[batch] @ weight.t() / temperature, teacher[batch])
            (weight.grad,) = torch.autograd.grad(loss, weight)
        optimiser.step()
        rates.step()
        with torch.no_grad():
            weight.copy_(F.normalize(weight, dim=1))
    return weight.detach()


class ClipDistillOptions(CalibratedOptions):
    """Hyper-parameters of AutoDistill; without calibration it is CLIP distillation, without steps it is zero-shot."""

    follows_target: bool = Field(
        False, description="Whether the temperature falls with the margins between classes in the target."
    )
    calibrates: bool = Field(
        True, description="Whether the teacher's temperature is calibrated on held-out classes of the source."
    )
    temperature: float = Field(0.05, ge=1e-3, le=10, description="Of the student, and of an uncalibrated teacher.")
    distillation_steps: int = Field(
        1000, ge=0, le=1_000_000, description="Training steps of the student; 0 decides by the teacher itself."
    )


class ZeroShotOptions(ClipDistillOptions):
    """The same with neither calibration nor distillation."""

    calibrates: bool = Field(
        False, description="Whether the teacher's temperature is calibrated on held-out classes of the source."
    )
    distillation_steps: int = Field(
        0, ge=0, le=1_000_000, description="Training steps of the student; 0 decides by the teacher itself."
    )


class ClipDistill(Calibrated):
    """A teacher compares embeddings with given prototypes; a student learns its predictions for the target.

    The teacher is `Calibrated` with the prototypes that the user gives, such as text embeddings of the class names, or
    with class means.

    Attributes:
        student: unit rows of the classifier that decides, (n_classes, n_features); zero before `finalize`.
        student_temperature: its cosines are divided by it, a scalar, float64.
    """

    options: ClipDistillOptions
    student: Tensor
    student_temperature: Tensor

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: ClipDistillOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        super().__init__(in_features, n_classes, settings, options, backbone)
        self.register_buffer("student", torch.zeros(n_classes, in_features))
        self.register_buffer("student_temperature", torch.zeros((), dtype=torch.float64))

    @torch.no_grad()
    def finalize(self, final: FinalFeatures) -> None:
        """Compute the prototypes, fit the teacher's temperature, and train the student on the target."""
        options = self.options
        super().finalize(final)
        if not options.calibrates:
            self.temperature.fill_(options.temperature)
        self.student.copy_(self.prototypes)
        self.student_temperature.copy_(self.temperature)
        if options.distillation_steps:
            rows = F.normalize(final.whole_target().float(), dim=1)
            teacher = (self.cosines(rows) / self.temperature).softmax(dim=1).float()
            steps, start = options.distillation_steps, self.prototypes
            self.student.copy_(distilled(rows, teacher, start, options.temperature, steps, final.generator))
            self.student_temperature.fill_(options.temperature)

    def is_finalized(self) -> bool:
        """Whether the student is trained."""
        return bool(self.student_temperature > 0)

    def decide(self, features: Tensor) -> Decision:
        """Decide by the student; unknown iff the entropy of its prediction exceeds log(C) / 2."""
        with torch.no_grad():
            rows = F.normalize(features.double(), dim=1)
            logits = rows @ self.student.double().t() / self.student_temperature
            return Decision.of(logits.softmax(dim=1), 1 - normalised_entropy(logits), 0.5)


_IDLE = frozenset({"queue_size", "store_target", "feature_size"})

INFO = MethodInfo(
    name="clip-distill",
    title="AutoDistill",
    source="Deng and Jia, Universal Domain Adaptation from Foundation Models: A Baseline Study, arXiv:2305.11092",
    rule="unknown if the entropy of the prediction of a classifier that was distilled from calibrated predictions "
    "exceeds half of log C",
    build=ClipDistill,
    options=ClipDistillOptions,
    is_closed_form=True,
    idle=_IDLE,
)

ZERO_SHOT = MethodInfo(
    name="zero-shot",
    title="Zero-shot",
    source="Radford et al., Learning Transferable Visual Models From Natural Language Supervision, ICML 2021",
    rule="unknown if the entropy of softmax(cosines / 0.05) exceeds half of log C",
    build=ClipDistill,
    options=ZeroShotOptions,
    is_closed_form=True,
    variant_of="clip-distill",
    idle=_IDLE,
)
