"""TNT, rebuilt from its paper's public description: evidence for each class, and mutual neighbours across domains."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot.losses.adversarial import reversal_strength, reversed_gradient
from uniot.losses.evidential import evidence, evidential_loss, uncertainty, uncertainty_boundary_loss
from uniot.losses.mutual_neighbours import Rows, mutual_neighbours, neighbour_contrast
from uniot.methods.head_method import HeadMethod
from uniot.methods.method import Batch, Losses, MethodInfo, MethodOptions
from uniot.networks.sample_bank import SampleBank
from uniot.settings import Settings


class TNTOptions(MethodOptions):
    """Values of our reconstruction; the paper's own are not public."""

    n_neighbours: int = Field(1, ge=1, le=1000, description="How far down each other's list mutual neighbours are.")
    temperature: float = Field(0.1, ge=1e-3, le=100, description="τ; cosines of neighbours are divided by it.")
    contrast_weight: float = Field(0.1, ge=0, le=1e3, description="Weight of the contrast between neighbours.")
    boundary_weight: float = Field(0.1, ge=0, le=1e3, description="Weight of uncertainty against confidence.")
    threshold_momentum: float = Field(0.9, ge=0, lt=1, description="Memory of the thresholds of the classes.")


class TNT(HeadMethod):
    """Evidential neighbourhood contrastive learning. Paper: Chen et al., AAAI 2022.

    A reconstruction: no code of the authors is public, and what is public of the paper names the parts without their
    formulas or values. Named are an evidential head; a cross-domain contrastive loss with several positives, which are
    mutual nearest neighbours; an adversarial objective of uncertainty against confidence; and a threshold for each
    class. Formulas and values here are ours, tried out on D2W and A2W of Office-31; of the means that make a threshold,
    the geometric one was then preferred to the arithmetic one on two random splits of its classes. The results must not
    be taken for the paper's.

    Evidence and uncertainty. e_c = exp(logit_c), and u = C / Σ_c (e_c + 1): classes do not compete for it as they do in
    a softmax.

    Thresholds. Only the source can teach them. Its samples as they are show the uncertainty u of the known; without
    the evidence for their own class they stand for the unknown, u' = C / (Σ_c (e_c + 1) - e_y). The threshold δ_c is
    the geometric mean, half way on the scale of the logits, of the mean u of the samples of class c and the mean u' of
    those whose next best class is c; both means are moving averages. A sample is unknown iff its u exceeds the
    threshold of the class that it has most evidence for.

    Attributes:
        inside: mean u of the samples of each class, (c,).
        outside: mean u' of the samples of other classes that come closest to each class, (c,).
    """

    options: TNTOptions

    inside: Tensor
    outside: Tensor

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: TNTOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        super().__init__(in_features, n_classes, settings, options, backbone)
        self.source_bank = SampleBank(self.queue_size, settings.feature_size)
        self.target_bank = SampleBank(self.queue_size, settings.feature_size)
        # A class that has not been seen knows nobody.
        self.register_buffer("inside", torch.zeros(n_classes))
        self.register_buffer("outside", torch.ones(n_classes))

    def step(self, batch: Batch) -> Losses:
        """The losses of one step.

        L = L_evidence + 0.1 L_contrast + 0.1 L_boundary

        L_evidence: evidential cross-entropy of the source, the penalty on misleading evidence growing over the first
        fifth of the run (`evidential_loss`).
        L_contrast: see `contrast`.
        L_boundary: mean |u - δ| over the target, δ the threshold of the nearest class. The classifier brings
        uncertainties to the thresholds; the features, by a reversed gradient, take them away to either side, ever more
        as step / steps grows.
        """
        source, target = self.batch_features(batch)
        source_evidence = evidence(self.classifier(source))
        classification = evidential_loss(source_evidence, batch.source_labels, min(1.0, 5 * batch.step / self.steps))
        self._learn_thresholds(source_evidence.detach(), batch.source_labels)
        contrast = self.contrast(source, target, batch)
        strength = reversal_strength(batch.step, self.steps)
        target_evidence = evidence(self.classifier(reversed_gradient(target, strength)))
        boundary = uncertainty_boundary_loss(uncertainty(target_evidence), self.thresholds_of(target_evidence))
        total = classification + self.options.contrast_weight * contrast + self.options.boundary_weight * boundary
        return Losses(total, {"source": classification, "contrast": contrast, "boundary": boundary})

    def contrast(self, source: Tensor, target: Tensor, batch: Batch) -> Tensor:
        """Each sample of the batch comes closer to its mutual neighbours in the other domain than to all other samples.

        The other samples are the latest `queue_size` of each domain. Where the target sample of a pair seems unknown,
        the pair does not count.

        Args:
            source: features, (b, d).
            target: features, (b', d).
            batch: says whose they are.
        """
        with torch.no_grad():
            seems_known = self.score(target) >= self.border
        # The batch does not tell which source samples it holds: each counts as a new one.
        numbers = batch.step * len(source) + torch.arange(len(source), device=source.device)
        source, target = F.normalize(source, dim=1), F.normalize(target, dim=1)
        self.source_bank.put(source.detach(), numbers)
        self.target_bank.put(target.detach(), batch.target_ids, seems_known.long())
        places = self.source_bank.filled(), self.target_bank.filled()
        # Below zero, so that no source sample has the number of a target sample.
        sources = Rows(self.source_bank.rows[places[0]], -1 - self.source_bank.ids[places[0]])
        targets = Rows(self.target_bank.rows[places[1]], self.target_bank.ids[places[1]])
        seemed_known = self.target_bank.labels[places[1]] == 1
        of_source = self._contrast(Rows(source, -1 - numbers), sources, targets, seemed_known)
        of_target = self._contrast(Rows(target, batch.target_ids), targets, sources, seems_known[:, None])
        return (of_source + of_target) / 2

    def thresholds_of(self, evidences: Tensor) -> Tensor:
        """δ of the class that each row (n, c) has most evidence for, (n,)."""
        return (self.inside * self.outside).sqrt()[evidences.argmax(dim=1)]

    def score(self, features: Tensor) -> Tensor:
        """δ (1 - u) / (δ (1 - u) + u (1 - δ)), (n,): below one half iff u exceeds δ, the threshold."""
        evidences = evidence(self.classifier(features))
        u, threshold = uncertainty(evidences), self.thresholds_of(evidences)
        confident, uncertain = threshold * (1 - u), u * (1 - threshold)
        return confident / (confident + uncertain)

    def forget_samples(self) -> None:
        """Empties the banks."""
        self.source_bank.clear()
        self.target_bank.clear()

    def _contrast(self, anchors: Rows, own: Rows, other: Rows, counts: Tensor) -> Tensor:
        neighbours = mutual_neighbours(anchors, own, other, self.options.n_neighbours) & counts
        logits = anchors.features @ torch.cat([other.features, own.features]).t() / self.options.temperature
        hidden = anchors.ids[:, None] == torch.cat([other.ids, own.ids])
        return neighbour_contrast(logits, F.pad(neighbours, (0, len(own.ids))), hidden)

    @torch.no_grad()
    def _learn_thresholds(self, evidences: Tensor, labels: Tensor) -> None:
        others = evidences.masked_fill(F.one_hot(labels, self.n_classes).bool(), 0)
        self._average(self.inside, uncertainty(evidences), labels)
        self._average(self.outside, uncertainty(others), others.argmax(dim=1))

    def _average(self, means: Tensor, values: Tensor, classes: Tensor) -> None:
        """Moves the means of the classes that have values in this batch."""
        counts = torch.bincount(classes, minlength=len(means))
        here = torch.zeros_like(means).index_add_(0, classes, values) / counts.clamp_min(1)
        momentum = self.options.threshold_momentum
        means.copy_(torch.where(counts > 0, momentum * means + (1 - momentum) * here, means))


INFO = MethodInfo(
    name="tnt",
    title="TNT (reconstruction)",
    source="Chen et al., Evidential Neighborhood Contrastive Learning for Universal Domain Adaptation, AAAI 2022",
    rule="unknown where the evidential uncertainty exceeds the threshold of the nearest class, learnt from the source",
    build=TNT,
    options=TNTOptions,
    is_reconstruction=True,
)
