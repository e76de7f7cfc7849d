from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uniot.errors import DataError, RunFolderError
from uniot.io import sorted_copies
from uniot.io.predictions import Prediction, PredictionWriter
from uniot.io.sorted_copies import SortedCopies, check_destination

TEXT = st.text(st.characters(exclude_characters="\0"))
NAMES = ["a.jpg", 'b "x".jpg', "ü/c.jpg", "d.jpg"]
CLASSES = np.array(["back pack", "cup, white"])
PREDICTION = Prediction(
    nearest=np.array([1, 0, 1, 0]),
    known=np.array([True, False, False, True]),
    known_score=np.array([0.8, 0.1, 0.4, 1.0]),
    confidence=np.array([0.75, 0.1234567, 0.4999999, 1.0]),
    group=np.array([-1, 3, -1, -1]),
    group_confidence=np.array([0, 0.25, 0, 0]),
)


def part(prediction: Prediction, rows: slice) -> Prediction:
    return prediction.rows(rows)


def write(path: Path, names=NAMES, prediction=PREDICTION, classes=CLASSES, unknown="unknown") -> Path:
    with PredictionWriter(path, classes, unknown) as writer:
        writer.write(names, prediction)
    return path


@pytest.fixture
def photos(tmp_path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    return folder


def make(photos: Path, *names: str) -> list[tuple[Path, str]]:
    """Photographs, each with its own name as content."""
    files = []
    for name in names:
        path = photos / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name, encoding="utf-8", errors="surrogateescape")
        files.append((path, name))
    return files


def copy_sorted(files, labels, groups, known, out: Path, source: Path) -> int:
    """`SortedCopies` in one call, with the class of each image in `labels`."""
    classes, nearest = np.unique(labels, return_inverse=True)
    prediction = Prediction(nearest, known, np.zeros(len(labels)), np.zeros(len(labels)), groups, np.zeros(len(labels)))
    return SortedCopies(out, classes, collections=[source]).write(files, prediction)


def sort(files, labels, out: Path, source: Path, groups=None) -> int:
    """A label of None is unknown."""
    known = np.array([label is not None for label in labels])
    names = np.array(["unknown" if label is None else label for label in labels])
    groups = np.full(len(labels), -1) if groups is None else np.array(groups)
    return copy_sorted(files, names, groups, known, out, source=source)


def tree(out: Path) -> dict[str, str]:
    return {str(path.relative_to(out)): path.read_text() for path in sorted(out.rglob("*")) if path.is_file()}


def test_images_go_to_the_folder_of_their_class_or_group(tmp_path, photos):
    files = make(photos, "a.jpg", "sub/b.jpg", "c.jpg", "d.jpg", "e.jpg")
    labels, groups = ["cup", "back pack", None, None, None], [-1, -1, 3, 112, -1]
    assert sort(files, labels, tmp_path / "out", photos, groups) == 5
    assert tree(tmp_path / "out") == {
        "cup/a.jpg": "a.jpg",
        "back pack/b.jpg": "sub/b.jpg",
        "unknown-group-03/c.jpg": "c.jpg",
        "unknown-group-112/d.jpg": "d.jpg",
        "unknown/e.jpg": "e.jpg",
    }
    assert len(tree(photos)) == 5


def test_integer_classes_name_folders(tmp_path, photos):
    files = make(photos, "a.jpg", "b.jpg")
    copy_sorted(files, np.array([7, -1]), np.array([-1, 0]), np.array([True, False]), tmp_path / "out", source=photos)
    assert set(tree(tmp_path / "out")) == {"7/a.jpg", "unknown-group-00/b.jpg"}


def test_images_of_one_name_are_numbered(tmp_path, photos):
    files = make(photos, "x/a.jpg", "y/a.jpg", "y/a-2.jpg", "z/a.jpg", "z/A.JPG", "z/b")
    sort(files, ["cup"] * 6, tmp_path / "out", photos)
    assert tree(tmp_path / "out") == {
        "cup/a.jpg": "x/a.jpg",
        "cup/a-2.jpg": "y/a.jpg",
        "cup/a-2-2.jpg": "y/a-2.jpg",
        "cup/a-3.jpg": "z/a.jpg",
        # Some file systems would take it for a.jpg.
        "cup/A-4.JPG": "z/A.JPG",
        "cup/b": "z/b",
    }


