"""Good and bad results, and how to tell them apart."""

# %% [markdown]
# # Reading a result with suspicion
#
# A run always returns labels. Of these four, one is mostly wrong: what gives it away before anybody relies on the
# result?
#
# A bar is the interval for the unknown fraction, the cross is the truth and the circle is what the run called
# unknown. Wide bars say: the data alone do not decide.

# %% [markdown]
# ## Four runs
#
# The labelled digits are 0 to 5 of scikit-learn. What arrives is, in turn: some of these and others; the same ones
# only; none of them; and a collection of nearly one kind. `fit` warns; the warnings are printed.

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np

from uniot import UniNCM
from uniot.datasets.digits import load_digit_archives
from uniot.errors import UniotWarning

small, small_labels, large, large_labels = load_digit_archives()
labelled = small_labels < 6
x_source, y_source = small[labelled].reshape(-1, 784), small_labels[labelled].astype(str)
known = sorted(set(y_source))


def arrive(sizes, seed=0):
    """Pixels and true labels of as many MNIST digits of each kind as `sizes` says."""
    random = np.random.default_rng(seed)
    rows = [random.permutation(np.flatnonzero(large_labels == digit))[:size] for digit, size in sizes.items()]
    chosen = random.permutation(np.concatenate(rows))
    return large[chosen].reshape(-1, 784), large_labels[chosen].astype(str)


cases = {
    "some in common": dict.fromkeys((0, 1, 2, 3, 6, 7, 8, 9), 80),
    "nothing new": dict.fromkeys(range(6), 100),
    "nothing in common": dict.fromkeys((6, 7, 8, 9), 150),
    "nearly one kind": {0: 450, 1: 10, 2: 10, 7: 10, 8: 10},
}
runs = {}
for name, sizes in cases.items():
    x, truth = arrive(sizes)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = UniNCM(random_state=0).fit(x_source, y_source, x)
    expected = np.where(np.isin(truth, known), truth, "unknown")
    runs[name] = model, x, truth, expected
    right = 100 * np.mean(model.labels_ == expected)
    assert (right < 50) == (name == "nearly one kind")
    print(f"{name}: estimated {100 * model.reliability_.accuracy:.0f} % right, truly {right:.0f} %")
    for warning in caught:
        if issubclass(warning.category, UniotWarning):
            print("   warning:", str(warning.message)[:150])

# %%
figure, axes = plt.subplots(figsize=(7.2, 2.8))
axes.set_title("Fraction unknown: interval, decision and truth")
for number, (_, (model, _, _, expected)) in enumerate(runs.items()):
    low, high = model.private_share_interval_
    axes.plot([100 * low, 100 * high], [-number, -number], lw=9, color="lightgray", solid_capstyle="butt")
    axes.plot(100 * np.mean(model.labels_ == "unknown"), -number, "o", color="tab:green")
    axes.plot(100 * np.mean(expected == "unknown"), -number, "kx", ms=9, mew=2)
axes.set_yticks([-number for number in range(len(runs))], list(runs))
axes.set_xlabel("% of the collection")
axes.set_ylim(-len(runs) + 0.4, 0.6)
plt.show()

# %% [markdown]
# ## Test 1: hide a class that you know
#
# Leave one labelled class out and fit again. Its samples in the unlabelled collection cannot be named, but you do not
# know which they are. You know it of the labelled ones: split those in two, make one half the target, and see whether
# the hidden class is found in it. This needs no label of the target, and shows how well classes like yours can be
# told from what is new.

# %%
random = np.random.default_rng(0)
half = random.random(len(y_source)) < 0.5
found = {}
for hidden in known:
    kept = half & (y_source != hidden)
    model = UniNCM(random_state=0).fit(x_source[kept], y_source[kept], x_source[~half])
    truth = y_source[~half]
    found[hidden] = (
        100 * np.mean(model.labels_[truth == hidden] == "unknown"),
        100 * np.mean(model.labels_[truth != hidden] == truth[truth != hidden]),
    )
