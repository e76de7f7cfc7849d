"""Text encoders of the package sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniot.errors import DataError, MissingPackageError, missing_package
from uniot.images.weights import prepare_torchvision

_BATCH_SIZE = 32
_BATCHES_AT_A_TIME = 16


class SentenceModel:
    """A model of sentence-transformers, by its name or its folder; weights are read from safetensors only.

    Args:
        name: name at Hugging Face, or folder.

    Raises:
        MissingPackageError: sentence-transformers is not installed.
        DataError: there is no such model, or it has code of its own or weights in another format.
    """

    made_by: str | None = None

    def __init__(self, name: str) -> None:
        prepare_torchvision()  # which sentence-transformers imports if it is there
        try:
            from sentence_transformers import SentenceTransformer
        except (ImportError, RuntimeError) as error:
            raise missing_package("sentence_transformers", "text", f"the text encoder {name}", error) from None
        try:
            # A pickle could execute code, and so could the code of a model.
            self._model: Any = SentenceTransformer(
                name, trust_remote_code=False, model_kwargs={"use_safetensors": True}
            )
        except MissingPackageError:
            raise
        except Exception as error:  # downloads and configurations fail with errors of every type
            reason = (str(error) or type(error).__name__).partition("\n")[0]
            raise DataError(
                f"the text encoder {name} cannot be loaded ({reason}). Give the name or the folder of a model of "
                "sentence-transformers with weights in .safetensors, or leave the name out for all-MiniLM-L6-v2, which "
                "needs no download."
            ) from None
        self.most_tokens: int | None = getattr(self._model, "max_seq_length", None)
        self._width = int(self._model.encode(["width"], show_progress_bar=False).shape[1])

    @property
    def width(self) -> int:
        """Return the length of a row."""
        return self._width

    def rows(self, texts: Sequence[str], on_rows: Callable[[int], None]) -> tuple[NDArray[np.float32], int]:
        """Return the rows of texts, (n_texts, width), and 0: which texts were cut is not known.

        Args:
            texts: (n_texts,).
            on_rows: callback with the number of rows that were computed since the last call.
        """
        rows = np.empty((len(texts), self.width), dtype=np.float32)
        size = _BATCH_SIZE * _BATCHES_AT_A_TIME
        for start in range(0, len(texts), size):
            part = list(texts[start : start + size])
            rows[start : start + size] = self._model.encode(part, batch_size=_BATCH_SIZE, show_progress_bar=False)
            on_rows(len(part))
        return rows, 0