@pytest.mark.parametrize("names", [("x/a.jpg", "y/a.jpg", "a-2.jpg"), ("a-2.jpg", "x/a.jpg", "y/a.jpg")])
def test_identical_images_are_all_kept(tmp_path, photos, names):
    files = make(photos, *names)
    for path, _ in files:
        path.write_text("same")
    sort(files, ["cup"] * 3, tmp_path / "out", photos)
    assert list(tree(tmp_path / "out").values()) == ["same"] * 3


def test_many_images_of_one_name_do_not_try_all_numbers_anew(tmp_path, photos, monkeypatch):
    tried = []
    monkeypatch.setattr(sorted_copies, "_same_name", lambda name: tried.append(name) or name)
    sort(make(photos, *(f"{row}/a.jpg" for row in range(40))), ["cup"] * 40, tmp_path / "out", photos)
    assert len(tree(tmp_path / "out")) == 40
    assert len(tried) < 100


def test_images_come_in_blocks_as_well_as_in_one_go(tmp_path, photos):
    files = make(photos, "x/a.jpg", "y/a.jpg", "z/a.jpg", "b.jpg")
    for path, _ in files[:3]:
        path.write_text("same")
    classes = np.array(["a/b", "a:b"])
    prediction = Prediction(
        np.array([1, 1, 1, 0]), np.ones(4, dtype=bool), np.ones(4), np.ones(4), np.full(4, -1), np.zeros(4)
    )
    copies = SortedCopies(tmp_path / "out", classes, collections=[photos])
    assert [copies.write([file], part(prediction, slice(row, row + 1))) for row, file in enumerate(files)] == [1] * 4
    expected = {"a_b-2/a.jpg": "same", "a_b-2/a-2.jpg": "same", "a_b-2/a-3.jpg": "same", "a_b/b.jpg": "b.jpg"}
    assert tree(tmp_path / "out") == expected
    SortedCopies(tmp_path / "out", classes, collections=[photos]).write(files, prediction)
    assert tree(tmp_path / "out") == expected


def test_table_that_is_being_written_in_the_same_folder_is_left_alone(tmp_path, photos):
    files = make(photos, "a.jpg")
    out = tmp_path / "out"
    with PredictionWriter(out / "predictions.csv", CLASSES, "unknown") as writer:
        writer.write(NAMES, PREDICTION)
        sort(files, ["cup"], out, photos)
    written = tree(out)
    assert written.keys() == {"predictions.csv", "cup/a.jpg"}
    assert written["predictions.csv"].count("\n") == 1 + len(NAMES)


def test_same_call_again_changes_nothing_and_brings_back_what_is_missing(tmp_path, photos):
    files = make(photos, "x/a.jpg", "y/a.jpg", "z/a.jpg", "b.jpg")
    out, labels = tmp_path / "out", ["cup", "cup", "cup", None]
    sort(files, labels, out, photos)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.jpg")}
    content = tree(out)
    assert sort(files, labels, out, photos) == 4
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.jpg")} == before
    (out / "cup" / "a-2.jpg").unlink()
    sort(files, labels, out, photos)
    assert tree(out) == content


def test_file_that_somebody_put_there_is_kept(tmp_path, photos):
    out = tmp_path / "out"
    make(out, "cup/a.jpg")
    (out / "cup" / "a-2.jpg").mkdir()
    sort(make(photos, "a.jpg"), ["cup"], out, photos)
    assert tree(out) == {"cup/a.jpg": "cup/a.jpg", "cup/a-3.jpg": "a.jpg"}


def test_files_are_taken_one_at_a_time(tmp_path, photos):
    files = make(photos, "a.jpg", "b.jpg", "c.jpg")
    out = tmp_path / "out"

    def stream():
        for number, file in enumerate(files):
            assert len(list(out.rglob("*.jpg"))) == number
            yield file

    sort(stream(), ["cup"] * 3, out, photos)


