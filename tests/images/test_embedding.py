from __future__ import annotations

import hashlib
import os
import threading
from itertools import chain
from unittest import mock

import numpy as np
import pytest
import torch

from uniot.errors import DataError, RunFolderError
from uniot.images import embedding
from uniot.images.embedding import ImageEmbeddings, Skipped, extract, extract_blocks
from uniot.images.files import ImageFile
from uniot.images.store import EmbeddingStore


@pytest.fixture
def store(tmp_path):
    return EmbeddingStore(tmp_path / "store")


@pytest.fixture
def every_call(monkeypatch):
    """Progress is told for every file."""
    monkeypatch.setattr("uniot.images.embedding._SECONDS_BETWEEN_CALLS", 0)


def unusable(folder):
    (folder / "empty.jpg").write_bytes(b"")
    (folder / "text.jpg").write_text("no picture")
    return [ImageFile(folder / name, name) for name in ("empty.jpg", "text.jpg", "gone.jpg")]


def with_broken(files, folder):
    """The files with three among them that cannot be used."""
    broken = unusable(folder)
    return [files[0], broken[0], *files[1:3], broken[1], *files[3:], broken[2]]


def together(blocks: list[ImageEmbeddings]) -> np.ndarray:
    return np.concatenate([block.values for block in blocks if block.files])


# --- what comes out ---------------------------------------------------------------------------------------


def test_rows_are_the_embeddings_in_the_order_of_the_files(photographs, small):
    files = photographs(11)
    extraction = extract(files, small, batch_size=4)
    prepared = np.stack([small.preparation.read(file.path.read_bytes()) for file in files])
    expected = small.network(small.preparation.normalise(torch.from_numpy(prepared)))
    np.testing.assert_allclose(extraction.values, expected, rtol=2e-3, atol=1e-3 * float(expected.abs().max()))
    assert extraction.values.dtype == np.float16
    assert extraction.files == files
    assert extraction.kept.tolist() == list(range(11))
    assert extraction.contents == [hashlib.sha256(file.path.read_bytes()).hexdigest() for file in files]
    assert extraction.computed == 11
    assert extraction.seconds > 0


def test_activations_of_a_trunk_keep_their_shape(photographs, small, store):
    files, split = photographs(5), small.split("last")
    extraction = extract(files, split, store, batch_size=4)
    with torch.no_grad():
        embeddings = split.tail(torch.from_numpy(extraction.values).float())
    np.testing.assert_allclose(embeddings, extract(files, small).values, rtol=1e-2, atol=1e-2)
    assert extraction.values.ndim == 4
    assert np.array_equal(extract(files, split, store, batch_size=4).values, extraction.values)


def test_rows_do_not_depend_on_the_rest_of_the_collection(photographs, small):
    files = photographs(13)
    everything = extract(files, small, batch_size=4).values
    assert np.array_equal(extract(files[::-1], small, batch_size=4).values, everything[::-1])
    assert np.array_equal(extract(files[6:7], small, batch_size=4).values, everything[6:7])


def test_any_number_of_threads_gives_the_same(photographs, small):
    files = photographs(9)
    assert np.array_equal(extract(files, small, workers=1).values, extract(files, small, workers=7).values)


def test_default_backbone_keeps_and_finds_its_embeddings(photographs, default, store):
    files = photographs(3)
    computed, known = extract(files, default, store), extract(files, default, store)
    assert computed.values.shape == (3, 1280)
    assert (computed.computed, known.computed) == (3, 0)
    assert np.array_equal(computed.values, known.values)
    assert np.array_equal(extract(files[2:], default).values, computed.values[2:])


def test_network_that_is_trained_as_a_whole_leaves_nothing_to_keep(photographs, small, store, tmp_path):
    files = with_broken(photographs(5), tmp_path)
    extraction = extract(files, small.split("all"), store)
    assert extraction.values.shape == (5, 0)
    assert extraction.kept.tolist() == [0, 2, 3, 5, 6]
    assert extract(files, small.split("all"), store).computed == 0


def test_blocks_for_a_network_that_is_trained_as_a_whole_are_the_images(photographs, small, store):
    files, split = photographs(5), small.split("all")
    blocks = list(extract_blocks(files, split, store, block_size=3))
    prepared = np.stack([small.preparation.read(file.path.read_bytes()) for file in files])
    expected = small.preparation.normalise(torch.from_numpy(prepared)).half()
    assert np.array_equal(together(blocks), expected)
    assert store.size() == 0


