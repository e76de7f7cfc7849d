from __future__ import annotations

import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra.numpy import array_shapes, arrays

from uniot.errors import NumericalError, RunFolderError
from uniot.images import store as store_module
from uniot.images.store import EmbeddingStore, default_folder

WRITER = Path(__file__).parent / "writes_rows.py"
KEYS = [bytes([number]) * 32 for number in range(6)]
ROWS = np.random.default_rng(0).normal(size=(6, 40)).astype(np.float16)


@pytest.fixture
def store(tmp_path):
    return EmbeddingStore(tmp_path / "embeddings")


@pytest.fixture
def filled(store):
    """A store whose only table was filled and closed; with the path of the table."""
    with store.table("network a") as table:
        table.put_many(KEYS, ROWS)
    return store, table.path


def rows_of(store, keys=KEYS, made_by="network a"):
    with store.table(made_by) as table:
        return table.get_many(keys)


def damaged(path, place, length=64):
    content = bytearray(path.read_bytes())
    content[place : place + length] = bytes(byte ^ 0xFF for byte in content[place : place + length])
    path.write_bytes(content)


def test_rows_come_back_in_the_next_process(filled):
    store, _ = filled
    found = rows_of(store, [*KEYS, b"unknown"])
    assert set(found) == set(KEYS)
    assert all(np.array_equal(found[key], row) for key, row in zip(KEYS, ROWS, strict=True))
    assert all(row.dtype == np.float16 for row in found.values())


def test_rows_of_another_network_are_not_found(filled):
    store, _ = filled
    assert rows_of(store, made_by="network b") == {}
    assert rows_of(store, made_by="other/network: a") == {}


@given(arrays(np.float16, array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=5), elements={"allow_nan": False}))
@settings(max_examples=30)
def test_any_finite_rows_of_any_shape_come_back(tmp_path_factory, rows):
    store = EmbeddingStore(tmp_path_factory.mktemp("store"))
    keys = [bytes([number]) for number in range(len(rows))]
    with store.table("network") as table:
        if not np.isfinite(rows).all():
            with pytest.raises(NumericalError):
                table.put_many(keys, rows)
            return
        table.put_many(keys, rows)
        found = table.get_many(keys)
    assert len(found) == len(rows)
    for key, row in zip(keys, rows, strict=True):
        assert found[key].shape == row.shape
        assert np.array_equal(found[key].view(np.uint16), row.view(np.uint16))


def test_many_keys_are_asked_for_at_once(store):
    keys = [number.to_bytes(4, "big") for number in range(1200)]
    with store.table("network") as table:
        table.put_many(keys, np.arange(1200, dtype=np.float16).reshape(-1, 1))
        assert {key: row[0] for key, row in table.get_many(keys).items()} == dict(zip(keys, range(1200), strict=True))
        assert len(table) == 1200
        assert table.get_many([]) == {}


def test_new_row_takes_the_place_of_the_old(filled):
    store, _ = filled
    with store.table("network a") as table:
        table.put_many(KEYS[:1], ROWS[1:2])
        assert len(table) == 6
    assert np.array_equal(rows_of(store)[KEYS[0]], ROWS[1])


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_numbers_beyond_float16_are_refused_with_the_name_of_the_network(store, value):
    rows = ROWS.copy()
    rows[2, 3] = value
    with store.table("resnet50 and so on") as table:
        with pytest.raises(NumericalError, match=r"output of resnet50 for an image .*beyond 65504"):
            table.put_many(KEYS, rows)
        assert len(table) == 0


def test_rows_of_another_shape_are_refused_and_nothing_is_changed(filled):
    store, _ = filled
    with store.table("network a") as table:
        with pytest.raises(RunFolderError, match=r"rows of shape \(40,\), and rows of shape \(39,\) came"):
            table.put_many([b"new"], ROWS[:1, :39])
        table.put_many([b"new"], ROWS[:1])
        assert len(table) == 7


