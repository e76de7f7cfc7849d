"""Measure the text encoder beside a plain torch loop on the same sentences, in one process and with the same threads.

    python benchmarks/text_speed.py banking77_minilm.npz

The plain loop splits 32 texts at a time in the order given, pads them to the longest, and computes them with torch. The
loops are repeated in turn and the fastest of each counts, because other programs slow down both.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer as PlainTokenizer

from uniot.text import TextEncoder
from uniot.text.packaged import MOST_TOKENS, read_weights, tokenizer_file

BATCH = 32


def plain_loop(texts: list[str], weights: dict[str, torch.Tensor], tokenizer: PlainTokenizer) -> np.ndarray:
    """Return the embeddings by batches in the order given, with padding and a mask."""
    rows = []
    for start in range(0, len(texts), BATCH):
        split = tokenizer.encode_batch(texts[start : start + BATCH])
        tokens = torch.tensor([one.ids for one in split])
        mask = torch.tensor([one.attention_mask for one in split])
        with torch.inference_mode():
            outputs = forward(weights, tokens, mask)
            means = (outputs * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
            rows.append(torch.nn.functional.normalize(means).numpy())
    return np.concatenate(rows)


def forward(weights: dict[str, torch.Tensor], tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    functional = torch.nn.functional

    def dense(inputs: torch.Tensor, name: str) -> torch.Tensor:
        return functional.linear(inputs, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def normalised(inputs: torch.Tensor, name: str) -> torch.Tensor:
        scale, shift = weights[f"{name}.LayerNorm.weight"], weights[f"{name}.LayerNorm.bias"]
        return functional.layer_norm(inputs, scale.shape, scale, shift, 1e-12)

    place = weights["embeddings.position_embeddings.weight"][: tokens.shape[1]]
    outputs = weights["embeddings.word_embeddings.weight"][tokens] + place
    outputs = normalised(outputs + weights["embeddings.token_type_embeddings.weight"][0], "embeddings")
    there = mask[:, None, None, :].bool()
    for layer in range(6):
        name = f"encoder.layer.{layer}"
        heads = [
            dense(outputs, f"{name}.attention.self.{part}").unflatten(-1, (12, -1)).transpose(1, 2)
            for part in ("query", "key", "value")
        ]
        attended = functional.scaled_dot_product_attention(*heads, attn_mask=there).transpose(1, 2).flatten(2)
        hidden = normalised(dense(attended, f"{name}.attention.output.dense") + outputs, f"{name}.attention.output")
        inner = functional.gelu(dense(hidden, f"{name}.intermediate.dense"))
        outputs = normalised(dense(inner, f"{name}.output.dense") + hidden, f"{name}.output")
    return outputs


def seconds(run: Callable[[], np.ndarray]) -> tuple[float, np.ndarray]:
    start = time.perf_counter()
    rows = run()
    return time.perf_counter() - start, rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sentences", type=Path, help=".npz with test_text")
    parser.add_argument("--count", type=int, default=640)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    texts = [str(text) for text in np.load(options.sentences)["test_text"][: options.count]]
    weights = {name: torch.from_numpy(value) for name, value in read_weights().items()}
    tokenizer = PlainTokenizer.from_file(str(tokenizer_file()))
    tokenizer.enable_padding()
    tokenizer.enable_truncation(MOST_TOKENS)
    encoder = TextEncoder.open()
    best_plain = best = float("inf")
    for _ in range(options.repeats):
        taken_plain, expected = seconds(lambda: plain_loop(texts, weights, tokenizer))
        taken, rows = seconds(lambda: encoder.embed(texts))
        best_plain, best = min(best_plain, taken_plain), min(best, taken)
    cosine = (rows * expected).sum(1).min()
    print(f"{len(texts)} sentences, {options.threads} threads, the fastest of {options.repeats}")
    print(f"plain torch loop: {len(texts) / best_plain:.0f} sentences per second")
    print(f"uniot.text:       {len(texts) / best:.0f} sentences per second, {best_plain / best:.1f} times")
    print(f"least cosine between the two: {cosine:.6f}")


if __name__ == "__main__":
    main()