# --- files that cannot be used ----------------------------------------------------------------------------


def test_unusable_files_are_skipped_with_the_reason(photographs, small, store, tmp_path):
    files = with_broken(photographs(6), tmp_path)
    extraction = extract(files, small, store, batch_size=4)
    assert extraction.skipped == [
        Skipped("empty.jpg", "empty file"),
        Skipped("text.jpg", "not an image: none of JPEG, PNG, WebP, GIF, TIFF, BMP"),
        Skipped("gone.jpg", "no such file or directory"),
    ]
    assert extraction.kept.tolist() == [0, 2, 3, 5, 6, 7]
    assert [files[place] for place in extraction.kept] == extraction.files
    assert np.array_equal(extraction.values, extract(extraction.files, small, batch_size=4).values)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes by name")
def test_pipe_and_folder_are_not_waited_for(photographs, small, tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "folder.jpg").mkdir()
    files = [ImageFile(tmp_path / name, name) for name in ("pipe.jpg", "folder.jpg")]
    skipped = extract([*files, *photographs(1)], small).skipped
    assert [one.reason for one in skipped] == ["not a regular file", "is a directory"]


def test_strict_reading_stops_at_the_first_unusable_file(photographs, small, tmp_path):
    files = with_broken(photographs(6), tmp_path)
    with pytest.raises(DataError, match=r"empty.jpg cannot be used \(empty file\). Replace or remove it"):
        extract(files, small, strict=True)
    assert len(extract(files[2:4], small, strict=True).files) == 2


def test_collection_without_a_usable_file_is_an_error(small, tmp_path):
    broken = unusable(tmp_path)
    words = r"none of 3 images can be used; the first is \S+empty.jpg \(empty file\)\. Check .* relative to the folder"
    with pytest.raises(DataError, match=words):
        extract(broken, small)
    with pytest.raises(DataError, match=words):
        list(extract_blocks(broken, small, block_size=2))
    with pytest.raises(DataError, match=r"empty.jpg cannot be used \(empty file\)\. Give another image"):
        extract(broken[:1], small)


def test_no_files_are_an_error_for_a_collection_and_no_blocks_for_a_stream(small):
    with pytest.raises(DataError, match="there are no images to read"):
        extract([], small)
    assert list(extract_blocks(iter([]), small)) == []


# --- what is known is not computed ------------------------------------------------------------------------


def test_known_files_are_not_decoded_again_wherever_they_lie(photographs, small, store, tmp_path, monkeypatch):
    files = photographs(6)
    before = extract(files, small, store)
    moved = [ImageFile(file.path.rename(tmp_path / f"moved-{file.name}"), file.name) for file in files]
    monkeypatch.setattr("uniot.images.preparation.decoded", None)
    after = extract(moved, small, store)
    assert after.computed == 0
    assert np.array_equal(after.values, before.values)


def test_changed_file_is_computed_again(photographs, small, store, picture):
    files = photographs(4)
    before = extract(files, small, store)
    files[2].path.write_bytes(picture(99))
    after = extract(files, small, store)
    assert after.computed == 1
    assert np.array_equal(after.values[[0, 1, 3]], before.values[[0, 1, 3]])
    assert not np.array_equal(after.values[2], before.values[2])


def test_other_weights_are_other_embeddings(photographs, small, backbone, store):
    files = photographs(3)
    extract(files, small, store)
    assert extract(files, backbone("test_resnet"), store).computed == 3
    changed = small.split("none")
    with torch.no_grad():
        next(changed.trunk.parameters()).mul_(2)
    assert extract(files, changed, store).computed == 3


def test_store_keeps_averaged_embeddings_apart(photographs, small, store):
    files = photographs(3)
    plain = extract(files, small.split("none"), store)
    flipped = extract(files, small.split("none", flip=True), store)
    assert flipped.computed == 3
    assert not np.array_equal(flipped.values, plain.values)
    for flip, expected in ((False, plain), (True, flipped)):
        again = extract(files, small.split("none", flip=flip), store)
        assert again.computed == 0
        assert np.array_equal(again.values, expected.values)


@pytest.mark.parametrize("kept", [True, False])
def test_same_content_is_computed_once(photographs, small, store, kept):
    files = photographs(5)
    for place in (1, 4):
        files[place].path.write_bytes(files[0].path.read_bytes())
    extraction = extract(files, small, store if kept else None, batch_size=2)
    assert extraction.computed == 3
    assert np.array_equal(extraction.values[[1, 4]], extraction.values[[0, 0]])
    assert len(set(extraction.contents)) == 3


