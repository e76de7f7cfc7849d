"""UniOT's losses in a plain PyTorch loop, step by step."""

# %% [markdown]
# # UniOT's losses in a plain loop
#
# Two lines of the library in a training loop of yours: the loss, and the rule that says which samples are known.
#
# Top: the target's features before, during and after the training, seen from above (principal components). Coloured
# points are common classes, black ones are private, squares are the class prototypes. Common classes move to their
# prototypes, private samples mostly stay between them.

# %% [markdown]
# ## Data and network
#
# Seven classes of Gaussian points, five of them labelled in a source; the target has three of these and two others.
# In your loop, `x` are images and `network` is your backbone.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import uniot
from uniot.datasets import make_toy_domains

torch.manual_seed(0)
toy = make_toy_domains(n_common=3, n_source_private=2, n_target_private=2, samples_per_class=60, spread=0.9, seed=4)
classes, labels = np.unique(toy.y_source, return_inverse=True)
x_source, x_target = (torch.from_numpy(x).float() for x in (toy.x_source, toy.x_target))
labels = torch.from_numpy(labels)
truth = toy.oracle_y_target  # for the pictures and the score at the end

network = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 64))


def features(x):
    """Features of unit norm: the losses compare cosines."""
    return F.normalize(network(x), dim=1)


# %% [markdown]
# ## The loop
#
# L_cls is the cross-entropy on the source. L_CCD moves target samples that a transport plan finds common to their
# class. L_PCD clusters the whole target. The queue is a memory of target features, so that a plan sees more than one
# batch.

# %%
STEPS, BATCH = 300, 36
loss = uniot.losses.UniOTLoss(
    n_classes=len(classes), n_clusters=20, feature_size=64, queue_size=144, detection_start=50
)
optimiser = torch.optim.SGD(
    [*network.parameters(), *loss.parameters()], lr=0.03, momentum=0.9, nesterov=True, weight_decay=5e-4
)
while loss.queue.n_stored < len(loss.queue):
    ids = torch.randint(len(x_target), (BATCH,))
    loss.queue.push(features(x_target[ids]).detach(), ids)

history, moments = [], {}
for step in range(STEPS):
    rows, ids = torch.randint(len(x_source), (BATCH,)), torch.randint(len(x_target), (BATCH,))
    losses = loss(features(x_source[rows]), labels[rows], features(x_target[ids]), ids, step=step)
    optimiser.zero_grad()
    losses.total.backward()
    optimiser.step()
    loss.renormalise()
    history.append([float(value.detach()) for value in (losses.classification, losses.common, losses.private)])
    if step in (0, 60, STEPS - 1):  # only to look at
        with torch.no_grad():
            moments[step] = features(x_target).numpy(), loss.classes.weight.detach().numpy().copy()

# %%
axis = np.linalg.svd(moments[STEPS - 1][0] - moments[STEPS - 1][0].mean(0), full_matrices=False)[2][:2].T
colours = {name: plt.get_cmap("tab10")(number) for number, name in enumerate(classes)}
figure, panels = plt.subplots(1, 3, figsize=(9, 3.2), sharex=True, sharey=True)
for axes, (step, (seen, prototypes)) in zip(panels, moments.items(), strict=True):
    axes.set_title(f"Target features after {step + 1} step{'s' if step else ''}")
    for name in sorted(set(truth)):
        axes.scatter(*(seen[truth == name] @ axis).T, s=10, color=colours.get(name, "black"), label=name)
    for name, place in zip(classes, prototypes @ axis, strict=True):
        axes.scatter(*place, marker="s", s=60, color=colours[name], edgecolor="black")
panels[1].legend(*panels[0].get_legend_handles_labels(), loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=5)
plt.show()

# %% [markdown]
# ## The losses
#
# `detection_start` delays L_CCD until the classifier says something. A batch in which no sample is trusted has an
# L_CCD of zero.

# %%
figure, axes = plt.subplots(figsize=(7.2, 2.6))
axes.set_title("Losses per step (mean of ten)")
smooth = np.array(history).reshape(-1, 10, 3).mean(axis=1)
for column, name in enumerate(("L_cls: source classes", "L_CCD: common classes", "L_PCD: clusters of the target")):
    axes.plot(np.arange(5, STEPS, 10), smooth[:, column], label=name)
axes.axvline(50, color="gray", lw=0.8, ls="--")
axes.set_yscale("log")  # a loss of zero is not drawn
axes.set_xlabel("step; the dashed line is detection_start")
axes.legend()
plt.show()
assert smooth[-1, 0] < smooth[0, 0]

# %% [markdown]
# ## The rule
#
# One unbalanced transport of the whole target decides at the end: a sample is known if its row of the plan receives
# at least the mean mass of a row. It needs the whole target once, and then labels new samples in batches of any size.

# %%
network.eval()
with torch.no_grad():
    rule = loss.fit_rule(features(x_target))
    found = np.append(classes, "unknown")[rule.predict(features(x_target)).numpy()]
    odds = rule.odds(features(x_target)).amax(dim=1).numpy()
h = 100 * uniot.h_score(truth, found, source_classes=classes)
print(f"H-score {h:.0f}")
assert h > 70

figure, axes = plt.subplots(figsize=(7.2, 2.6))
axes.set_title("Largest odds of each target sample")
private = ~np.isin(truth, classes)
bins = np.linspace(np.log10(odds).min(), np.log10(odds).max(), 40)
axes.hist([np.log10(odds[~private]), np.log10(odds[private])], bins=bins, stacked=True, color=["tab:green", "black"],
          label=["common", "private"])  # fmt: skip
axes.axvline(0, color="tab:red", ls="--", label="known from here on")
axes.set_xlabel("log10 of the odds")
axes.legend()
plt.show()

# %% [markdown]
# ## What can go wrong
#
# - **An empty queue.** The first step raises an error if the queue was not filled.
# - **A second cross-entropy.** L_cls is in `losses.total` already: with a head of your own beside it, the prototypes
#   learn nothing.
# - **Prototypes that grow.** Without `loss.renormalise()` after each step the cosines are none.
# - **Nothing is private.** The rule rejects about half of the target all the same: it is the paper's assumption. A
#   few [answers](04_ten_answers.md) cure it, or `UniNCM`.
# - **Batch normalisation.** Send both domains through the network together or separately, but alike in every step.
