"""A training step on 2048-d embeddings against the same step without its two transport problems."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from copy import deepcopy

import torch
from measure import Report, arguments, interleaved
from office31_tasks import load_tasks, missing_data
from problems import Clusters
from torch import Tensor

from uniot.config import Settings
from uniot.io.arrays import scaled_rows
from uniot.losses import (
    CommonClassDetectionLoss,
    FeatureQueue,
    PrivateClassDiscoveryLoss,
    Prototypes,
    common_class_detection_loss,
)
from uniot.methods import create_method, resolved_settings
from uniot.methods.base import Batch
from uniot.methods.uniot import UniOTMethod
from uniot.training.loop import parameter_groups, train
from uniot.training.samples import PairedBatches, TensorSamples

WIDTH, CLASSES, CLUSTERS, QUEUE = 2048, 20, 50, 2000
# Detection begins after so many steps; measured is what comes a while later.
DETECTION_START, TRAINED_STEPS = 100, 250
Data = tuple[Tensor, Tensor, Tensor]
"""Source embeddings, their class indices, target embeddings."""


class FixedDetection(CommonClassDetectionLoss):
    """L_CCD with labels that were fixed beforehand; half of the rows count as detected."""

    def fix(self, batch_size: int) -> None:
        self._labels = torch.randint(len(self.class_mass), (batch_size,), generator=torch.Generator().manual_seed(0))
        self._detected = torch.arange(batch_size) % 2 == 0

    def forward(
        self, target: Tensor, prototypes: Prototypes, queue: FeatureQueue, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        logits = prototypes(target) / self.temperature
        loss = common_class_detection_loss(logits, self._labels, self._detected)
        return loss, torch.where(self._detected, self._labels, -1)


class FixedCodes(PrivateClassDiscoveryLoss):
    """L_PCD with codes that were fixed beforehand, as soft as those of the balanced plan."""

    def codes(self, cosines: Tensor, queued: Tensor) -> Tensor:
        return torch.randn(cosines.shape, generator=torch.Generator().manual_seed(0)).softmax(dim=1)


class Loop:
    """The body of the training loop, step by step."""

    def __init__(self, method: UniOTMethod, data: Data) -> None:
        self._method = method.train()
        self._source, self._labels, self._target = data
        settings = method.settings
        self._batches = PairedBatches(self._labels, len(self._target), settings.batch_size, settings.seed)
        groups = parameter_groups(method, method.backbone, settings)
        self._optimiser = torch.optim.SGD(
            groups, momentum=settings.momentum, weight_decay=settings.weight_decay, nesterov=True, fused=True
        )
        for group in self._optimiser.param_groups:
            group["lr"] *= 0.2  # about where the schedule of the paper ends
        self._step = TRAINED_STEPS

    def run(self, steps: int) -> None:
        for _ in range(steps):
            source, target = self._batches.source(self._step), self._batches.target(self._step)
            generator = self._batches.generator(self._step)
            losses = self._method.step(
                Batch(self._source[source], self._labels[source], self._target[target], target, self._step, generator)
            )
            self._optimiser.zero_grad()
            losses.total.backward()
            self._optimiser.step()
            self._method.after_step()
            self._step += 1


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="rounds, each a block of steps of both kinds")
    parser.add_argument("--steps", type=int, default=20, help="steps in a block")
    options = parser.parse_args()
    rounds, steps = (2, 3) if options.quick else (options.rounds, options.steps)
    report = Report("step", options.quick)
    measure(report, "synthetic", synthetic(), rounds, steps)
    missing = missing_data()
    if missing:
        print(missing)
    else:
        measure(report, "Office-31 A2W", office31("A2W"), rounds, steps)
    report.finish(options.json)


def measure(report: Report, name: str, data: Data, rounds: int, steps: int) -> None:
    loops = {"whole": Loop(trained(data), data)}
    loops["reduced"] = Loop(_reduced(loops["whole"]._method), data)
    blocks: dict[str, Callable[[], None]] = {kind: (lambda loop=loop: loop.run(steps)) for kind, loop in loops.items()}
    times = interleaved(blocks, rounds)
    a_step = {kind: statistics.median(taken) / steps for kind, taken in times.items()}
    for kind, taken in a_step.items():
        report.tell(f"{name}: a step, {kind}", 1000 * taken, "ms", blocks=times[kind])
    report.at_most(f"{name}: a step against one without transport", a_step["whole"] / a_step["reduced"], 1.35, "x")


def trained(data: Data) -> UniOTMethod:
    """A method some steps after detection began, so that plans and warm starts are those of a real run."""
    source, labels, target = data
    given = {
        "method": "uniot",
        "n_clusters": CLUSTERS,
        "queue_size": QUEUE,
        "steps": TRAINED_STEPS,
        "detection_start": DETECTION_START,
    }
    settings = resolved_settings(Settings.checked(**given), len(target))
    torch.manual_seed(0)
    method = create_method(settings, source.shape[1], int(labels.max()) + 1)
    train(method, TensorSamples(source), labels, TensorSamples(target), settings)
    return method


def _reduced(method: UniOTMethod) -> UniOTMethod:
    """The same method, with forward pass, neighbours and losses, but without transport."""
    reduced = deepcopy(method)
    reduced.loss.common = FixedDetection(len(method.loss.classes.weight))
    reduced.loss.common.fix(method.settings.batch_size)
    reduced.loss.private = FixedCodes()
    return reduced


def synthetic() -> Data:
    clusters = Clusters(CLASSES, seed=0, d=WIDTH)
    labels = torch.arange(2000) % CLASSES
    generator = torch.Generator().manual_seed(1)
    source = clusters.prototypes[labels] + 0.7 / WIDTH**0.5 * torch.randn(2000, WIDTH, generator=generator)
    return _scaled(source), labels, _scaled(clusters.draw(2000))


def office31(name: str) -> Data:
    task = load_tasks((name,))[0]
    labels = torch.from_numpy((task.source_labels[:, None] == task.classes).argmax(axis=1))
    return _scaled(torch.from_numpy(task.source)), labels, _scaled(torch.from_numpy(task.target))


def _scaled(embeddings: Tensor) -> Tensor:
    return scaled_rows(embeddings.numpy(), Settings().input_norm)


if __name__ == "__main__":
    main()
