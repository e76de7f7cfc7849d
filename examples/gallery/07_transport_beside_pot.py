"""Unbalanced transport beside POT: accuracy, speed, gradient."""

# %% [markdown]
# # Transport beside POT
#
# The same problem, solved by `uniot.transport` and by [POT](https://pythonot.github.io/): one answer, in fewer
# passes, with a gradient.
#
# Left: the error of both after so much time. Right: time to the same accuracy, as a ratio, by the size of the
# problem.

# %% [markdown]
# ## A problem
#
# Samples and class prototypes on the sphere; half of the samples are near a prototype, the others near none. ε is
# 0.01 and the penalty of the marginals 0.5, as in UniOT.

# %%
import time
import warnings
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import ot
import torch
import torch.nn.functional as F
from threadpoolctl import threadpool_limits

from uniot.transport import balanced_plan, unbalanced_plan

EPSILON, PENALTY = 0.01, 0.5
torch.set_num_threads(1)
threadpool_limits(1)  # NumPy, which POT computes with
warnings.simplefilter("ignore")  # POT says so when it stops after its last iteration, which is meant here


def problem(n, classes, seed=0):
    """Cosines of n samples with classes, (n, classes), in double precision."""
    generator = torch.Generator().manual_seed(seed)
    prototypes = F.normalize(torch.randn(classes, 64, generator=generator, dtype=torch.float64), dim=1)
    near = prototypes[torch.randint(classes, (n // 2,), generator=generator)]
    noise = torch.randn(n, 64, generator=generator, dtype=torch.float64)
    noise[: n // 2] = near + 0.1 * noise[: n // 2]
    return F.normalize(noise, dim=1) @ prototypes.t()


def by_pot(similarity, iterations):
    """The plan after so many iterations of POT's Sinkhorn-Knopp."""
    n, classes = similarity.shape
    return ot.unbalanced.sinkhorn_knopp_unbalanced(
        np.full(n, 1 / n), np.full(classes, 1 / classes), -similarity.numpy(), reg=EPSILON, reg_m=PENALTY,
        reg_type="entropy", numItermax=iterations, stopThr=0,
    )  # fmt: skip


def by_uniot(similarity, tolerance):
    """The plan to some accuracy of its potentials."""
    return unbalanced_plan(similarity, epsilon=EPSILON, marginal_penalty=PENALTY, tolerance=tolerance)


def seconds(*functions, repeats=7):
    """Median processor time of each function; they take turns."""
    taken = [[] for _ in functions]
    for _ in range(repeats):
        for function, times in zip(functions, taken, strict=True):
            started = time.process_time()
            function()
            times.append(time.process_time() - started)
    return [float(np.median(times)) for times in taken]


# %% [markdown]
# ## One answer, sooner
#
# The reference is POT after 3000 iterations. Sinkhorn's error shrinks by a constant factor per iteration; the solver
# here takes Newton steps on the class potential, which is short.

# %%
similarity = problem(1000, 20)
reference = by_pot(similarity, 3000)


def error(plan):
    """Largest error of the plan, relative to its largest entry."""
    return float(np.abs(np.asarray(plan) - reference).max() / reference.max())


iterations = (10, 30, 100, 300, 600)
tolerances = (1e-2, 1e-3, 1e-4, 1e-6)
pot = [(seconds(partial(by_pot, similarity, count))[0], error(by_pot(similarity, count))) for count in iterations]
ours = [
    (seconds(partial(by_uniot, similarity, accuracy))[0], error(by_uniot(similarity, accuracy).matrix * 1.0))
    for accuracy in tolerances
]
print("passes at a tolerance of 1e-6:", by_uniot(similarity, 1e-6).passes, "- error", f"{ours[-1][1]:.0e}")
assert ours[-1][1] < 1e-4

sizes = ((300, 10), (1000, 20), (3000, 20), (3000, 60))
ratios = []
for n, classes in sizes:
    task = problem(n, classes)
    exact = by_pot(task, 3000)
    needed = next(
        count for count in (50, 100, 200, 400, 800, 1600)
        if np.abs(by_pot(task, count) - exact).max() < 1e-5 * exact.max()
    )  # fmt: skip
    of_pot, of_uniot = seconds(partial(by_pot, task, needed), partial(by_uniot, task, 1e-6))
    ratios.append(of_pot / of_uniot)
    print(f"{n} x {classes}: POT with {needed} iterations takes {ratios[-1]:.1f} times as long")

figure, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3))
left.set_title("Error after so much time, 1000 x 20")
left.loglog(
    *zip(*[(1000 * t, max(e, 1e-15)) for t, e in pot], strict=True),
    "o-",
    label="POT, 10 to 600 iterations",
    color="gray",
)
left.loglog(
    *zip(*[(1000 * t, max(e, 1e-15)) for t, e in ours], strict=True), "o-", label="uniot, tolerance 1e-2 to 1e-6"
)
left.set_xlabel("milliseconds of processor time")
left.set_ylabel("largest error of the plan")
left.legend(loc="upper center", bbox_to_anchor=(0.4, -0.17))
right.set_title("Time of POT / time of uniot, equal accuracy")
right.bar([f"{n}\nx {classes}" for n, classes in sizes], ratios, color="tab:blue")
right.axhline(1, color="black", lw=0.8)
plt.show()
assert min(ratios) > 1

# %% [markdown]
# ## The plan
#
# Rows are samples (every fifth), columns are classes. The first half are near a class, and each of their rows has one
# bright entry. The others spread less mass over several classes. That is the rule of UniOT: known is who receives at
# least the mean mass.

# %%
plan = by_uniot(similarity, 1e-6)
confidence = plan.sample_confidence.numpy() * len(similarity)
figure, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3))
left.set_title("Transport plan")
left.imshow(np.log10(plan.mass.numpy()[::5] + 1e-9), aspect="auto", cmap="viridis")
left.set_xlabel("class")
left.set_ylabel("sample")
right.set_title("Mass of each sample")
right.hist(
    [confidence[:500], confidence[500:]], bins=40, stacked=True, color=["tab:green", "black"], label=["near", "far"]
)
right.axvline(1, color="tab:red", ls="--", label="mean mass")
right.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=3)
plt.show()
assert (confidence[:500] >= 1).mean() > 0.95
assert (confidence[500:] >= 1).mean() < 0.05

