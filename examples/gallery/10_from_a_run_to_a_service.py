"""From a run to ONNX to a small web service."""

# %% [markdown]
# # From a run to ONNX to a small service
#
# A fitted run becomes one file, and forty lines around it answer over HTTP, without uniot and without torch.
#
# Top: digits as they were sent, and the answers of the service. The histogram is the time from a request to its
# answer, on a machine that was busy with other work.

# %% [markdown]
# ## A run
#
# `save` writes a run folder, as `uniot adapt` does. The pixels of digits are the embeddings here; of a run from
# images, the file holds the backbone too and takes pixels.

# %%
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import uniot
from uniot import UniNCM
from uniot.datasets.digits import load_digits_pair

folder = Path(tempfile.mkdtemp())
pair = load_digits_pair()
rows = np.random.default_rng(0).permutation(len(pair.target_images))
x = pair.target_images.reshape(-1, 784)[rows].astype(np.float32)
x_source, y_source = pair.source_images.reshape(-1, 784), pair.source_labels.astype(str)
UniNCM(random_state=0).fit(x_source, y_source, x[:600]).save(folder / "run")
print(sorted(path.name for path in (folder / "run").iterdir()))

# %% [markdown]
# ## One file
#
# In a terminal: `uniot export run/ --out model.onnx`.

# %%
words = [sys.executable, "-m", "uniot", "export", "run/", "--out", "model.onnx"]
subprocess.run(words, cwd=folder, check=True, capture_output=True)
print(f"model.onnx: {(folder / 'model.onnx').stat().st_size / 1e6:.1f} MB")

# %% [markdown]
# ## The service
#
# The whole program. It needs `pip install onnxruntime numpy`. Class names and the word for unknown are in the
# metadata of the file.

# %%
SERVICE = """
import json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("model.onnx")
about = session.get_modelmeta().custom_metadata_map
classes, unknown = json.loads(about["classes"]), json.loads(about["unknown"])
width = session.get_inputs()[0].shape[1]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self):
        try:
            length = int(self.headers["Content-Length"])
            if length > 10_000_000:
                raise ValueError("more than 10 MB")
            rows = np.array(json.loads(self.rfile.read(length)), np.float32)
            if rows.ndim != 2 or rows.shape[1] != width or not np.isfinite(rows).all():
                raise ValueError(f"expected finite rows of {width} numbers")
        except (ValueError, TypeError) as error:
            return self.answer(400, {"error": str(error)})
        names = ["nearest", "known", "confidence", "group"]
        found = zip(*(part.tolist() for part in session.run(names, {"embeddings": rows})))
        self.answer(200, [
            {"label": classes[near] if known else unknown, "confidence": sure, "group": group}
            for near, known, sure, group in found
        ])

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""
(folder / "service.py").write_text(SERVICE)
service = subprocess.Popen([sys.executable, "service.py"], cwd=folder, stdout=subprocess.PIPE, text=True)
address = f"http://127.0.0.1:{int(service.stdout.readline())}"


def ask(samples):
    """Send samples to the service; return its answers."""
    with urllib.request.urlopen(address, json.dumps(samples.tolist()).encode()) as reply:
        return json.load(reply)


# %% [markdown]
# ## Ask it
#
# 200 requests of one digit each, and one of a thousand. The answers are those of the run in Python.

# %%
try:
    new, taken, answers = x[600:1600], [], []
    for sample in new[:200]:
        started = time.perf_counter()
        answers += ask(sample[None])
        taken.append(time.perf_counter() - started)
    started = time.perf_counter()
    together = ask(new)
    at_once = time.perf_counter() - started
    try:
        ask(np.zeros((1, 3)))
    except urllib.error.HTTPError as refused:
        print("three numbers:", refused.code, json.load(refused)["error"])
finally:
    service.terminate()
    service.wait()

expected = uniot.load(folder / "run").predict(new)
same = np.mean([answer["label"] for answer in together] == expected)
print(f"one at a time: {1000 * np.median(taken):.1f} ms (median); a thousand at once: {at_once:.2f} s")
print(f"labels equal to those of uniot.load(run).predict: {100 * same:.1f} %")
assert same == 1
assert [answer["label"] for answer in answers] == [answer["label"] for answer in together[:200]]

# %%
figure = plt.figure(figsize=(7.4, 4))
grid = figure.add_gridspec(2, 8, height_ratios=(1, 1.5))
for column in range(8):
    axes = figure.add_subplot(grid[0, column])
    axes.imshow(new[column].reshape(28, 28), cmap="gray_r")
    axes.set_xlabel(f"{answers[column]['label']}\n{100 * answers[column]['confidence']:.0f} %")
    axes.set_xticks([])
    axes.set_yticks([])
axes = figure.add_subplot(grid[1, :])
axes.set_title("Milliseconds from a request to its answer")
axes.hist(np.clip(1000 * np.array(taken), 0, 4000 * np.median(taken)), bins=40, color="tab:gray")
axes.set_ylabel("requests")
plt.show()

# %% [markdown]
# ## What can go wrong
#
# - **Other preprocessing.** Send what the run saw: embeddings of the same network, or pixels that are prepared as the
#   metadata say. `examples/run_onnx.py` does it for images.
# - **A frozen model.** The file adapts no further. Watch the [stream](09_a_stream_of_images.md), and export again
#   after a new fit.
# - **Who may ask?** This service listens on the machine itself and knows no passwords. Put it behind a server that
#   does.
# - **A copy of the target is in the file.** A run of UniNCM keeps features of target samples, among which it looks
#   for neighbours. With `store_target=False` (`--forget-target`) these are averages of at least five.
