"""Shards, places and workers of `--engine ray`, without Ray: a worker is called as Ray Data would call it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from uniot import UniDAClassifier, UniNCM
from uniot.distributed import commands, computations, engine
from uniot.distributed.computations import Bundle, EmbedImages, PredictSamples
from uniot.distributed.engine import pool_size
from uniot.distributed.inputs import Shard, sharded_images, sharded_input
from uniot.distributed.locations import Location
from uniot.distributed.shards import Manifest, ShardFolder, read_manifest
from uniot.distributed.workers import Attempts, ShardWorker
from uniot.errors import DataError, RunFolderError
from uniot.io.embedding_files import read_embeddings

ROOT = Path(__file__).parents[1]


def run_here(work, missing, cluster, on_progress=None):
    """ComputeShard shards in this process, each by a worker of its own, as after a restart."""
    for shard in missing:
        worker = ShardWorker(
            work.computation,
            work.bundle,
            work.source.location,
            work.source.kind,
            work.out,
            work.strict,
            1,
            attempts=None,
        )
        answer = worker({"shard": [shard.to_json()]})
        if answer["error"][0]:
            raise getattr(engine.errors, answer["error"][0], DataError)(answer["message"][0])
    return 0


@pytest.fixture
def without_ray(monkeypatch):
    monkeypatch.setattr(commands, "run_shards", run_here)


def table(location: Path | str):
    """All parts of a folder, or one file, sorted by path."""
    path = Path(str(location).removeprefix("file://"))
    files = sorted(path.glob("part-*.parquet")) if path.is_dir() else [path]
    return pa.concat_tables([pq.read_table(file) for file in files]).sort_by("path")


@pytest.fixture(scope="module")
def toy_run(tmp_path_factory) -> tuple[Path, Path]:
    """A run made from embeddings, and a folder of two Parquet files of new ones, with several row groups."""
    top = tmp_path_factory.mktemp("toy")
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(6, 16))
    labels, private = rng.integers(0, 4, 80), rng.integers(2, 6, 150)
    source, target = (centres[of] + rng.normal(size=(len(of), 16)) for of in (labels, private))
    UniNCM(random_state=0).fit(source, labels, target).save(top / "run")
    new = (centres[rng.integers(0, 6, 230)] + 1.5 * rng.normal(size=(230, 16))).astype(np.float32)
    (top / "new").mkdir()
    names = pa.array([f"sample {row}" for row in range(230)])
    whole = pa.table({"x": pa.FixedSizeListArray.from_arrays(new.reshape(-1), 16), "path": names})
    pq.write_table(whole, top / "new.parquet", row_group_size=40)
    pq.write_table(whole[:100], top / "new" / "a.parquet", row_group_size=30)
    pq.write_table(whole[100:], top / "new" / "b.parquet", row_group_size=70)
    return top / "run", top / "new"


def test_sharded_predictions_of_embeddings_equal_those_of_one_process(toy_run, without_ray, uniot, tmp_path):
    run, new = toy_run
    single = tmp_path / "single.parquet"
    assert uniot("predict", run, new.with_suffix(".parquet"), "--out", single).code == 0
    with mock.patch("uniot.distributed.inputs.ROWS_PER_SHARD", 60):
        for location, parts in ((new, 4), (new.with_suffix(".parquet"), 6), (f"file://{new}", 4)):
            out = tmp_path / f"out-{len(list(tmp_path.iterdir()))}"
            answer = uniot("predict", run, location, "--engine", "ray", "--out", out)
            assert answer.code == 0, answer.stderr
            assert table(out).equals(table(single)), "schema and numbers, to the last bit"
            assert len(list(out.glob("part-*"))) == parts
            assert f"in {parts} parts." in answer.stdout


@pytest.mark.parametrize("method", ["unincm", "uniot", "dance", "ovanet"])
def test_prediction_does_not_depend_on_the_samples_beside_it(method):
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(9, 64))
    labels, private = rng.integers(0, 6, 120), rng.integers(3, 9, 200)
    source, target = (centres[of] + 0.8 * rng.normal(size=(len(of), 64)) for of in (labels, private))
    model = UniDAClassifier(method, **({} if method == "unincm" else {"steps": 5})).fit(source, labels, target)
    new = centres[rng.integers(0, 9, 300)] + rng.normal(size=(300, 64))
    whole = model.predict_full(new)
    assert not whole.known.all()
    for size in (1, 7, 128, 250):
        for start in range(0, 300, size)[:40]:
            part, same = model.predict_full(new[start : start + size]), whole.rows(slice(start, start + size))
            for column in fields(whole):
                mine, other = getattr(part, column.name), getattr(same, column.name)
                # As it is written: a Parquet file has float32, a CSV file six digits.
                assert (mine.astype(np.float32) == other.astype(np.float32)).all(), (column.name, size)


def test_table_with_two_columns_of_one_name_is_reported(toy_run, without_ray, uniot, tmp_path):
    x = pa.array([[1.0] * 16] * 3)
    (tmp_path / "new").mkdir()
    pq.write_table(pa.Table.from_arrays([x, x], names=["x", "x"]), tmp_path / "new" / "a.parquet")
    answer = uniot("predict", toy_run[0], tmp_path / "new", "--engine", "ray", "--out", tmp_path / "out")
    assert answer.code == 1
    assert answer.stderr.count("Error: ") == 1
    assert "a.parquet" in answer.stderr


def test_rows_without_names_are_numbered_through_all_shards(toy_run, without_ray, uniot, tmp_path):
    run, new = toy_run
    unnamed = tmp_path / "unnamed.parquet"
    pq.write_table(pq.read_table(new.with_suffix(".parquet")).select(["x"]), unnamed, row_group_size=50)
    # Three blocks in each shard.
    with mock.patch("uniot.distributed.inputs.ROWS_PER_SHARD", 50), mock.patch("uniot.io.table_files._READ_ROWS", 20):
        assert uniot("predict", run, unnamed, "--engine", "ray", "--out", tmp_path / "out").code == 0
    uniot("predict", run, unnamed, "--out", tmp_path / "single.parquet")
    assert table(tmp_path / "out").equals(table(tmp_path / "single.parquet"))


@pytest.mark.parametrize("kind", ["path", "url"])
@pytest.mark.parametrize("pages", ["of all columns at once", "of some columns at a time"])
def test_embeddings_in_a_column_per_dimension_give_the_same_predictions(
    toy_run, without_ray, uniot, tmp_path, monkeypatch, kind, pages
):
    run, new = toy_run
    x = np.stack(pq.read_table(new.with_suffix(".parquet"))["x"].to_numpy())
    wide = tmp_path / "wide.parquet"
    columns = {f"x{number}": x[:, number] for number in range(16)}
    pq.write_table(pa.table(columns | {"path": [f"sample {row}" for row in range(230)]}), wide, row_group_size=60)
    if pages != "of all columns at once":
        monkeypatch.setattr("uniot.io.table_files._MAX_PAGE_BYTES", 200_000)
    monkeypatch.setattr("uniot.io.table_files._READ_ROWS", 25)
    out = tmp_path / "out"
    given = wide if kind == "path" else f"file://{wide}"
    assert uniot("predict", run, given, "--engine", "ray", "--out", out).code == 0
    assert uniot("predict", run, new.with_suffix(".parquet"), "--out", tmp_path / "single.parquet").code == 0
    assert table(out).equals(table(tmp_path / "single.parquet"))


UNPACKS = r"would unpack its {} from \d+ bytes to {} GB, which embeddings never do"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        ("zeros", UNPACKS.format("x", "7.17")),
        ("rows_of_nothing", UNPACKS.format("x", "4")),
        ("one_long_list", UNPACKS.format("x", "4")),
        ("long_name", UNPACKS.format("column path", "20")),
        pytest.param("long_column_name", "has .* bytes of metadata; at most 8388608 are read", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("kind", ["path", pytest.param("url", marks=pytest.mark.slow)])
def test_table_that_fills_the_memory_is_refused_in_one_sentence(
    toy_run, hostile, without_ray, uniot, tmp_path, little_memory, make, words, kind
):
    path = getattr(hostile, make)(tmp_path)
    given = path if kind == "path" else f"file://{path}"
    with little_memory():
        answer = uniot("predict", toy_run[0], given, "--engine", "ray", "--out", tmp_path / "out")
    assert answer.code == 1
    assert re.search(words, " ".join(answer.stderr.split())), answer.stderr
    assert answer.stderr.count("Error: ") == 1
    assert "Traceback" not in answer.stderr


def test_list_that_the_metadata_hides_is_refused_by_a_worker(
    toy_run, hostile, without_ray, uniot, tmp_path, little_memory
):
    column = replace(hostile.vectors([(16, 16), (1, 10**9)]), n_values=17 * 16)
    path = hostile.parquet(tmp_path / "x.parquet", 17, column)
    assert sharded_input(Location.of(path)).count == 17
    with little_memory():
        answer = uniot("predict", toy_run[0], path, "--engine", "ray", "--out", tmp_path / "out")
    assert answer.code == 1
    assert re.search(r"a row group that unpacks x from \d+ bytes to 4 GB", " ".join(answer.stderr.split()))


@pytest.mark.parametrize("kind", ["path", "url"])
def test_sharded_embeddings_equal_those_of_one_process(shape_folders, without_ray, uniot, tmp_path, kind):
    images = shape_folders[0]
    given, out = (images, tmp_path / "out") if kind == "path" else (f"file://{images}", f"file://{tmp_path}/out")
    with mock.patch("uniot.distributed.inputs.IMAGES_PER_SHARD", 10):
        answer = uniot("embed", given, "--labelled", "--engine", "ray", "--out", out)
    assert answer.code == 0, answer.stderr
    assert "24 embeddings by efficientnet_lite0 in 3 parts" in answer.stdout
    assert uniot("embed", images, "--labelled", "--out", tmp_path / "single.parquet").code == 0
    assert table(out).equals(table(tmp_path / "single.parquet"))
    assert len(read_embeddings(tmp_path / "out" / "part-00002.parquet").x) == 4, "each part is a file of embeddings"
    manifest = json.loads((tmp_path / "out" / "_shards.json").read_text())
    assert (manifest["complete"], manifest["rows"], manifest["skipped"]) == (True, 24, 0)
    assert not list((tmp_path / "out").glob(".*"))


@pytest.fixture
def damaged(shape_folders, tmp_path) -> Path:
    """Six images, and two that cannot be read, which fill a shard of two."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, image in enumerate(sorted(shape_folders[1].rglob("*.png"))[:6]):
        (folder / f"c{number}.png").write_bytes(image.read_bytes())
    (folder / "a0.png").write_bytes(b"")
    (folder / "a1\n.png").write_bytes(b"no image")
    return folder