figure, axes = plt.subplots(figsize=(7.2, 2.6))
axes.set_title("A hidden class: found as unknown, and the others named rightly")
axes.bar(
    np.arange(6) - 0.2,
    [pair[0] for pair in found.values()],
    width=0.4,
    color="black",
    label="hidden class called unknown",
)
axes.bar(np.arange(6) + 0.2, [pair[1] for pair in found.values()], width=0.4, color="tab:green", label="others right")
axes.set_xticks(range(6), [f"hide {name}" for name in known])
axes.set_ylabel("%")
axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2)
plt.show()

# %% [markdown]
# ## Test 2: is a confidence of 90 % right nine times in ten?
#
# Only with labels. A person labels sixty random samples, which also gives an honest interval for the accuracy.

# %%
figure, axes = plt.subplots(figsize=(4.6, 3.4))
axes.set_title("Confidence against accuracy")
axes.plot([0, 100], [0, 100], color="lightgray")
for name, (model, x, _, expected) in runs.items():
    sure, right = model.confidence(x), model.predict(x) == expected
    order = np.array_split(np.argsort(sure), 6)
    axes.plot(
        [100 * sure[part].mean() for part in order], [100 * right[part].mean() for part in order], "o-", label=name
    )
    drawn = np.random.default_rng(1).permutation(len(x))[:60]
    p, z = np.mean(model.labels_[drawn] == expected[drawn]), 1.96
    centre, width = (p + z**2 / 120) / (1 + z**2 / 60), z * np.sqrt(p * (1 - p) / 60 + z**2 / 14400) / (1 + z**2 / 60)
    print(f"{name}: sixty labels say {100 * (centre - width):.0f} to {100 * (centre + width):.0f} % right")
axes.set_xlabel("confidence, sixths of the collection, %")
axes.set_ylabel("right, %")
axes.legend(fontsize=7)
plt.show()

# %% [markdown]
# ## Test 3: five questions
#
# The cheapest test of all. Bars are the intervals after five answers. Where the run was mostly wrong, it is mostly
# right now. Where it was nearly right, five answers change little, and can cost a few points.

# %%
figure, axes = plt.subplots(figsize=(7.2, 2.4))
axes.set_title("After five answers: interval, decision and truth")
gain = {}
for number, (name, (model, _, _, expected)) in enumerate(runs.items()):
    before = np.mean(model.labels_ == expected)
    for _ in range(5):
        row = int(model.ask()[0])
        model.tell(row, expected[row])
    low, high = model.private_share_interval_
    after = np.mean(model.labels_ == expected)
    gain[name] = after - before
    axes.plot([100 * low, 100 * high], [-number, -number], lw=9, color="lightgray", solid_capstyle="butt")
    axes.plot(100 * np.mean(model.labels_ == "unknown"), -number, "o", color="tab:green")
    axes.plot(100 * np.mean(expected == "unknown"), -number, "kx", ms=9, mew=2)
    print(f"{name}: {100 * before:.0f} -> {100 * after:.0f} % right")
axes.set_yticks([-number for number in range(len(runs))], list(runs))
axes.set_xlabel("% of the collection")
axes.set_ylim(-len(runs) + 0.4, 0.6)
plt.show()
assert gain["nearly one kind"] > 0.3
assert min(gain.values()) > -0.1

# %% [markdown]
# ## What can go wrong
#
# - **An estimate is believed because it is printed.** The estimated accuracy is off by 16 points on average
#   ([measured](../discovery.md#how-many-predictions-are-right)). It is there to warn, not to be quoted.
# - **No warning, and wrong all the same.** If a tenth of a collection is new, part of it is called known, and most
#   predictions are right: nothing warns. Look at the least sure samples of each class.
# - **A pretty map.** t-SNE draws clusters in noise. Trust samples that you looked at.
# - **Tests on what decided.** A score on samples that chose a setting, or that were answered, is too good. Keep sixty
#   that nobody touched.
# - **The right answer to another question.** "Unknown" means not of your classes. It does not mean new to the world,
#   or interesting.
