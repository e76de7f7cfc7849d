"""Ten methods on the same embeddings, before and after ten answers."""

# %% [markdown]
# # Which of ten methods fits your embeddings
#
# Ten methods get the same embeddings. Compare them where you know the truth, or by a few labels of your own.
#
# Open circles: without answers. Filled circles: after ten answers. Ten answers help most where the rule of a method
# is far off.

# %% [markdown]
# ## Embeddings
#
# ResNet-50 features of Office-31: the source are pictures of a shop, the target is a web camera; ten classes are
# common, ten only in the source, eleven only in the target. Without `UNIOT_DATA`, Gaussian classes with a shift
# between the domains.

# %%
import os
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from uniot import UniDAClassifier, h_score
from uniot.datasets import make_toy_domains
from uniot.datasets.catalogue import benchmark_set
from uniot.metrics.label_free import target_silhouette

stored = Path(os.environ.get("UNIOT_DATA", "absent")) / "office31" / "resnet50_features.npz"
if stored.exists():
    data, split = np.load(stored), benchmark_set("office31").split("open-partial")

    def domain(name, classes):
        """Embeddings and labels of the samples of some classes."""
        labels = data["classes"][data[f"{name}_y"]].astype(str)
        return data[f"{name}_x"][np.isin(labels, classes)].astype(np.float32), labels[np.isin(labels, classes)]

    x_source, y_source = domain("amazon", split.source)
    x_target, truth = domain("webcam", split.target)
else:
    toy = make_toy_domains(6, 4, 4, dimensions=64, spread=1.1, shift=0.8, seed=0)
    x_source, y_source, x_target, truth = toy.x_source, toy.y_source, toy.x_target, toy.oracle_y_target
known = sorted(set(y_source))
print(f"source: {len(x_source)} samples, {len(known)} classes; target: {len(x_target)} samples")

# %% [markdown]
# ## Fit, score, ask, score
#
# `UniDAClassifier(method=…)` runs any of them; `uniot methods` lists all. 150 steps keep this page short; without
# `steps` the size of the target decides, which is at least a thousand. The silhouette of the predictions needs no
# labels.

# %%
METHODS = ("unincm", "uniot", "dance", "ovanet", "ppot", "jumbot", "dcc", "uan", "lead", "source-only")


def score(model):
    """H-score in per cent."""
    return 100 * h_score(truth, model.labels_, source_classes=known)


rows = []
for method in METHODS:
    started = time.process_time()
    steps = {} if method == "unincm" else {"steps": 150}
    model = UniDAClassifier(method, random_state=0, **steps).fit(x_source, y_source, x_target)
    seconds = time.process_time() - started
    without = score(model)
    silhouette = target_silhouette(model, x_target) if len(set(model.labels_)) > 1 else -1.0
    for _ in range(10):
        row = int(model.ask()[0])
        model.tell(row, truth[row] if truth[row] in known else "unknown")
    rows.append((method, without, score(model), silhouette, seconds))
    print(f"{method:12} H {without:5.1f}   after ten answers {rows[-1][2]:5.1f}")

# %%
names = [row[0] for row in rows]
without, told, silhouettes, seconds = np.array([row[1:] for row in rows]).T
order = np.argsort(told)
figure, axes = plt.subplots(figsize=(7.2, 3.4))
axes.set_title("H-score without answers and after ten")
axes.hlines(range(len(order)), without[order], told[order], color="lightgray", lw=4)
axes.plot(without[order], range(len(order)), "o", mfc="white", color="tab:gray", label="without answers")
axes.plot(told[order], range(len(order)), "o", color="tab:green", label="after ten answers")
axes.set_yticks(range(len(order)), [names[number] for number in order])
axes.set_xlim(-2, 102)
axes.set_xlabel("H-score")
axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2)
plt.show()
assert told.mean() > without.mean()

# %% [markdown]
# ## Without any label of the target?
#
# One silhouette per method, against the score that it should predict. Such scores rank the settings of one method
# better than they rank methods, and a method that calls nearly everything the same can win: do not choose by them
# alone. Time is another criterion.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3))
left.set_title("Silhouette against H, without answers")
left.scatter(silhouettes, without, color="tab:gray")
for name, x, y in zip(names, silhouettes, without, strict=True):
    left.annotate(name, (x, y), fontsize=7, xytext=(3, 3), textcoords="offset points")
left.set_xlabel("silhouette of the predictions")
left.set_ylabel("H-score")
right.set_title("Processor time of the fit, seconds")
right.barh([names[number] for number in order], seconds[order], color="tab:gray")
figure.tight_layout()
plt.show()
best, chosen = int(without.argmax()), int(silhouettes.argmax())
print(
    f"best without answers: {names[best]} ({without[best]:.0f}); by silhouette: {names[chosen]} ({without[chosen]:.0f})"
)

# %% [markdown]
# ## The comparison in one command
#
# `uniot benchmark` repeats this over tasks and seeds, with tests of significance, on published sets or on features of
# yours: `uniot benchmark office31 --methods unincm,uniot,dance --features x.npz --out results/` ([compare
# methods](../benchmark-runner.md)).
#
# ## What can go wrong
#
# - **One task is one task.** Here is one pair of domains, one split and one seed. Over [all tasks](../results.md) the
#   order is another one.
# - **Short trainings.** 150 steps favour what needs no training. Before you drop a method, leave `steps` out.
# - **Choosing by the truth.** If you choose a method by true labels of the target, its score on the same samples is
#   too good: keep others to judge it.
# - **An unfair rule.** Many methods rank samples well and draw the line badly. Look at the filled circles, or at a
#   curve over all thresholds (`uniot.metrics.oscr`), before you call their features bad.