@pytest.mark.parametrize("kind", ["path", "url"])
def test_unreadable_images_are_listed_and_the_others_embedded(damaged, without_ray, uniot, tmp_path, kind):
    given, out = (damaged, tmp_path / "out") if kind == "path" else (f"file://{damaged}", f"file://{tmp_path}/out")
    with mock.patch("uniot.distributed.inputs.IMAGES_PER_SHARD", 2):
        first = uniot("embed", given, "--engine", "ray", "--out", out)
        # Once more: everything is there, the shard without a readable image too.
        second = uniot("embed", given, "--engine", "ray", "--out", out)
    assert (first.code, second.code) == (0, 0), first.stderr + second.stderr
    assert "2 files could not be read: such as a0.png (empty file)." in first.stdout
    assert "4 parts of 4 were there before" in second.stdout
    uniot("embed", damaged, "--out", tmp_path / "single.parquet")
    assert table(out).equals(table(tmp_path / "single.parquet"))
    skipped = (tmp_path / "out" / "_skipped.csv").read_text()
    assert skipped == (tmp_path / "single.skipped.csv").read_text()


def test_strict_stops_at_an_unreadable_image_and_keeps_finished_shards(damaged, without_ray, uniot, tmp_path):
    (damaged / "a0.png").rename(damaged / "z.png")
    (damaged / "a1\n.png").unlink()
    with mock.patch("uniot.distributed.inputs.IMAGES_PER_SHARD", 2):
        answer = uniot("embed", damaged, "--strict", "--engine", "ray", "--out", tmp_path / "out")
    assert answer.code == 1
    assert "z.png cannot be used (empty file)" in answer.stderr
    assert len(list((tmp_path / "out").glob("part-*"))) == 3
    assert read_manifest(Location.of(tmp_path / "out")).complete is False