# %% [markdown]
# ## A gradient
#
# With `gradient=True` the value and the plan carry one, by the envelope and the implicit function theorem: no
# iteration is recorded. The gradient of the value is the plan. Below, a function of the plan is compared with finite
# differences.

# %%
small = problem(40, 5, seed=1)
weights = torch.randn(40, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def of_the_plan(values, **options):
    """Any function of the plan."""
    return (
        weights * unbalanced_plan(values, epsilon=0.1, marginal_penalty=PENALTY, tolerance=1e-12, **options).matrix
    ).sum()


leaf = small.clone().requires_grad_(True)
by_value = torch.autograd.grad(unbalanced_plan(leaf, epsilon=0.1, tolerance=1e-12, gradient=True).value, leaf)[0]
by_theorem = torch.autograd.grad(of_the_plan(leaf, gradient=True), leaf)[0]
by_differences = torch.zeros_like(small)
for row, column in np.ndindex(*small.shape):
    nudge = torch.zeros_like(small)
    nudge[row, column] = 1e-5
    by_differences[row, column] = (of_the_plan(small + nudge) - of_the_plan(small - nudge)) / 2e-5
print(
    "value's gradient is the plan:",
    bool(torch.allclose(by_value, unbalanced_plan(small, epsilon=0.1, tolerance=1e-12).matrix)),
)
print(f"largest difference from finite differences: {float((by_theorem - by_differences).abs().max()):.0e}")
assert torch.allclose(by_theorem, by_differences, atol=1e-6)

figure, axes = plt.subplots(figsize=(4, 3))
axes.set_title("Gradient of a function of the plan")
axes.scatter(by_differences.flatten(), by_theorem.flatten(), s=8)
axes.set_xlabel("finite differences")
axes.set_ylabel("implicit function theorem")
plt.show()

# %% [markdown]
# ## Balanced, too
#
# `balanced_plan` is `ot.sinkhorn` with uniform marginals; three iterations give the codes of SwAV, more the exact
# plan.

# %%
task = problem(300, 10)
exact = ot.sinkhorn(np.full(300, 1 / 300), np.full(10, 1 / 10), -task.numpy(), 0.05, numItermax=5000, stopThr=0)
difference = np.abs(balanced_plan(task, 0.05, iterations=5000).mass.numpy() - exact).max()
print(f"largest difference from ot.sinkhorn: {difference:.0e}")
assert difference < 1e-8

# %% [markdown]
# ## What can go wrong
#
# - **A cost where a similarity is expected.** These functions take similarities. Of a cost C, give `-C`.
# - **A small ε in single precision.** Below about 0.001 for cosines, give doubles.
# - **A gradient of a plan that has not converged.** Both theorems hold at the solution: look at `plan.converged`.
# - **What is not here.** Exact transport, barycentres, Gromov-Wasserstein, other penalties than Kullback-Leibler: POT
#   has them.
# - **Times of another machine.** Ratios here are of processor time, medians of seven interleaved runs on one thread;
#   [the benchmark](../benchmark.md) has more.