def test_interrupted_copying_goes_on(tmp_path, photos):
    files = make(photos, "a.jpg", "b.jpg", "c.jpg")
    out = tmp_path / "out"

    def interrupted():
        yield from files[:2]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sort(interrupted(), ["cup"] * 3, out, photos)
    assert tree(out) == {"cup/a.jpg": "a.jpg", "cup/b.jpg": "b.jpg"}
    # What a killed process leaves behind.
    (out / "cup" / ".c.jpg.1.partial").write_text("c.")
    sort(files, ["cup"] * 3, out, photos)
    assert set(tree(out)) == {"cup/a.jpg", "cup/b.jpg", "cup/c.jpg"}


def test_half_an_image_is_never_there(tmp_path, photos, monkeypatch):
    def full(file, written):
        written.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sorted_copies.shutil, "copyfileobj", full)
    with pytest.raises(
        RunFolderError, match=r"a\.jpg cannot be written \(No space left on device\).* the disk has space"
    ):
        sort(make(photos, "a.jpg"), ["cup"], tmp_path / "out", photos)
    assert tree(tmp_path / "out") == {}


@pytest.mark.parametrize(
    ("label", "folder"),
    [
        ("..", "_"),
        (".", "_"),
        ("", "_"),
        ("../../etc/passwd", "_.._etc_passwd"),
        ("/etc", "_etc"),
        ("C:\\Windows", "C__Windows"),
        (".hidden. ", "hidden"),
        ("cup/mug", "cup_mug"),
        ("what?*", "what__"),
        ("tab\tnewline\n", "tab_newline_"),
        ("\udcff", "_"),
        ("gpj\u202e.exe\x9b\u200b", "gpj_.exe__"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("CON", "_CON"),
        ("nul.tar", "_nul.tar"),
        ("console", "console"),
        ("St. Bernard, and a rather long one at that", "St. Bernard, and a rather long one at that"),
        ("unknown", "unknown-2"),
        ("Unknown-Group-03", "Unknown-Group-03-2"),
        ("unknown-group", "unknown-group"),
        ("ü" * 300, "ü" * 90),
    ],
)
def test_class_names_become_safe_folders(tmp_path, photos, label, folder):
    sort(make(photos, "a.jpg"), [label], tmp_path / "out", photos)
    assert tree(tmp_path / "out") == {f"{folder}/a.jpg": "a.jpg"}


def test_classes_that_look_alike_get_folders_of_their_own(tmp_path, photos):
    labels = ["a/b", "a:b", "a_b", "A_B", "a_b-2", "é", "e\u0301"]
    files = make(photos, *(f"{row}.jpg" for row in range(len(labels))))
    sort(files, labels, tmp_path / "out", photos)
    assert set(tree(tmp_path / "out")) == {
        "A_B/3.jpg",
        "a_b-2/0.jpg",
        "a_b-3/1.jpg",
        "a_b-4/2.jpg",
        "a_b-2-2/4.jpg",
        "e\u0301/6.jpg",
        "é-2/5.jpg",
    }


@given(labels=st.lists(TEXT, min_size=1, max_size=5, unique=True), names=st.data())
@settings(max_examples=40)
def test_nothing_leaves_the_folder_whatever_things_are_called(tmp_path_factory, labels, names):
    top = tmp_path_factory.mktemp("any")
    (top / "photo").write_text("photo")
    called = [names.draw(TEXT) for _ in labels]
    known = np.ones(len(labels), dtype=bool)
    groups = np.full(len(labels), -1)
    # NumPy drops NULs at the end of text and nothing else, so that the labels stay distinct.
    files = [(top / "photo", name) for name in called]
    copy_sorted(files, np.array(labels), groups, known, top / "out", source=top / "photos")
    assert {path.name for path in top.iterdir()} == {"photo", "out"}
    copies = [path for path in top.rglob("*") if path.is_file() and path != top / "photo"]
    # A folder for each class and a file in each.
    assert len({path.parent for path in copies}) == len(copies) == len(labels)
    assert all(path.parent.parent == top / "out" for path in copies)


def test_long_file_names_keep_their_suffix(tmp_path, photos):
    path = photos / "a.jpg"
    path.write_text("a")
    sort([(path, "x" * 240 + ".jpeg"), (path, "x" * 241 + ".jpeg")], ["cup", "cup"], tmp_path / "out", photos)
    assert set(tree(tmp_path / "out")) == {f"cup/{'x' * 180}.jpeg", f"cup/{'x' * 180}-2.jpeg"}


def test_folder_inside_the_input_is_refused(tmp_path, photos):
    files = make(photos, "a.jpg")
    (tmp_path / "link").symlink_to(photos)
    for out in (photos, photos / "sorted", photos / ".." / "photos" / "x", tmp_path / "link" / "sorted"):
        with pytest.raises(RunFolderError, match="copies would become samples. Give a folder apart from it"):
            sort(files, ["cup"], out, photos)
    assert {path.name for path in photos.iterdir()} == {"a.jpg"}


@pytest.mark.parametrize(
    ("place", "how"),
    [
        ("labelled", "is the collection"),
        ("labelled/cup/new", "lies in"),
        (".", "contains"),
        ("elsewhere/mugs", "is read as a part of"),
        ("elsewhere/mugs/new", "lies in"),
        ("elsewhere", "contains"),
        ("beside", "is the collection"),
    ],
)
def test_destination_that_overlaps_a_collection_is_refused_links_followed(tmp_path, place, how):
    for folder in ("labelled/cup", "elsewhere/mugs"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "labelled" / "mug").symlink_to(tmp_path / "elsewhere" / "mugs")
    (tmp_path / "beside").symlink_to(tmp_path / "labelled")
    with pytest.raises(RunFolderError, match=f"{how} .*labelled, so that copies would become samples"):
        check_destination(tmp_path / place, [tmp_path / "labelled"])


def test_destination_beside_a_collection_or_a_list_file_is_allowed(tmp_path):
    (tmp_path / "labelled").mkdir()
    (tmp_path / "list.txt").write_text("a.jpg\n")
    check_destination(tmp_path / "labelled-sorted", [tmp_path / "labelled", tmp_path / "list.txt"])


def test_link_out_of_the_folder_is_not_followed(tmp_path, photos):
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    out.mkdir()
    elsewhere.mkdir()
    (out / "cup").symlink_to(elsewhere)
    with pytest.raises(RunFolderError, match=r"cup is a link to a folder outside .*out"):
        sort(make(photos, "a.jpg"), ["cup"], out, photos)
    assert list(elsewhere.iterdir()) == []


def test_link_in_place_of_a_copy_is_not_written_through(tmp_path, photos):
    out, victim = tmp_path / "out", tmp_path / "victim"
    victim.write_text("precious")
    (out / "cup").mkdir(parents=True)
    (out / "cup" / "a.jpg").symlink_to(victim)
    (out / "cup" / "a-2.jpg").symlink_to(photos / "a.jpg")
    sort(make(photos, "a.jpg"), ["cup"], out, photos)
    assert victim.read_text() == "precious"
    # Nor is a link taken for a copy: it dies with what it leads to.
    assert (out / "cup" / "a-3.jpg").read_text() == "a.jpg"


def test_missing_image_is_named(tmp_path, photos):
    files = [*make(photos, "a.jpg"), (photos / "gone.jpg", "gone.jpg")]
    with pytest.raises(DataError, match=r"gone\.jpg cannot be read \(No such file or directory\)\. Bring it back"):
        sort(files, ["cup", "cup"], tmp_path / "out", photos)
    assert tree(tmp_path / "out") == {"cup/a.jpg": "a.jpg"}


@pytest.mark.parametrize(
    ("n_labels", "words"),
    [(1, "there are 2 or more files for 1 predictions"), (3, "there are 2 files for 3 predictions")],
)
def test_answers_of_other_files_are_refused(tmp_path, photos, n_labels, words):
    with pytest.raises(DataError, match=words):
        sort(make(photos, "a.jpg", "b.jpg"), ["cup"] * n_labels, tmp_path / "out", photos)


def test_place_below_a_file_is_refused(tmp_path, photos):
    (tmp_path / "file").touch()
    with pytest.raises(RunFolderError, match="cannot be written"):
        sort(make(photos, "a.jpg"), ["cup"], tmp_path / "file" / "out", photos)