def test_strict_sees_what_an_earlier_command_skipped(damaged, without_ray, uniot, tmp_path):
    command = ("embed", damaged, "--engine", "ray", "--out", tmp_path / "out")
    assert uniot(*command).code == 0
    answer = uniot(*command, "--strict")
    assert "a0.png cannot be used (empty file); an earlier command without --strict skipped it" in answer.stderr


def test_folder_of_unreadable_images_is_an_error(without_ray, uniot, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(b"")
    answer = uniot("embed", tmp_path / "photos", "--engine", "ray", "--out", tmp_path / "out")
    assert answer.code == 1
    assert "none of 1 images can be used; the first is a.jpg (empty file)" in answer.stderr


def test_only_missing_shards_are_computed(toy_run, without_ray, uniot, tmp_path):
    run, new = toy_run
    command = ("predict", run, new, "--engine", "ray", "--out", tmp_path / "out")
    with mock.patch("uniot.distributed.inputs.ROWS_PER_SHARD", 60):
        assert uniot(*command).code == 0
        whole = table(tmp_path / "out")
        manifest = tmp_path / "out" / "_shards.json"
        manifest.write_text(manifest.read_text().replace('"complete": true', '"complete": false'))
        (tmp_path / "out" / "part-00001.parquet").unlink()
        kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("part-*")}
        answer = uniot(*command)
    assert "3 parts of 4 were there before" in answer.stdout
    assert table(tmp_path / "out").equals(whole)
    assert all(path.stat().st_mtime_ns == time for path, time in kept.items())


