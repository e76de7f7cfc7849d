"""UniOT in plain PyTorch, with the results of `uniot.UniOT`. Run: `python examples/plain_torch_uniot.py`."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from uniot.losses import UniOTLoss

STEPS, BATCH, NORM = 300, 36, 30.0


class Network(nn.Module):
    """Two layers from embeddings to unit features; put your backbone here."""

    def __init__(self, n_inputs: int, hidden: int = 256, n_features: int = 64) -> None:
        super().__init__()
        self.hidden, self.out = nn.Linear(n_inputs, hidden), nn.Linear(hidden, n_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.normalize(self.out(F.relu(self.hidden(x))), dim=1)


def generator(seed: int, *purpose: int) -> torch.Generator:
    """Random numbers for one purpose, here the ones that `uniot.UniOT` uses; any others do as well."""
    state = np.random.SeedSequence([seed, *purpose]).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state) % 2**63)


def source_batch(labels: torch.Tensor, seed: int, step: int) -> torch.Tensor:
    """Draw a class, then one of its samples, so that all classes are equally frequent."""
    random, sizes = generator(seed, 0, step), torch.bincount(labels)
    classes = torch.randint(len(sizes), (BATCH,), generator=random)
    within = (torch.rand(BATCH, generator=random, dtype=torch.float64) * sizes[classes]).long()
    return torch.argsort(labels, stable=True)[(sizes.cumsum(0) - sizes)[classes] + within]


def target_batch(n_target: int, seed: int, step: int) -> torch.Tensor:
    """Return part of a shuffled epoch."""
    epoch, place = divmod(step, n_target // BATCH)
    return torch.randperm(n_target, generator=generator(seed, 1, epoch))[place * BATCH : (place + 1) * BATCH]


def train(source: torch.Tensor, labels: torch.Tensor, target: torch.Tensor, seed: int = 0) -> tuple[Network, UniOTLoss]:
    """Train a network with UniOT's loss on embeddings of norm `NORM`."""
    torch.manual_seed(generator(seed, 100).initial_seed())
    network = Network(source.shape[1])
    loss = UniOTLoss(int(labels.max()) + 1, n_clusters=20, feature_size=64, queue_size=5 * BATCH)
    weights = [*network.parameters(), *loss.parameters()]
    optimiser = torch.optim.SGD(weights, lr=0.01, momentum=0.9, nesterov=True, weight_decay=5e-4, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: (1 + 10 * step / STEPS) ** -0.75)
    for ids in (target_batch(len(target), seed, step) for step in range(5)):  # fills the queue
        loss.queue.push(network(target[ids]).detach(), ids)
    for step in range(STEPS):
        rows, ids = source_batch(labels, seed, step), target_batch(len(target), seed, step)
        features = network(torch.cat([source[rows], target[ids]])).split(BATCH)
        losses = loss(features[0], labels[rows], features[1], ids, step=step, generator=generator(seed, 2, step))
        optimiser.zero_grad()
        losses.total.backward()
        optimiser.step()
        schedule.step()
        loss.renormalise()
    return network, loss


@torch.no_grad()
def predict(network: Network, loss: UniOTLoss, target: torch.Tensor, seed: int = 0) -> torch.Tensor:
    """Fit the prediction rule to the whole target; return the class of each sample, -1 for unknown."""
    features = network(target)
    return loss.fit_rule(features, generator(seed, 101)).predict(features)


if __name__ == "__main__":
    torch.manual_seed(0)
    centres, noise = 2 * torch.randn(7, 32), torch.randn(820, 32)  # classes 5 and 6 are private
    labels, truth = torch.arange(400) % 5, torch.arange(420) % 7
    rows = NORM * F.normalize(torch.cat([centres[labels], centres[truth] + 0.5]) + noise)
    found = predict(*train(rows[:400], labels, rows[400:]), rows[400:])
    print(f"correct: {float((found == torch.where(truth < 5, truth, -1)).float().mean()):.0%}")
