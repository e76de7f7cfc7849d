"""Train a cosine classifier on labelled embeddings and on the texts of the classes as further samples.

This is a package of its own: its entry point, in pyproject.toml, adds the method `cross-modal` to uniot.

References:
    Lin et al., Multimodality Helps Unimodality: Cross-Modal Few-Shot Learning with Multimodal Models, CVPR 2023,
    arXiv:2301.06267.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot.config import Settings
from uniot.errors import SettingsError
from uniot.losses import Prototypes
from uniot.methods import Batch, Losses, MethodInfo, MethodOptions
from uniot.methods.fitted import GivenPrototypes
from uniot.methods.head import HeadMethod


class CrossModalOptions(MethodOptions):
    """Hyper-parameters that other methods do not have."""

    text_weight: float = Field(1.0, ge=0, le=100, description="Weight of the cross-entropy of the texts.")
    temperature: float = Field(0.05, ge=1e-3, le=10, description="Cosines are divided by it.")


class CrossModal(HeadMethod):
    """Texts of the classes, given as `prototypes`, start the classifier and stay among its training samples.

    Score and rule are those of `HeadMethod`: a sample is unknown if its entropy is high. Without prototypes it is a
    cosine classifier of the source.

    Attributes:
        texts: unit rows, (n_classes, n_features); zero if none are given.
    """

    options: CrossModalOptions
    classifier: Prototypes
    texts: Tensor

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: CrossModalOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        super().__init__(in_features, n_classes, settings, options, backbone)
        self.bottleneck = nn.Identity()
        self.classifier = Prototypes(n_classes, in_features)
        self.register_buffer("texts", torch.zeros(n_classes, in_features))

    @torch.no_grad()
    def use_prototypes(self, given: GivenPrototypes) -> None:
        """Start from these texts, and train on them."""
        if given.weight != 1:
            raise SettingsError("cross-modal does not average texts with class means. Leave prototype_weight out.")
        self.texts.copy_(given.rows)
        self.classifier.weight.copy_(given.rows)

    def embedding_features(self, embeddings: Tensor) -> Tensor:
        """Return unit embeddings divided by the temperature, (n_samples, n_features)."""
        return F.normalize(embeddings.flatten(1), dim=1) / self.options.temperature

    def step(self, batch: Batch) -> Losses:
        """Return the losses of one step: L = CE(y, C(f_s)) + w CE(class, C(text of the class))."""
        source, _ = self.batch_features(batch)
        image = F.cross_entropy(self.classifier(source), batch.source_labels)
        classes = torch.arange(self.n_classes, device=source.device)
        text = F.cross_entropy(self.classifier(self.texts / self.options.temperature), classes)
        # Without texts all logits are zero, and the loss is a constant without gradient.
        return Losses(image + self.options.text_weight * text, {"source": image, "text": text})

    def after_step(self) -> None:
        """Scale the rows of the classifier to unit norm."""
        self.classifier.renormalise()


INFO = MethodInfo(
    name="cross-modal",
    title="Cross-modal",
    source="Lin et al., Multimodality Helps Unimodality: Cross-Modal Few-Shot Learning with Multimodal Models, "
    "CVPR 2023",
    rule="unknown if the entropy of the prediction exceeds half of log C; the paper has no rule",
    build=CrossModal,
    options=CrossModalOptions,
    idle=frozenset({"queue_size", "store_target", "feature_size"}),
)