def test_a_part_that_is_lost_later_is_computed_again(toy_run, without_ray, uniot, tmp_path):
    run, new = toy_run
    command = ("predict", run, new, "--engine", "ray", "--out", tmp_path / "out")
    with mock.patch("uniot.distributed.inputs.ROWS_PER_SHARD", 60):
        first = uniot(*command)
        whole = table(tmp_path / "out")
        (tmp_path / "out" / "part-00001.parquet").unlink()
        again = uniot(*command)
    assert "3 parts of 4 were there before" in again.stdout
    assert table(tmp_path / "out").equals(whole)
    assert re.search(r"\d+ known", again.stdout)[0] == re.search(r"\d+ known", first.stdout)[0]


def test_an_image_that_could_be_read_at_the_second_attempt_is_not_missed(shape_folders, without_ray, uniot, tmp_path):
    photos, out = shape_folders[1], tmp_path / "out"
    command = ("embed", photos, "--engine", "ray", "--out", out)
    assert uniot(*command).code == 0
    n_rows = len(table(out))
    (out / "part-00000.parquet").unlink()
    (out / "_skipped-00000.csv").write_text("path,reason\na.png,not enough memory\n")
    assert uniot(*command).code == 0
    assert len(table(out)) == n_rows
    assert not (out / "_skipped-00000.csv").exists()


def test_an_unfinished_output_is_no_input(toy_run, without_ray, uniot, tmp_path):
    run, new = toy_run
    given = tmp_path / "given"
    shutil.copytree(new, given)
    (given / "_shards.json").write_text('{"complete": false, "rows": null}')
    answer = uniot("predict", run, given, "--engine", "ray", "--out", tmp_path / "out")
    assert (answer.code, "is not finished. Run the command that writes it again" in answer.stderr) == (1, True)


