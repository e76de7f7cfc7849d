"""Ten answers about digits: which are asked, what they change."""

# %% [markdown]
# # Ten answers
#
# How much of a collection is unknown cannot be read off the data alone. A person settles it in a minute.
#
# These are the ten digits that a model asked about, in this order: "is it one of my classes, and which?". Below each
# is what the model believed before, and the answer.

# %% [markdown]
# ## Labelled digits, and others
#
# The labelled digits 0 to 5 are from scikit-learn. The unlabelled ones are from MNIST: 0 to 3 are there, 4 and 5 are
# not, 6 to 9 are new. Both come with the install. The pixels are the embedding.

# %%
import matplotlib.pyplot as plt
import numpy as np

from uniot import UniNCM, h_score
from uniot.datasets.digits import load_digits_pair

pair = load_digits_pair()
rows = np.random.default_rng(0).permutation(len(pair.target_images))[:1000]
images, truth = pair.target_images[rows], pair.oracle_target_labels[rows].astype(str)
x_source, y_source = pair.source_images.reshape(-1, 784), pair.source_labels.astype(str)
x_target = images.reshape(-1, 784)
known = sorted(set(y_source))


def score(model):
    """H-score in per cent."""
    return 100 * h_score(truth, model.labels_, source_classes=known)


def answer(row):
    """What a person says of a digit: its class, or that it is none of the labelled ones."""
    return truth[row] if truth[row] in known else "unknown"


# %% [markdown]
# ## Ask, look, tell
#
# `ask` names the row whose answer says most, `tell` takes the answer; everything that the model says follows at once,
# without another fit.

# %%
model = UniNCM(random_state=0).fit(x_source, y_source, x_target)
scores, intervals, shares, asked = (
    [score(model)],
    [model.private_share_interval_],
    [np.mean(model.labels_ == "unknown")],
    [],
)
for _ in range(20):
    row = int(model.ask()[0])
    asked.append((row, model.labels_[row]))
    model.tell(row, answer(row))
    scores.append(score(model))
    intervals.append(model.private_share_interval_)
    shares.append(np.mean(model.labels_ == "unknown"))

figure, panels = plt.subplots(2, 5, figsize=(7.2, 3.4))
for axes, (row, believed) in zip(panels.flat, asked, strict=False):
    axes.imshow(images[row], cmap="gray_r")
    axes.set_xlabel(f"model: {believed}\nanswer: {answer(row)}", fontsize=8)
    axes.set_xticks([])
    axes.set_yticks([])
figure.suptitle("The first ten questions")
plt.show()

# %% [markdown]
# ## What they changed
#
# Left, the interval for the fraction of new digits, nine tenths probable, shrinks towards the truth. Right, the
# H-score. The gray lines are ten digits drawn at random instead of asked for, five times.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3))
lows, highs = np.array(intervals).T
left.set_title("Fraction of new digits: interval and decision")
left.fill_between(range(21), 100 * lows, 100 * highs, color="tab:gray", alpha=0.3)
left.plot(100 * np.array(shares), color="tab:green", label="called unknown")
left.axhline(100 * np.mean(~np.isin(truth, known)), color="black", ls="--", label="true")
left.legend()
right.set_title("H-score by number of answers")
for seed in range(5):
    other = UniNCM(random_state=0).fit(x_source, y_source, x_target)
    drawn = np.random.default_rng(seed).permutation(len(truth))[:20]
    line = [score(other)]
    for row in drawn:
        other.tell(int(row), answer(row))
        line.append(score(other))
    right.plot(line, color="gray", alpha=0.4, label="drawn at random" if seed == 0 else None)
right.plot(scores, color="tab:green", lw=2, label="asked for")
right.legend(loc="lower right")
for axes in (left, right):
    axes.set_xlabel("answers")
plt.show()
print(f"H-score: {scores[0]:.0f} without answers, {scores[10]:.0f} after ten, {scores[20]:.0f} after twenty")
print(
    f"interval: {100 * lows[0]:.0f} to {100 * highs[0]:.0f} % without, "
    f"{100 * lows[10]:.0f} to {100 * highs[10]:.0f} % after ten"
)
assert highs[10] - lows[10] < highs[0] - lows[0]
assert max(scores[10:]) >= scores[0]

# %% [markdown]
# ## A person who errs
#
# The model expects seven wrong answers in a hundred, so that no single one decides. Here the third answer is wrong on
# purpose.

# %%
careless = UniNCM(random_state=0).fit(x_source, y_source, x_target)
for number in range(10):
    row = int(careless.ask()[0])
    right_answer = answer(row)
    wrong = "0" if right_answer == "unknown" else "unknown"
    careless.tell(row, wrong if number == 2 else right_answer)
print(f"H-score after ten answers, one of them wrong: {score(careless):.0f}")
assert score(careless) > 50

# %% [markdown]
# ## What can go wrong
#
# - **Answers about what it is, not about your classes.** The question is "one of *my* classes?". A kind that you have
#   not labelled is "unknown", even if you know its name.
# - **"Cannot tell" is an answer.** Tell `None`: a guess costs more than it gives.
# - **Ten are not enough** if the score ranks samples badly: the interval stays wide. Go on until the page says that
#   another answer will hardly change a label, or look for [better embeddings](08_choosing_a_backbone.md).
# - **Scoring on what was asked.** Samples that were answered are right by decree: leave them out of a score, as
#   `uniot evaluate` does. (20 of 1000 hardly matter here.)
