"""Files that somebody sent: pipes, devices, bombs and damage end in a sentence, at once and in little memory."""

from __future__ import annotations

import io
import json
import os
import shutil
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from uniot.errors import DataError, RunFolderError, SettingsError
from uniot.images.decoding import UnreadableImage, read_image
from uniot.io.embedding_files import read_embeddings
from uniot.io.files import only_one_writer, open_regular, parse_json, read_bounded
from uniot.io.predictions import read_predictions
from uniot.io.table_files import read_csv
from uniot.io.text import read_inputs, read_settings, read_text
from uniot.labelling.names import read_names
from uniot.labelling.store import label_lock
from uniot.runs.files import RunFiles
from uniot.runs.pictures import Pictures

posix = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes by name")


@pytest.fixture(params=["pipe", "device"])
def endless(request, tmp_path) -> Path:
    """A place that never ends: reading it would block, or fill the memory."""
    if request.param == "device":
        return Path("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


@posix
def test_nothing_but_regular_files_is_opened(endless, tmp_path):
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(endless)
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)


@posix
def test_no_reader_waits_for_a_place_that_never_ends(endless):
    with pytest.raises(UnreadableImage) as caught:
        read_image(endless)
    assert caught.value.reason == "not a regular file"
    for read, error in (
        (lambda: read_text(endless, ""), DataError),
        (lambda: read_csv(endless, with_x=True), DataError),
        (lambda: read_predictions(endless), RunFolderError),
        (lambda: read_names(endless), DataError),
        (lambda: read_settings(endless), SettingsError),
        (lambda: read_inputs(endless), SettingsError),
    ):
        with pytest.raises(error, match="not a regular file"):
            read()


@posix
def test_pictures_of_a_run_that_somebody_sent_are_regular_files(endless, tmp_path, little_memory):
    run = tmp_path / "run"
    run.mkdir()
    places = [str(endless.resolve()), "a\0b", str(tmp_path)]
    (run / "images.json").write_text(json.dumps({"source": [], "target": places}), encoding="utf-8")
    pictures = Pictures.open(run)
    for row in range(len(places)):
        with little_memory(), pytest.raises(DataError, match=r"cannot be read"):
            pictures.thumbnail("target", row, 64)


@pytest.mark.parametrize(
    "text", ["[]", "3", '{"source": []}', '{"source": [], "target": 3}', '{"source": [1], "target": []}', "[" * 10**5]
)
def test_places_of_pictures_that_are_no_lists_of_paths_are_refused(tmp_path, text):
    (tmp_path / "images.json").write_text(text, encoding="utf-8")
    with pytest.raises(RunFolderError, match=r"images.json cannot be read .* Make the run again"):
        Pictures.open(tmp_path)


@posix
@pytest.mark.parametrize("lock", [only_one_writer, label_lock])
def test_lock_in_a_folder_that_somebody_sent_changes_no_other_file(tmp_path, lock):
    (tmp_path / "mine").write_text("mine", encoding="utf-8")
    name = ".lock" if lock is only_one_writer else ".labels.lock"
    for number, make in enumerate((lambda at: at.symlink_to(tmp_path / "mine"), os.mkfifo)):
        folder = tmp_path / f"run{number}"
        folder.mkdir()
        make(folder / name)
        with pytest.raises(RunFolderError, match="cannot be written"), lock(folder):
            pass
    assert (tmp_path / "mine").read_text(encoding="utf-8") == "mine"


def test_no_more_is_read_than_was_asked_for(tmp_path, little_memory):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_bounded(path, 5) == b"12345"
    with pytest.raises(OSError, match="larger than 4 bytes"):
        read_bounded(path, 4)
    with path.open("wb") as sparse:
        sparse.truncate(1 << 40)
    with little_memory(), pytest.raises(OSError, match="larger than"):
        read_bounded(path, 1 << 20)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no files that claim to be empty")
def test_file_that_claims_to_be_empty_is_read():
    assert b"Name:" in read_bounded(Path("/proc/self/status"), 1 << 20)
    with pytest.raises(OSError, match="larger than 10 bytes"):
        read_bounded(Path("/proc/self/status"), 10)


@pytest.mark.parametrize(
    ("text", "words"), [("[" * 10**5, "too deeply"), ("9" * 301, "301 digits"), ("{", "Expecting")]
)
def test_json_with_traps_is_a_value_error(text, words):
    with pytest.raises(ValueError, match=words):
        parse_json(text)
    assert parse_json("9" * 300) == int("9" * 300)


