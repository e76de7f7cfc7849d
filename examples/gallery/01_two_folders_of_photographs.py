"""Two folders of photographs in five minutes: adapt, look, ask."""

# %% [markdown]
# # Two folders of photographs in five minutes
#
# One folder is sorted into classes, the other is not. One command labels what both have in common and groups the
# rest.
#
# The map has a point for every photograph of the unsorted folder. Coloured points got the name of a class, black ones
# are "unknown", and their numbers are the groups that were found among them. No photograph is shown, because those of
# Office-31 may not be passed on; `uniot report run/` shows yours.

# %% [markdown]
# ## The folders
#
# Both are links to photographs of Office-31: `labelled/` has 20 kinds of things before a web camera, `unlabelled/`
# has photographs by a better camera of ten of these kinds, and of eleven others. Without `UNIOT_DATA`, handwritten
# digits of two archives take their place.

# %%
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

import uniot
from uniot.datasets.catalogue import benchmark_set
from uniot.datasets.digits import load_digits_pair

folder = Path(tempfile.mkdtemp())
archive = Path(os.environ.get("UNIOT_DATA", "absent")) / "office31" / "office31.tar"
MOST = 12  # photographs of a class, so that this page takes a minute


truth_of = {}  # file of the unsorted folder: its kind, for the score at the end


def add(side, files_and_kinds):
    """Sort files into `labelled/`; number those of `unlabelled/` in a random order, so that no name tells the kind."""
    order = np.random.default_rng(0).permutation(len(files_and_kinds))
    for number, (file, kind) in enumerate(files_and_kinds[row] for row in order):
        place = folder / side / (kind if side == "labelled" else "") / f"{number:04d}{file.suffix}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(file)
        if side == "unlabelled":
            truth_of[place.name] = kind


if archive.exists():
    with tarfile.open(archive) as packed:
        packed.extractall(folder / "all", filter="data")
    split = benchmark_set("office31").split("open-partial")
    for side, domain, kinds in (("labelled", "webcam", split.source), ("unlabelled", "dslr", split.target)):
        images = folder / "all" / domain / "images"
        add(side, [(file, kind) for kind in kinds for file in sorted((images / kind).iterdir())[:MOST]])
else:
    digits = load_digits_pair()
    sides = {
        "labelled": (digits.source_images, digits.source_labels),
        "unlabelled": (digits.target_images, digits.oracle_target_labels),
    }
    for side, (images, labels) in sides.items():
        files = []
        for row in np.concatenate([np.flatnonzero(labels == name)[: 3 * MOST] for name in np.unique(labels)]):
            files.append((folder / f"{side}-{row}.png", f"digit {labels[row]}"))
            pixels = (255 * (1 - images[row].clip(0, 1))).astype(np.uint8)
            Image.fromarray(pixels).resize((112, 112)).save(files[-1][0])
        add(side, files)

for side in ("labelled", "unlabelled"):
    print(side, sum(path.is_file() for path in (folder / side).rglob("*")), "images")

# %% [markdown]
# ## One command
#
# The first run exports the network, which takes some seconds, and embeds both folders. In a terminal: `uniot adapt
# labelled/ unlabelled/ --out run/`.


# %%
def command(*words):
    """Run a command line of uniot and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "uniot", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


print(command("adapt", "labelled/", "unlabelled/", "--out", "run/"))

# %% [markdown]
# ## The map
#
# `run/predictions.csv` has a row per photograph. The map puts photographs side by side whose embeddings are similar
# (t-SNE).

# %%
from sklearn.manifold import TSNE

run = uniot.Run.open(folder / "run")
table = run.predictions
labels, groups = np.array(table.labels), np.array(table.groups)
command("embed", "unlabelled/", "--out", "target.npz")
target = np.load(folder / "target.npz")
assert target["ids"].tolist() == table.names
places = TSNE(random_state=0, init="pca", metric="cosine").fit_transform(target["x"].astype(np.float32))

found = sorted(set(labels) - {"unknown"})
figure, axes = plt.subplots(figsize=(7.2, 4.6))
axes.set_title("One point per photograph of the unsorted folder")
for number, name in enumerate(found):
    mine = labels == name
    axes.scatter(*places[mine].T, s=22, color=plt.get_cmap("tab20")(number % 20))
    axes.annotate(name, np.median(places[mine], axis=0), ha="center", fontsize=8, fontweight="bold")
unknown = labels == "unknown"
axes.scatter(*places[unknown].T, s=10, color="black", alpha=0.6)
for group in sorted(set(groups[unknown])):
    middle = np.median(places[unknown & (groups == group)], axis=0)
    axes.annotate(f"{group}", middle, ha="center", va="center", fontsize=8, bbox={"boxstyle": "circle", "fc": "white"})
axes.set_axis_off()
plt.show()

# %% [markdown]
# ## Was it right?
#
# Here somebody knows the kinds of the unsorted photographs. With true labels, `uniot evaluate` scores a run; they are
# read now, after everything is decided. Below, one row per true kind, and what its photographs were called.

# %%
truth = np.array([truth_of[name] for name in table.names])
source = sorted(path.name for path in (folder / "labelled").iterdir())
scores = uniot.evaluate(truth, labels, source_classes=source)
print(f"H-score {100 * scores.h_score:.0f}, right in all {100 * scores.overall_accuracy:.0f} %")
print("new classes: found", len(set(groups[unknown])), "- there are", len(set(truth) - set(source)))
assert scores.h_score > 0.5  # better than calling all of it known or all of it unknown, which scores 0

kinds = [name for name in sorted(set(truth)) if name in source] + [
    name for name in sorted(set(truth)) if name not in source
]
parts = np.array(
    [[np.mean(labels[truth == kind] == kind), np.mean(labels[truth == kind] == "unknown")] for kind in kinds]
)
figure, axes = plt.subplots(figsize=(7.2, 4.4))
axes.set_title("What the photographs of each true kind were called")
axes.barh(kinds, parts[:, 0], color="tab:green", label="its own class")
axes.barh(kinds, parts[:, 1], left=parts[:, 0], color="black", alpha=0.6, label="unknown")
axes.barh(kinds, 1 - parts.sum(axis=1), left=parts.sum(axis=1), color="tab:red", label="another class")
axes.axhline(len(set(kinds) & set(source)) - 0.5, color="gray", lw=0.8)
axes.set_xlabel("fraction of the photographs; above the line are kinds that the sorted folder lacks")
axes.legend(loc="upper center", bbox_to_anchor=(0.4, -0.14), ncols=3)
axes.tick_params(axis="y", labelsize=7)
plt.show()

# %% [markdown]
# ## Then
#
# `uniot ask run/ --open` asks ten questions, which settle how much is unknown ([ten answers](04_ten_answers.md)),
# `uniot report run/` draws all of this with your photographs in it, and `uniot label run/ --open` lets you name the
# groups.
#
# ## What can go wrong
#
# - **Too few photographs.** With fewer than three of a class, or a hundred unsorted ones, the run warns, and means
#   it.
# - **Nothing is sorted**: `labelled/` needs a folder per class. Photographs that lie directly in it are refused, with
#   what to do.
# - **The network has never seen such pictures**, as with X-rays or spectra: everything becomes unknown, or everything
#   known. [Another backbone](08_choosing_a_backbone.md) often helps more than another method.
# - **A group is not a class.** Two kinds may share a group and one kind may have two: name them on the page, where a
#   click moves a photograph.