def test_interrupted_extraction_goes_on_where_it_was(photographs, small, store, every_call):
    files = photographs(12)

    class Killed(Exception):
        pass

    def stop(done, total, computed, rate):
        if computed >= 4:
            raise Killed

    with pytest.raises(Killed):
        extract(files, small, store, batch_size=2, on_progress=stop)
    again = extract(files, small, store, batch_size=2)
    assert again.computed <= 8
    assert np.array_equal(again.values, extract(files, small, batch_size=2).values)


def test_what_another_process_computed_meanwhile_is_taken_from_it(photographs, small, store):
    files = photographs(8)
    blocks = extract_blocks(files, small, store, block_size=2, batch_size=4)
    first = next(blocks)
    extract(files, small, store, batch_size=4)
    assert sum(block.computed for block in [first, *blocks]) == 2


def test_store_that_cannot_be_written_stops_the_extraction(photographs, small, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(RunFolderError, match="embeddings cannot be stored"):
        extract(photographs(2), small, EmbeddingStore(tmp_path / "file"))


# --- blocks and progress ----------------------------------------------------------------------------------


@pytest.mark.parametrize("block_size", [1, 3, 5, 10, 100])
def test_blocks_are_the_whole_in_parts(photographs, small, store, tmp_path, block_size):
    files = with_broken(photographs(7), tmp_path)
    whole = extract(files, small, batch_size=2)
    blocks = list(extract_blocks(iter(files), small, store, block_size=block_size, batch_size=2))
    assert len(blocks) == -(-len(files) // block_size)
    assert np.array_equal(together(blocks), whole.values)
    assert list(chain.from_iterable(block.kept for block in blocks)) == whole.kept.tolist()
    assert list(chain.from_iterable(block.files for block in blocks)) == whole.files
    assert list(chain.from_iterable(block.skipped for block in blocks)) == whole.skipped
    assert list(chain.from_iterable(block.contents for block in blocks)) == whole.contents


def test_stream_is_read_only_a_little_ahead(photographs, small):
    files = photographs(60)
    read = []
    stream = (read.append(file) or file for file in files)
    blocks = extract_blocks(stream, small, block_size=5, batch_size=2, workers=2)
    next(blocks)
    assert len(read) <= 5 + 2 * 2 + 2
    blocks.close()


def test_threads_end_with_the_stream(photographs, small):
    before = threading.active_count()
    blocks = extract_blocks(photographs(20), small, block_size=3, batch_size=2)
    next(blocks)
    blocks.close()
    assert threading.active_count() == before


def test_progress_tells_what_is_done_and_ends_with_everything(photographs, small, store, tmp_path, every_call):
    files = with_broken(photographs(6), tmp_path)
    calls = []
    extract(files, small, store, batch_size=2, on_progress=lambda *call: calls.append(call))
    done, totals, computed, rates = zip(*calls, strict=True)
    assert len(calls) > 3
    assert list(done) == sorted(done)
    assert list(computed) == sorted(computed)
    assert set(totals) == {9}
    assert (done[-1], computed[-1]) == (9, 6)
    assert all(rate > 0 for rate in rates[1:])


def test_progress_is_reported_before_the_network_is_prepared(photographs, small, monkeypatch):
    calls = []
    monkeypatch.setattr(embedding, "FrozenTrunk", mock.Mock(side_effect=AssertionError("prepared")))
    with pytest.raises(AssertionError, match="prepared"):
        extract(photographs(3), small, on_progress=lambda *call: calls.append(call))
    assert calls == [(0, 3, 0, 0.0)]


def test_that_all_is_done_is_told_once_with_every_row_computed(photographs, small, every_call):
    calls = []
    extract(photographs(6), small, batch_size=2, on_progress=lambda *call: calls.append(call))
    assert [call[2] for call in calls if call[0] == 6] == [6]


def test_progress_of_a_stream_of_unknown_length_has_no_total_before_its_end(photographs, small, every_call):
    calls = []
    for _ in extract_blocks((file for file in photographs(3)), small, on_progress=lambda *call: calls.append(call)):
        pass
    assert {call[1] for call in calls[:-1]} == {0}
    assert calls[-1][:3] == (3, 3, 3)
