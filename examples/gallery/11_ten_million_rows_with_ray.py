"""Label many rows with Ray, in shards that survive a crash."""

# %% [markdown]
# # Ten million rows with Ray
#
# A run that was fitted to a sample labels a collection of any size, shard by shard. Here 200 000 rows; the command
# takes any number.
#
# Left: rows that were finished, by the second; a worker first has to start, and the machine that made this page was
# busy with other work. Right: the labels of all rows.

# %% [markdown]
# ## A run, and a folder of Parquet files
#
# Gaussian classes, of which eight are common, four only in the source, and four only in the target. The model is
# fitted to 2000 rows. The rest stands in Parquet files with a column `x` of lists and one of names, as `uniot embed
# --engine ray` writes them.

# %%
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import uniot
from uniot import UniNCM
from uniot.datasets import make_toy_domains
from uniot.distributed import predict_shards

# The pages of the gallery run scripts without arguments: 200 000 rows.
ROWS = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 200_000
PER_FILE = 20_000
folder = Path(tempfile.mkdtemp())
toy = make_toy_domains(8, 4, 4, samples_per_class=170, dimensions=64, spread=0.9, seed=0)
UniNCM(random_state=0).fit(toy.x_source, toy.y_source, toy.x_target).save(folder / "run")

(folder / "embeddings").mkdir()
generator = np.random.default_rng(0)
for number, first in enumerate(range(0, ROWS, PER_FILE)):
    # More samples of the same classes: rows of the target with some noise.
    drawn = generator.integers(len(toy.x_target), size=min(PER_FILE, ROWS - first))
    x = (toy.x_target[drawn] + 0.02 * generator.normal(size=(len(drawn), 64))).astype(np.float32)
    names = [f"row {first + row}" for row in range(len(drawn))]
    column = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 64)
    pq.write_table(pa.table({"ids": names, "x": column}), folder / "embeddings" / f"part-{number:05d}.parquet")
print(f"{ROWS} rows in {len(list(folder.glob('embeddings/*.parquet')))} files")

# %% [markdown]
# ## Predict
#
# In a terminal: `uniot predict run/ embeddings/ --engine ray --out predictions/`. Without a cluster, Ray is started
# on this machine and stopped; with `RAY_ADDRESS` the command joins one. The input and output can be at `s3://` and
# other URLs.

# %%
progress = []
started = time.perf_counter()


def finished(done, *_):
    """Called while it works, with the number of rows that are finished."""
    progress.append((time.perf_counter() - started, done))


output = predict_shards(folder / "run", folder / "embeddings", folder / "predictions", on_progress=finished)
seconds = time.perf_counter() - started
print(f"{output.rows} rows in {output.n_shards} shards, {100 * output.n_known / output.rows:.0f} % known")
assert output.rows == ROWS
assert output.n_computed == output.n_shards

# %%
labels = Counter()
for part in sorted((folder / "predictions").glob("*.parquet")):
    labels.update(pq.read_table(part, columns=["label"])["label"].to_pylist())
figure, (left, right) = plt.subplots(1, 2, figsize=(7.8, 3))
left.set_title("Rows finished")
left.plot(*np.array([(0, 0), *progress, (seconds, output.rows)]).T, color="tab:green")
left.set_xlabel("seconds")
right.set_title("Labels")
shown = sorted(labels)
right.barh(
    shown, [labels[name] for name in shown], color=["black" if name == "unknown" else "tab:green" for name in shown]
)
right.tick_params(axis="y", labelsize=8)
figure.tight_layout()
plt.show()

# %% [markdown]
# ## The same numbers
#
# A row is predicted alone, so the labels are those of the run in one process.

# %%
table = pq.read_table(folder / "embeddings" / "part-00000.parquet")
x = np.stack(table["x"].to_pylist()[:2000]).astype(np.float32)
alone = uniot.load(folder / "run").predict(x)
(first, *_) = sorted((folder / "predictions").glob("*.parquet"))
same = np.mean(np.array(pq.read_table(first)["label"].to_pylist()[:2000]) == alone)
print(f"equal to uniot.load(run).predict: {100 * same:.1f} %")
assert same == 1

# %% [markdown]
# ## After a crash
#
# A part appears under its name only when it is complete, and the same command computes what is missing. Here two
# parts are lost.

# %%
for part in sorted((folder / "predictions").glob("*.parquet"))[:2]:
    part.unlink()
output = predict_shards(folder / "run", folder / "embeddings", folder / "predictions")
print(f"computed again: {output.n_computed} of {output.n_shards} shards")
assert output.n_computed == 2

# %% [markdown]
# ## Ten million
#
# ```console
# $ python examples/gallery/11_ten_million_rows_with_ray.py 10000000
# ```
#
# needs 3 GB of disk for the generated rows. This was not run for this page. What ten million rows took elsewhere, and
# what a billion would take, is [measured and reckoned](../scale.md#what-it-costs).
#
# ## What can go wrong
#
# - **Ray for a small job.** It takes some ten seconds to start. On one machine, `uniot predict run/ new.npy` without
#   it is as fast.
# - **Rare classes.** The run knows the classes that its sample had. One with fewer than some twenty rows there is
#   lost in all ten million.
# - **Another network.** Rows must come from the network that made those of the run; a folder that `uniot embed` wrote
#   says which.
# - **The time per row grows with the sample.** UniNCM compares a new row with all target rows of the run, at most 50
#   000. For speed, fit to a smaller sample.
# - **An open cluster.** Whoever reaches the ports of a Ray cluster can run code on it.