def test_tables_with_other_columns_are_refused(toy_run, without_ray, uniot, tmp_path):
    given = tmp_path / "given"
    given.mkdir()
    for number in range(2):
        names = [f"n{(column + number) % 16}" for column in range(16)]
        pq.write_table(pa.table({name: [1.0] for name in names}), given / f"{number}.parquet")
    answer = uniot("predict", toy_run[0], given, "--engine", "ray", "--out", tmp_path / "out")
    assert "Give the same columns in the same order" in answer.stderr


def test_an_output_inside_the_input_is_refused(toy_run, without_ray, uniot, tmp_path):
    run, new = toy_run
    answer = uniot("predict", run, new, "--engine", "ray", "--out", new / "out")
    assert "lies in" in answer.stderr
    assert "which is read. Give a folder outside of it as --out" in answer.stderr
    assert not (new / "out").exists()


def test_a_link_to_a_folder_above_is_followed_once(toy_run, tmp_path):
    given = tmp_path / "given"
    shutil.copytree(toy_run[1], given)
    before = sharded_input(Location.of(given)).count
    (given / "self").symlink_to(given)
    assert sharded_input(Location.of(given)).count == before


def test_a_table_whose_name_is_not_utf8_is_reported(toy_run, tmp_path):
    shutil.copyfile(toy_run[1] / "a.parquet", os.fsencode(tmp_path) + b"/\xff.parquet")
    with pytest.raises(DataError, match="has a name that is not UTF-8"):
        sharded_input(Location.of(tmp_path))


def test_a_row_that_is_not_finite_is_named_with_its_file(toy_run, without_ray, uniot, tmp_path):
    given = tmp_path / "given"
    shutil.copytree(toy_run[1], given)
    rows = np.ones((5, 16), np.float32)
    rows[3, 2] = np.nan
    pq.write_table(pa.table({"x": pa.FixedSizeListArray.from_arrays(rows.reshape(-1), 16)}), given / "c.parquet")
    answer = uniot("predict", toy_run[0], given, "--engine", "ray", "--out", tmp_path / "out")
    assert re.search(r"c\.parquet, from row 230 of the input on: .*nan.*row 3", answer.stderr.replace("\n", " "))


def test_another_input_run_or_setting_is_refused(toy_run, without_ray, uniot, tmp_path):
    run, new = toy_run
    out = ("--engine", "ray", "--out", tmp_path / "out")
    assert uniot("predict", run, new, *out).code == 0
    answer = uniot("predict", run, new.with_suffix(".parquet"), *out)
    assert "was begun with another input (digest), so its shards cannot be continued" in answer.stderr
    answer = uniot("predict", run, new, "--prefer", "known", *out)
    assert "was begun with another preference" in answer.stderr
    rng = np.random.default_rng(1)
    UniNCM(random_state=0).fit(rng.normal(size=(30, 16)), np.arange(30) % 3, rng.normal(size=(30, 16))).save(
        tmp_path / "other"
    )
    answer = uniot("predict", tmp_path / "other", new, *out)
    assert (answer.code, "was begun with another run" in answer.stderr) == (1, True)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    answer = uniot("predict", run, new, "--engine", "ray", "--out", tmp_path / "full")
    assert "is not empty: it holds 'letter.txt'" in answer.stderr


def test_damaged_manifest_and_part_are_reported(toy_run, without_ray, uniot, tmp_path):
    run, new = toy_run
    command = ("predict", run, new, "--engine", "ray", "--out", tmp_path / "out")
    uniot(*command)
    manifest = tmp_path / "out" / "_shards.json"
    before = manifest.read_text()
    manifest.write_text(before.replace('"complete": true', '"complete": false'))
    part = tmp_path / "out" / "part-00000.parquet"
    part.write_bytes(part.read_bytes()[:-10])
    assert "part-00000.parquet is damaged" in uniot(*command).stderr
    for text in ("[]", '{"output": 3}', before.replace('"n_shards"', '"x"')):
        manifest.write_text(text)
        assert "_shards.json cannot be read" in uniot(*command).stderr


