"""Labels for other tools, field by field, and labels from them."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from PIL import Image

from uniot.annotations.places import DISCARDED, class_place
from uniot.errors import DataError
from uniot.images.files import ImageFile
from uniot.labelling.actions import MoveSamples, NameGroup
from uniot.labelling.exporting import export_labels, format_of
from uniot.runs.pictures import write_pixels, write_places


@pytest.fixture
def decided(session):
    """Group 0 is “kettle”, but row 30 is a pen and row 31 is discarded."""
    for action in (
        NameGroup(kind="name", group=0, name="kettle"),
        MoveSamples(kind="move", rows=[30], to="class-1"),
        MoveSamples(kind="move", rows=[31], to="discarded"),
    ):
        session.act(action, session.revision)
    return session


@pytest.fixture
def photographs(decided, tmp_path):
    """The run has an image file for each sample."""
    names = decided.target.names
    files = [tmp_path / "top" / name for name in names]
    for number, file in enumerate(files):
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4), (number, 0, 0)).save(file, "JPEG")
    write_places(tmp_path, [], [ImageFile(file, name) for file, name in zip(files, names, strict=True)])
    return files


def read(path: Path) -> object:
    return json.loads(path.read_text(encoding="utf-8"))


def test_json_lines_hold_what_labels_csv_holds(decided, tmp_path):
    told = decided.export("jsonl").sentence()
    assert told == f"{tmp_path / 'labels.jsonl'} is written: 8 in new classes, 1 in known classes, 1 discarded."
    lines = [json.loads(line) for line in (tmp_path / "labels.jsonl").read_text(encoding="utf-8").splitlines()]
    assert lines[0] == {"path": "photos/030 é.jpg", "label": "pen", "decision": "class", "group": None}
    assert lines[1] == {"path": "photos/031 é.jpg", "label": "", "decision": "discarded", "group": None}
    assert lines[2] == {"path": "photos/032 é.jpg", "label": "kettle", "decision": "named", "group": 0}
    assert len(lines) == 10


def test_coco_links_images_to_categories_by_id(decided, tmp_path):
    decided.export("coco")
    found = read(tmp_path / "labels-coco.json")
    category = {one["id"]: one["name"] for one in found["categories"]}
    file = {one["id"]: one["file_name"] for one in found["images"]}
    assert {one["name"]: one["supercategory"] for one in found["categories"]} == {"kettle": "new", "pen": "source"}
    linked = {file[one["image_id"]]: category[one["category_id"]] for one in found["annotations"]}
    expected = {f"photos/{row:03d} é.jpg": "kettle" for row in range(32, 40)}
    assert linked == expected | {"photos/030 é.jpg": "pen"}
    assert len({one["id"] for one in found["annotations"]}) == len(found["annotations"]) == 9


def test_label_studio_tasks_have_one_choice_and_a_local_file(decided, photographs, tmp_path):
    decided.export("label-studio")
    tasks = read(tmp_path / "labels-label-studio.json")
    assert len(tasks) == 9
    assert tasks[0]["annotations"] == [
        {"result": [{"from_name": "label", "to_name": "image", "type": "choices", "value": {"choices": ["pen"]}}]}
    ]
    prefix, _, path = tasks[0]["data"]["image"].partition("?d=")
    assert (prefix, Path("/" + unquote(path))) == ("/data/local-files/", photographs[30])
    assert tasks[0]["data"]["sample"] == "photos/030 é.jpg"


def test_fiftyone_finds_each_label_by_the_name_of_its_file(decided, photographs, tmp_path):
    for _ in range(2):  # an earlier export is replaced
        decided.export("fiftyone")
    folder = tmp_path / "labels-fiftyone"
    found = read(folder / "labels.json")
    assert found["classes"] == ["kettle", "pen"]
    files = {path.stem: path for path in (folder / "data").iterdir()}
    assert set(files) == set(found["labels"]) == {f"{row:06d}" for row in (30, *range(32, 40))}
    assert found["classes"][found["labels"]["000030"]] == "pen"
    assert files["000035"].read_bytes() == photographs[35].read_bytes()
    assert not list(tmp_path.glob(".*partial"))


def test_fiftyone_gets_pictures_that_the_run_keeps_and_no_folder_is_overwritten(decided, tmp_path):
    with pytest.raises(DataError, match="made from embeddings or texts. Choose csv"):
        decided.export("fiftyone")
    n_samples = len(decided.target.names)
    write_pixels(tmp_path, np.zeros((3, 8, 8)), np.zeros((n_samples, 8, 8)))
    decided.export("fiftyone")
    with Image.open(tmp_path / "labels-fiftyone" / "data" / "000030.jpg") as image:
        assert image.size == (256, 256)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "diary.txt").write_text("dear diary", encoding="utf-8")
    with pytest.raises(DataError, match="exists and is not an earlier export"):
        export_labels(decided.store.files, decided.target, decided.state, "fiftyone", mine)
    assert (mine / "diary.txt").is_file()


def test_the_name_of_a_file_tells_its_format_or_a_word_is_asked_for():
    assert (format_of(Path("a.CSV")), format_of(Path("a.jsonl"))) == ("csv", "jsonl")
    with pytest.raises(DataError, match="Add --format: coco or label-studio for a .json file"):
        format_of(Path("a.json"))


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_an_export_is_imported_to_the_same_state(decided, new_target, open_session, tmp_path, kind):
    decided.export(kind)
    text = (tmp_path / f"labels.{kind}").read_text(encoding="utf-8")
    place, names = decided.state.category.copy(), dict(decided.state.names)
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    session = open_session(new_target(), fresh)
    assert session.import_labels(text).message == "10 images imported with 2 labels."
    assert session.state.category[[30, 31]].tolist() == [class_place(1), DISCARDED]
    assert (session.state.category == place).all()
    assert session.state.names == names
    session.act(_undo(session), session.revision)
    assert (session.state.category == session.target.start).all()
    assert not session.state.names


def _undo(session):
    from uniot.labelling.actions import Undo

    return Undo(kind="undo", of=session.to_undo.id)


def test_an_imported_label_means_the_class_or_group_of_that_name(decided):
    names = decided.target.names
    text = f"label,other,path\nmug,1,{names[41]}\nkettle,2,{names[42]}\nlamp,3,{names[43]}\n"
    decided.import_labels(text)
    labels = decided.state
    assert labels.category[41] == class_place(0)
    assert labels.category[42] == 0
    assert labels.names[int(labels.category[43])] == "lamp"
    assert labels.by_hand[41:44].all()


def test_unknown_samples_are_exported_without_a_label_and_not_imported(decided, tmp_path):
    decided.act(MoveSamples(kind="move", rows=[32], to="group-1"), decided.revision)
    assert decided.export("csv").sentence().endswith("7 in new classes, 1 in known classes, 1 discarded, 1 unknown.")
    assert "photos/032 é.jpg" not in decided.export("coco").path.read_text(encoding="utf-8")
    text = (tmp_path / "labels.csv").read_text(encoding="utf-8")
    assert "photos/032 é.jpg,,unknown,1" in text
    assert decided.import_labels(text).message == "Nothing to change: this is already so."
    assert decided.state.category[32] == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the header is ''. It needs path"),
        ("path,label\n", "it contains no label"),
        ("path,name\na,b\n", "the header is 'path, name'"),
        ("path,label\nnowhere.jpg,a\n", "1 of 1 samples are not in this run, for example 'nowhere.jpg'"),
        ("path,label\nphotos/030 é.jpg,a\nphotos/030 é.jpg,b\n", "line 3 contains 'photos/030 é.jpg' a second time"),
        ("path,label\nphotos/030 é.jpg,\n", "line 2 has no label"),
        ("path,label\nphotos/030 é.jpg,unknown\n", "is the word of this run for images of no known class"),
        ('{"path": "photos/030 é.jpg"}\n', "line 1 has no sample or no label"),
        ('{"path": "a", "label": "b"}\n[1]\n', "line 2 is not a JSON object"),
        ("{nonsense\n", "line 1 is not JSON"),
    ],
)
def test_what_cannot_be_imported_is_explained_and_changes_nothing(session, text, words):
    with pytest.raises(DataError, match=words):
        session.import_labels(text)
    assert session.revision == 0
