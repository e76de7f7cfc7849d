"""New images every week: predict, notice that something changed, ask again."""

# %% [markdown]
# # A stream of new images
#
# A model labels what arrives each week. In week five the scanner is mounted askew. The scores show it before anybody
# complains.
#
# Top: digits of each week. Below: the distance of the week's known scores from those of the first weeks, which needs
# no label, with the alarm; and the accuracy, which nobody knows at the time.

# %% [markdown]
# ## A first fit
#
# Digits again: 0 to 5 of scikit-learn are labelled, MNIST's 0 to 3 and 6 to 9 arrive, 200 a week. The model is fitted
# to the first 800; the next ones are only predicted.

# %%
import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import rotate
from scipy.stats import ks_2samp

from uniot import UniNCM
from uniot.datasets.digits import load_digits_pair

pair = load_digits_pair()
order = np.random.default_rng(1).permutation(len(pair.target_images))
images, truth = pair.target_images[order], pair.oracle_target_labels[order].astype(str)
x_source, y_source = pair.source_images.reshape(-1, 784), pair.source_labels.astype(str)
known = sorted(set(y_source))
expected = np.where(np.isin(truth, known), truth, "unknown")

FIRST, WEEK, WEEKS, ASKEW = 800, 200, 9, 5
weeks = [np.arange(FIRST + WEEK * week, FIRST + WEEK * (week + 1)) for week in range(WEEKS)]
for week in range(ASKEW - 1, WEEKS):
    images[weeks[week]] = rotate(images[weeks[week]], 40, axes=(1, 2), reshape=False, order=1)
x = images.reshape(-1, 784)

model = UniNCM(random_state=0).fit(x_source, y_source, x[:FIRST])
for _ in range(10):
    row = int(model.ask()[0])
    model.tell(row, expected[row])

# %% [markdown]
# ## Every week: predict, and compare the scores
#
# The known scores of a week should be distributed as those of the weeks before. Kolmogorov and Smirnov's test says
# how surprising the difference is. Compare with samples that were predicted, not with those of the fit: a model is
# surer of these.

# %%
calm = model.known_score(x[np.concatenate(weeks[:2])])  # the first two weeks, looked at and found in order


def watch(model, calm):
    """Distance from the calm weeks, whether it is an alarm, and, after the fact, the accuracy of every week."""
    lines = []
    for week in weeks:
        test = ks_2samp(calm, model.known_score(x[week]))
        right = np.mean(model.predict(x[week]) == expected[week])
        lines.append((test.statistic, test.pvalue < 0.001, right))
    return np.array(lines)


before = watch(model, calm)
alarms = np.flatnonzero(before[:, 1]) + 1
print("alarm in weeks", alarms.tolist())
assert ASKEW in alarms
assert not set(alarms) & {1, 2, 3, 4}

# %% [markdown]
# ## Ask again
#
# After the alarm, the model is fitted again, to the 200 digits of week five, and asks ten questions. It then labels
# the weeks that follow.

# %%
again = UniNCM(random_state=0).fit(x_source, y_source, x[weeks[ASKEW - 1]])
for _ in range(10):
    row = int(again.ask()[0])
    again.tell(row, expected[weeks[ASKEW - 1][row]])
after = [np.mean(again.predict(x[week]) == expected[week]) for week in weeks[ASKEW:]]
late = before[ASKEW:, 2].mean()
print(f"accuracy from week 6: {100 * late:.0f} % if nothing is done, {100 * np.mean(after):.0f} % with the second fit")

# %%
figure, panels = plt.subplots(3, 1, figsize=(7.4, 5), height_ratios=(1, 1.6, 1.6))
strip = np.concatenate([np.concatenate(list(images[week[:2]]), axis=0) for week in weeks], axis=1)
panels[0].imshow(strip, cmap="gray_r", aspect="auto", extent=(0.5, WEEKS + 0.5, 0, 1))
panels[0].set_axis_off()
panels[0].set_title("Two digits of each week")
numbers = np.arange(1, WEEKS + 1)
alarm = before[:, 1] > 0
panels[1].set_title("Distance of the known scores from the calm weeks")
panels[1].bar(numbers, before[:, 0], color=np.where(alarm, "tab:red", "tab:gray"))
panels[2].set_title("Accuracy, known only afterwards")
panels[2].plot(numbers, 100 * before[:, 2], "o-", color="tab:gray", label="first model")
panels[2].plot(
    numbers[ASKEW:], 100 * np.array(after), "o-", color="tab:green", label="fitted again in week 5, ten answers"
)
panels[2].set_ylim(0, 100)
panels[2].set_xlabel("week; red: alarm")
panels[2].legend(loc="lower left")
figure.tight_layout()
plt.show()

# %% [markdown]
# ## On the command line
#
# ```console
# $ uniot predict run/ week-05/ --out week-05.csv               # every week; the column known and confidence
# $ uniot adapt labelled/ week-05/ --out run-05/                # after the alarm: a run of its own
# $ uniot ask run-05/ --open
# $ uniot compare run/ run-05/                                  # if both hold the same samples: what changed
# ```
#
# ## What can go wrong
#
# - **A new class is not a drift of all.** If one sample in twenty is of a new kind, the distribution of the scores
#   hardly moves. Watch the number of unknown samples of each group too, and look at some of them.
# - **Classes that were absent at the fit.** They are hardly ever predicted for new samples: fit again if they may
#   have come.
# - **Many tests.** With a test every week, one in a thousand false alarms is one in twenty years; with a test every
#   minute it is one a day.
# - **No alarm is no proof.** A change that leaves the scores alone and moves the classes, such as labels that are
#   used differently now, shows only in answers: ask ten questions every few weeks.