def test_part_of_another_length_is_not_complete(tmp_path):
    folder = ShardFolder(Location.of(tmp_path), Manifest("embeddings", {}, {}, 1))
    pq.write_table(pa.table({"path": ["a"]}), tmp_path / "part-00000.parquet")
    with pytest.raises(RunFolderError, match="Expected 2 rows in .*, got 1. Delete it"):
        folder.finish([2])


def test_missing_ray_is_one_sentence(uniot, tmp_path):
    with mock.patch.dict(sys.modules, {"ray": None}):
        answer = uniot("embed", tmp_path, "--engine", "ray", "--out", tmp_path / "out")
    assert answer.code == 1
    assert answer.stderr == "Error: --engine ray needs Ray. Install it with: pip install 'uniot[ray]'\n"


def test_options_of_the_other_engine_are_refused(uniot, tmp_path):
    answer = uniot("embed", tmp_path, "--engine", "ray", "--store", tmp_path, "--out", tmp_path / "out")
    assert "--store cannot be combined with --engine ray" in answer.stderr
    answer = uniot("embed", tmp_path, "--engine", "ray", "--out", tmp_path / "x.parquet")
    assert "--engine ray writes a folder of parts, and --out is a file (.parquet)" in answer.stderr
    answer = uniot("predict", tmp_path, tmp_path, "--engine", "ray")
    assert "--engine ray takes one folder, list file or URL, and --out" in answer.stderr
    answer = uniot("embed", tmp_path, "--ray-address", "auto", "--out", tmp_path / "out.npz")
    assert "--ray-address is for --engine ray" in answer.stderr
    answer = uniot("predict", tmp_path, "s3://key:secret@bucket/x", "--out", tmp_path / "out.csv")
    assert "only --engine ray reads and writes URLs" in answer.stderr
    assert "secret" not in answer.stderr


def test_urls_of_object_stores_are_opened_without_connecting():
    with mock.patch.dict(os.environ, AWS_REGION="eu-central-1", AWS_EC2_METADATA_DISABLED="true"):
        found = Location.of("s3://bucket/some photos/")
        assert (type(found.filesystem).__name__, found.inner) == ("S3FileSystem", "bucket/some photos")
        assert found.filesystem.region == "eu-central-1"
        assert Location.of("s3://bucket/x?region=us-west-2").filesystem.region == "us-west-2"
    found = Location.of("gs://bucket/photos")
    assert (type(found.filesystem).__name__, found.inner) == ("GcsFileSystem", "bucket/photos")


def test_other_urls_are_opened_by_fsspec_and_unknown_ones_are_refused():
    import fsspec

    fsspec.filesystem("memory").pipe("/shelf/a.txt", b"hello")
    location = Location.of("memory://shelf")
    assert location.read("a.txt", 10) == b"hello"
    assert [entry.name for entry in location.entries()] == ["a.txt"]
    with pytest.raises(DataError, match="unheard:// cannot be opened"):
        assert Location.of("unheard://x").filesystem