def npz(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return path


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def promising(shape: tuple[int, ...], data: bytes = b"") -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return stream.getvalue() + data


def test_archive_that_promises_more_than_it_holds_takes_no_memory(tmp_path, little_memory):
    for shape in ((10**9, 1000), (10**18, 10**18), (2, 3)):
        path = npz(tmp_path / "x.npz", x=promising(shape, bytes(20)))
        with little_memory(), pytest.raises(DataError, match=r"its header announces|cannot be read"):
            read_embeddings(path)


@pytest.mark.medium
def test_archive_that_unfolds_a_thousandfold_takes_no_memory(tmp_path, little_memory):
    rows = 600_000  # 1.2 GB of zeros
    path = tmp_path / "x.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("x.npy", "w") as file,
    ):
        file.write(promising((rows, 500)))
        for _ in range(rows // 10_000):
            file.write(bytes(10_000 * 500 * 4))
    assert path.stat().st_size < 2e7
    with little_memory(), pytest.raises(DataError, match=r"to 1.2 GB, which embeddings never do"):
        read_embeddings(path)


def test_archive_that_compresses_well_and_is_small_is_read(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros((1000, 100), np.float32))
    assert read_embeddings(tmp_path / "x.npz").x.shape == (1000, 100)


@pytest.mark.parametrize("seed", range(40))
def test_damaged_archive_is_a_data_error_or_is_read_whole(tmp_path, seed, little_memory):
    rng = np.random.default_rng(seed)
    path = tmp_path / "x.npz"
    np.savez_compressed(path, x=rng.normal(size=(20, 5)).astype(np.float32), y=np.array(["a", "b"] * 10))
    data = bytearray(path.read_bytes())
    for place in rng.integers(4, len(data), 5):
        data[place] = rng.integers(256)
    path.write_bytes(bytes(data))
    read = None
    with little_memory(), suppress(DataError):
        read = read_embeddings(path)
    assert read is None or read.x.shape == (20, 5)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (b"(" * 9000, "cannot be read as a NumPy file"),
        (b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + b"9" * 5000 + b",), }", "cannot be read"),
        (b"{'descr': '|O', 'fortran_order': False, 'shape': (3,), }", "object array, which only a pickle could load"),
    ],
)
@pytest.mark.parametrize("kind", [".npy", ".npz"])
def test_damaged_header_is_a_data_error(tmp_path, header, words, kind):
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    path = tmp_path / f"x{kind}"
    npz(path, x=data) if kind == ".npz" else path.write_bytes(data)
    with pytest.raises(DataError, match=words):
        read_embeddings(path)


def test_numbers_that_nothing_computes_with_are_refused(tmp_path):
    header = json.dumps({"x": {"dtype": "F4", "shape": [2, 8], "data_offsets": [0, 8]}}).encode()
    (tmp_path / "x.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(DataError, match=r"x.safetensors (holds numbers of type|cannot be read)"):
        read_embeddings(tmp_path / "x.safetensors")


def test_label_too_long_for_an_array_is_refused(tmp_path, little_memory):
    labels = "\n".join(["a" * 100_000, *("b" for _ in range(4000))])
    (tmp_path / "x.csv").write_text("label,0,1\n" + labels.replace("\n", ",1,2\n") + ",1,2\n", encoding="utf-8")
    with little_memory(), pytest.raises(DataError, match=r"label of 100000 letters, and each of its 4001 rows"):
        read_embeddings(tmp_path / "x.csv")


def test_nul_byte_in_a_table_is_refused(tmp_path):
    (tmp_path / "x.csv").write_text("label,0\na\0,1\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"it holds a NUL byte"):
        read_embeddings(tmp_path / "x.csv")


def test_settings_that_nest_without_end_are_refused(tmp_path):
    (tmp_path / "settings.toml").write_text("steps = " + "[" * 10**5, encoding="utf-8")
    with pytest.raises(SettingsError, match="nested too deeply"):
        read_settings(tmp_path / "settings.toml")
    with pytest.raises(SettingsError, match="nested too deeply"):
        read_inputs(tmp_path / "settings.toml")


def test_database_in_the_place_of_a_link_is_left_alone(tmp_path):
    from uniot.labelling.store import LabelStore
    from uniot.runs.thumbnails import ThumbnailCache

    shutil.copyfile(__file__, tmp_path / "mine")
    for name in ("labels.sqlite", "thumbnails.sqlite"):
        (tmp_path / name).symlink_to(tmp_path / "mine")
    with pytest.raises(RunFolderError, match="is a link"):
        LabelStore(RunFiles(tmp_path), "digest")
    ThumbnailCache(Pictures({"source": [], "target": []}, {}), tmp_path / "thumbnails.sqlite", "digest").close()
    assert (tmp_path / "mine").read_bytes() == Path(__file__).read_bytes()