def test_threads_share_a_table(store):
    with store.table("network") as table, ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda n: table.put_many([bytes([n])], np.full((1, 8), n, np.float16)), range(64)))
        found = list(threads.map(lambda n: table.get_many([bytes([n])])[bytes([n])][0], range(64)))
    assert found == list(range(64))


def test_embeddings_take_little_more_room_than_their_numbers(store):
    rows = np.zeros((2000, 1280), np.float16)
    with store.table("network") as table:
        table.put_many([number.to_bytes(32, "big") for number in range(2000)], rows)
    assert rows.nbytes < store.size() < 1.15 * rows.nbytes


def test_store_that_is_not_there_has_no_size(tmp_path):
    assert EmbeddingStore(tmp_path / "none").size() == 0


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {"UNIOT_CACHE": "/scratch/me"}, "/scratch/me/embeddings"),
        ("linux", {"XDG_CACHE_HOME": "/caches"}, "/caches/uniot/embeddings"),
        ("linux", {}, "/home/me/.cache/uniot/embeddings"),
        ("darwin", {}, "/home/me/Library/Caches/uniot/embeddings"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/uniot/embeddings"),
    ],
)
def test_folder_is_the_systems_unless_it_is_chosen(monkeypatch, platform, variables, expected):
    for name in ("UNIOT_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(Path, "home", lambda: Path("/home/me"))
    monkeypatch.setattr(store_module.sys, "platform", platform)
    assert default_folder() == Path(expected) == EmbeddingStore().folder


# --- accidents --------------------------------------------------------------------------------------------


def test_two_processes_write_at_once_and_one_is_killed(store):
    def start(first, batches):
        command = [sys.executable, str(WRITER), str(store.folder), str(first), str(batches)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    with start(0, 60) as patient, start(1000, 0) as doomed:
        for _ in range(25):
            committed = int(doomed.stdout.readline())
        doomed.kill()
        assert patient.wait(timeout=60) == 0
    numbers = [*range(600), *range(1000, 3000)]
    found = rows_of(store, [number.to_bytes(32, "big") for number in numbers], made_by="network")
    there = {int.from_bytes(key, "big") for key in found}
    assert there >= {*range(600), *range(1000, committed)}
    for number in there:
        expected = np.arange(number, number + 64).astype(np.float16)
        assert np.array_equal(found[number.to_bytes(32, "big")], expected)


def test_damaged_row_counts_as_absent_and_is_made_again(filled):
    store, path = filled
    damaged(path, path.read_bytes().index(ROWS[2].tobytes()) + 7, length=1)
    found = rows_of(store)
    assert set(found) == set(KEYS) - {KEYS[2]}
    with store.table("network a") as table:
        table.put_many(KEYS[2:3], ROWS[2:3])
    assert np.array_equal(rows_of(store)[KEYS[2]], ROWS[2])


def test_rows_that_stand_under_the_key_of_another_count_as_absent(filled):
    store, path = filled
    with closing(sqlite3.connect(path)) as other:
        values = dict(other.execute("SELECT key, value FROM rows"))
        other.execute("UPDATE rows SET value = ? WHERE key = ?", (values[KEYS[1]], KEYS[0]))
        other.commit()
    assert set(rows_of(store)) == set(KEYS) - {KEYS[0]}


def test_log_of_a_damaged_file_is_moved_aside_with_it(filled):
    store, path = filled
    with store.table("network a") as late:
        late.put_many([b"late"], ROWS[:1])
        log = Path(f"{path}-wal").read_bytes()
        damaged(path, 0)
        with pytest.warns(UserWarning, match="is damaged and was moved"):
            first = store.table("network a")
        with first:
            (aside,) = store.folder.glob("*.damaged-wal")
            assert aside.read_bytes() == log
            assert first.get_many([*KEYS, b"late"]) == {}
            first.put_many(KEYS, ROWS)
    assert len(rows_of(store)) == 6


@pytest.mark.parametrize(
    "content", [b"not a database, but long enough to be looked at " * 20, b"\0" * 5000], ids=["text", "zeros"]
)
def test_file_that_is_no_database_is_moved_aside_with_a_warning(filled, content):
    store, path = filled
    path.write_bytes(content)
    with pytest.warns(UserWarning, match=r"is damaged and was moved to .*\.damaged, which can be deleted"):
        assert rows_of(store) == {}
    (aside,) = store.folder.glob("*.damaged")
    assert aside.read_bytes() == content
    with store.table("network a") as table:
        table.put_many(KEYS, ROWS)
    assert len(rows_of(store)) == 6


@pytest.mark.filterwarnings("ignore:.* is damaged and was moved:UserWarning")
def test_damage_anywhere_in_the_file_never_gives_wrong_numbers(filled):
    store, path = filled
    sound = path.read_bytes()
    for place in range(0, len(sound), 1511):
        path.write_bytes(sound)
        damaged(path, place)
        found = rows_of(store)
        assert all(np.array_equal(row, ROWS[KEYS.index(key)]) for key, row in found.items())
        with store.table("network a") as table:
            table.put_many(KEYS, ROWS)
            assert len(table.get_many(KEYS)) == 6


@pytest.mark.filterwarnings("ignore:.* is damaged and was moved:UserWarning")
def test_file_that_is_cut_off_never_gives_wrong_numbers(filled):
    store, path = filled
    sound = path.read_bytes()
    for length in range(0, len(sound), 4001):
        path.write_bytes(sound[:length])
        found = rows_of(store)
        assert all(np.array_equal(row, ROWS[KEYS.index(key)]) for key, row in found.items())


def test_damage_that_shows_while_a_table_is_open_is_mended_and_work_goes_on(filled):
    store, path = filled
    first_page = 16384  # what opening reads
    with store.table("network a") as table:
        damaged(path, first_page, length=path.stat().st_size)
        with pytest.warns(UserWarning, match="is damaged and was moved"):
            assert table.get_many(KEYS) == {}
        table.put_many(KEYS, ROWS)
    assert len(rows_of(store)) == 6


def test_sound_file_that_another_process_put_in_place_is_taken_over(filled):
    store, path = filled
    with store.table("network a") as late:
        damaged(path, 16384, length=path.stat().st_size)
        with pytest.warns(UserWarning, match="is damaged"), store.table("network a") as first:
            first.put_many(KEYS, ROWS)
        # Found damaged in the old file, which is no longer there.
        assert len(late.get_many(KEYS)) == 6
    assert len(list(store.folder.glob("*.damaged"))) == 1


def test_full_disk_is_an_error_that_says_what_to_do_and_loses_nothing(filled):
    store, _ = filled
    with store.table("network a") as table:
        pages = table._connection.execute("PRAGMA page_count").fetchone()[0]
        table._connection.execute(f"PRAGMA max_page_count = {pages}")
        many = np.zeros((500, 40), np.float16)
        with pytest.raises(RunFolderError, match=r"disk is full\). Check that the disk has room .* set UNIOT_CACHE"):
            table.put_many([number.to_bytes(4, "big") for number in range(500)], many)
        assert len(table) == 6
    assert len(rows_of(store)) == 6


def test_folder_that_cannot_be_made_is_an_error_that_says_what_to_do(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(RunFolderError, match=r"embeddings cannot be stored in .* or set UNIOT_CACHE to another folder"):
        EmbeddingStore(tmp_path / "file" / "store").table("network")


def test_table_that_is_locked_too_long_is_an_error(filled, monkeypatch):
    store, path = filled
    monkeypatch.setattr(store_module, "_SECONDS_TO_WAIT", 0.05)
    with store.table("network a") as table:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(RunFolderError, match="database is locked"):
            table.put_many([b"new"], ROWS[:1])
        other.close()
        table.put_many([b"new"], ROWS[:1])