@pytest.mark.parametrize(
    "url",
    ["s3://AKIA:secret@bucket/x", "s3://secret@bucket/x", "gs://b/x?sig=secret", "https://h/x#secret"],
)
def test_credentials_in_urls_are_refused_and_never_printed(url):
    with pytest.raises(DataError, match="has credentials or options in it") as caught:
        Location.of(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("key", ["base/../../etc/passwd.jpg", "base//x.jpg", "other/x.jpg", f"base/{'x' * 5000}.jpg"])
def test_keys_that_lead_out_of_the_folder_are_refused(key):
    with pytest.raises(DataError, match="leads out of the folder or is longer"):
        Location("s3://base")._name("base", key)


def test_hidden_files_and_what_spark_writes_beside_are_no_input(tmp_path):
    import fsspec

    store = fsspec.filesystem("memory")
    for name in (".a.jpg", "__MACOSX/b.jpg", "c/.d/e.jpg", "c/f.JPG", "g.txt"):
        store.pipe(f"/hidden/{name}", b"x")
    found = sharded_images(Location.of("memory://hidden"))
    assert [file.name for shard in found.shards for file in shard.content] == ["c/f.JPG"]
    pq.write_table(pa.table({"x": [[1.0]]}), tmp_path / "_temporary.parquet")
    with pytest.raises(DataError, match="holds no image"):
        sharded_input(Location.of(tmp_path))


def test_images_and_tables_in_one_folder_are_refused(tmp_path):
    pq.write_table(pa.table({"x": [[1.0]]}), tmp_path / "a.parquet")
    (tmp_path / "b.jpg").write_bytes(b"x")
    with pytest.raises(DataError, match="holds Parquet files, such as 'a.parquet', and images, such as 'b.jpg'"):
        sharded_input(Location.of(tmp_path))
    np.savez(tmp_path / "c.npz", x=np.eye(2))
    with pytest.raises(DataError, match="neither images nor a Parquet file"):
        sharded_input(Location.of(tmp_path / "c.npz"))
    with pytest.raises(DataError, match="does not exist"):
        sharded_input(Location.of(tmp_path / "nothing"))


def test_image_of_a_store_that_does_not_answer_is_not_skipped(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"x")
    (file,) = sharded_images(Location.of(f"file://{tmp_path}")).shards[0].content
    with (
        mock.patch.object(Location, "read", side_effect=OSError("503 slow down")),
        pytest.raises(DataError, match="Run the same command again when the store answers"),
    ):
        file.read()
    (tmp_path / "a.jpg").unlink()
    with pytest.raises(DataError, match="no such file or directory"):
        file.read()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not allow such names")
def test_shards_keep_names_that_are_not_utf8(tmp_path):
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.png")).write_bytes(b"x")
    (shard,) = sharded_images(Location.of(tmp_path)).shards
    again = Shard.from_json(shard.to_json(), "images", Location.of(tmp_path))
    assert again.content[0].read() == b"x"
    assert again.content[0].name == "\\udcff.png"


def test_listing_changes_with_a_changed_file(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.jpg").write_bytes(b"x")
    first = sharded_images(Location.of(tmp_path), per_shard=1)
    assert [shard.count for shard in first.shards] == [1, 1]
    assert sharded_images(Location.of(tmp_path)).digest == first.digest
    (tmp_path / "a.jpg").write_bytes(b"xy")
    assert sharded_images(Location.of(tmp_path)).digest != first.digest


@pytest.mark.parametrize("kind", ["images", "embeddings"])
def test_listing_changes_with_a_file_that_was_written_again_in_the_same_size(tmp_path, kind):
    path = tmp_path / ("a.jpg" if kind == "images" else "a.parquet")
    pq.write_table(pa.table({"x": [[1.0]]}), path)
    digests = []
    for seconds in (1, 2, 1):
        os.utime(path, (seconds, seconds))
        digests.append(sharded_input(Location.of(tmp_path)).digest)
    assert digests[0] == digests[2] != digests[1]


@pytest.mark.parametrize("job", [EmbedImages("a network", labelled=False), PredictSamples("a network")])
def test_worker_that_would_compute_with_another_engine_is_refused(job, tmp_path, monkeypatch):
    reader = SimpleNamespace(split=SimpleNamespace(cut="none", made_by="a network"))
    monkeypatch.setattr(computations.ImageReader, "load", lambda _: reader)
    monkeypatch.setattr(computations.Run, "open", lambda *_: SimpleNamespace(model=SimpleNamespace(reader=reader)))
    (tmp_path / "model").write_bytes(b"x")
    bundle = Bundle.of([tmp_path / "model"])
    monkeypatch.setattr(computations, "graph_of", lambda _: None)
    assert callable(job.start(bundle, workers=1))
    # ONNX Runtime is installed on this machine, and not on the one that started the work.
    monkeypatch.setattr(computations, "graph_of", lambda _: "a graph")
    with pytest.raises(DataError, match="'a network, with onnxruntime' and not 'a network'.*Install the same versions"):
        job.start(bundle, workers=1)


def test_files_of_one_content_under_other_names_are_another_bundle(tmp_path):
    for name in ("model", "groups", "annotations"):
        (tmp_path / name).write_bytes(b"model" if name == "model" else b"some numbers")
    one, other = (Bundle.of([tmp_path / "model", tmp_path / name]) for name in ("groups", "annotations"))
    assert one.digest != other.digest


def test_run_that_changes_meanwhile_is_refused_by_workers(tmp_path):
    (tmp_path / "model").write_bytes(b"one")
    bundle = Bundle.of([tmp_path / "model"])
    with bundle.opened() as folder:
        assert folder == tmp_path
    (tmp_path / "model").write_bytes(b"two")
    with pytest.raises(RunFolderError, match="has changed since the work began"), bundle.opened():
        pass


def test_shard_that_ends_its_worker_again_and_again_is_given_up(toy_run):
    shard = sharded_input(Location.of(toy_run[1])).shards[0]
    worker = ShardWorker(None, None, Location.of(toy_run[1]), "embeddings", Location.of("x"), False, 1, attempts=None)
    with mock.patch.object(ShardWorker, "_begun", return_value=(5, 4)):
        answer = worker({"shard": [shard.to_json()]})
    assert answer["error"] == ["DataError"]
    assert "shard 0 (a.parquet) ended its worker 4 times" in answer["message"][0]


def test_restarted_worker_is_counted_once():
    attempts = Attempts()
    assert attempts.begin(0, "a", "process 1") == (1, 0)
    assert attempts.begin(1, "b", "process 2") == (1, 0)
    assert attempts.begin(0, "a", "process 3") == (2, 1)
    assert attempts.begin(2, "a", "process 3") == (1, 1)


@pytest.mark.parametrize(
    ("nodes", "workers", "n_shards", "expected"),
    [
        ([2], None, 100, (1, 2)),
        ([2], 2, 100, (2, 1)),
        ([2], 9, 100, (2, 1)),
        ([2], 2, 1, (1, 2)),
        ([8], None, 3, (3, 2)),
        ([0, 4, 4, 4], 2, 100, (2, 4)),
        ([0, 4, 4, 4], 4, 100, (4, 2)),
        ([1, 1], None, 100, (2, 1)),
        ([0], None, 100, (1, 1)),
    ],
)
def test_every_worker_of_the_pool_fits_on_a_machine(nodes, workers, n_shards, expected):
    assert pool_size(nodes, workers, n_shards) == expected


def test_example_of_kuberay_has_what_the_operator_reads():
    job = yaml.safe_load((ROOT / "examples" / "cluster" / "kuberay.yaml").read_text(encoding="utf-8"))
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    spec = job["spec"]
    assert "--engine ray" in spec["entrypoint"]
    cluster = spec["rayClusterSpec"]
    (group,) = cluster["workerGroupSpecs"]
    for template in (cluster["headGroupSpec"]["template"], group["template"]):
        assert template["spec"]["containers"][0]["image"]
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0", "the head only divides the work"
    assert group["replicas"] >= 1


@pytest.mark.parametrize("name", ["slurm-ray.sh", "slurm-torchrun.sh"])
def test_examples_for_slurm_are_valid_shell(name):
    script = ROOT / "examples" / "cluster" / name
    done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "#SBATCH --nodes" in script.read_text(encoding="utf-8")


@pytest.mark.skipif(sys.platform != "linux", reason="a signal of Linux")
def test_worker_ends_with_the_process_that_started_it():
    child = """
import time
from uniot.distributed.workers import end_with_parent

end_with_parent()
print("ready", flush=True)
time.sleep(60)
"""
    script = f"""
import subprocess, sys

worker = subprocess.Popen([sys.executable, "-c", {child!r}])
worker.wait()
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout.readline() == "ready\n"
        parent.kill()
        killed = time.monotonic()
        # The pipe ends with the last process that holds it; left alone, the worker would sleep for a minute.
        assert parent.stdout.read() == ""
    assert time.monotonic() - killed < 30
