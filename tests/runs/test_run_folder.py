from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import uniot
from uniot.errors import RunFolderError
from uniot.io.files import only_one_writer, replacing, write_text
from uniot.io.tensor_files import read_tensors, write_tensors

TENSORS = {
    "weight": torch.arange(6, dtype=torch.float32).reshape(2, 3),
    "ids": torch.tensor([3, -1]),
    "empty": torch.zeros(0, 4),
    "step": torch.tensor(7, dtype=torch.float64),
    "known": torch.tensor([True, False]),
}
ABOUT = {"classes": ["Übung", "b"], "step": 3}


@pytest.fixture
def path(tmp_path) -> Path:
    path = tmp_path / "run" / "model.safetensors"
    write_tensors(path, TENSORS, ABOUT)
    return path


def others_than(path: Path) -> list[str]:
    return [other.name for other in path.parent.iterdir() if other != path]


def write_half(path: Path, then: type[BaseException]) -> None:
    with replacing(path) as partial:
        partial.write_text("half of the ne")
        raise then


def enter_and_leave(folder: Path) -> None:
    with only_one_writer(folder):
        pass


# --- whole or not at all ----------------------------------------------------------------------------------


def test_what_was_written_is_read_back(path):
    tensors, about = read_tensors(path)
    assert about == ABOUT
    assert set(tensors) == set(TENSORS)
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)
    assert all(tensors[name].dtype == TENSORS[name].dtype for name in TENSORS)


def test_parts_of_a_larger_tensor_and_gradients_can_be_written(tmp_path):
    whole = torch.arange(12.0, requires_grad=True).reshape(3, 4)
    write_tensors(tmp_path / "a", {"column": whole[:, 1], "turned": whole.t(), "shared": whole[1]}, {})
    tensors, _ = read_tensors(tmp_path / "a")
    assert tensors["column"].tolist() == [1, 5, 9]
    assert torch.equal(tensors["turned"], whole.detach().t())
    assert tensors["shared"].tolist() == [4, 5, 6, 7]


def test_failure_while_writing_leaves_the_old_file_and_nothing_half_done(tmp_path):
    path = tmp_path / "predictions.csv"
    write_text(path, "old\n")
    with pytest.raises(ZeroDivisionError):
        write_half(path, ZeroDivisionError)
    assert path.read_text() == "old\n"
    assert others_than(path) == []


def test_failure_before_the_first_file_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        write_half(tmp_path / "new" / "run" / "predictions.csv", KeyboardInterrupt)
    assert list(tmp_path.iterdir()) == []


def test_old_file_is_there_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "history.csv"
    write_text(path, "old")
    with replacing(path) as partial:
        partial.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert others_than(path) == []


def test_text_keeps_its_letters(tmp_path):
    write_text(tmp_path / "labels.csv", "Grüße, 数据, 🦉\n")
    assert (tmp_path / "labels.csv").read_bytes() == "Grüße, 数据, 🦉\n".encode()


def test_place_below_a_file_is_an_error_that_says_what_to_check(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    place = tmp_path / "file" / "model.safetensors"
    for write in (lambda: write_text(place, "x"), lambda: write_tensors(place, TENSORS, ABOUT)):
        with pytest.raises(RunFolderError, match=r"cannot be written .* Check that the folder exists"):
            write()


def test_place_that_is_a_folder_cannot_be_written(tmp_path):
    (tmp_path / "model.safetensors").mkdir()
    with pytest.raises(RunFolderError, match="cannot be written"):
        write_tensors(tmp_path / "model.safetensors", TENSORS, ABOUT)
    assert others_than(tmp_path / "model.safetensors") == []


def test_error_of_a_full_disk_is_told_with_its_cause(tmp_path):
    with pytest.raises(RunFolderError, match="No space left on device"), replacing(tmp_path / "a"):
        raise OSError(28, "No space left on device")


def test_second_writer_is_kept_out_until_the_first_is_done(tmp_path):
    folder = tmp_path / "run"
    words = "another uniot process is writing to .*run. Wait for it"
    with only_one_writer(folder), pytest.raises(RunFolderError, match=words):
        enter_and_leave(folder)
    enter_and_leave(folder)


def test_writer_that_failed_does_not_keep_others_out(tmp_path):
    with pytest.raises(ZeroDivisionError), only_one_writer(tmp_path):
        raise ZeroDivisionError
    enter_and_leave(tmp_path)


def test_only_temporary_files_of_uniot_are_removed_and_none_of_another_run(tmp_path):
    ours = [tmp_path / ".a.csv.12-34.partial", tmp_path / "checkpoints" / ".b.12-34.partial"]
    others = [
        tmp_path / ".download.partial",
        tmp_path / "run" / ".lock",
        tmp_path / "run" / ".a.csv.12-34.partial",
        tmp_path / "deep" / "below" / ".a.csv.12-34.partial",
    ]
    for path in (*ours, *others):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (tmp_path / ".labels.12-34.partial" / "data").mkdir(parents=True)
    enter_and_leave(tmp_path)
    assert not any(path.exists() for path in (*ours, tmp_path / ".labels.12-34.partial"))
    assert all(path.exists() for path in others)


def write_and_fail(folder: Path, *names: str) -> None:
    with only_one_writer(folder):
        for name in names:
            write_text(folder / name, "")
        raise ZeroDivisionError


def test_writer_that_failed_leaves_no_empty_folder_of_its_own(tmp_path):
    (tmp_path / "old").mkdir()
    for folder, names in (("new/run", ()), ("old", ()), ("begun", ("checkpoint",))):
        with pytest.raises(ZeroDivisionError):
            write_and_fail(tmp_path / folder, *names)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["begun", "checkpoint", "old"]


def test_folder_that_cannot_be_made_cannot_be_written_by_anybody(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(RunFolderError, match="cannot be written"):
        enter_and_leave(tmp_path / "file" / "run")


# --- damage is noticed ------------------------------------------------------------------------------------


def test_changed_number_does_not_match_the_checksum(path):
    content = bytearray(path.read_bytes())
    content[content.index(struct.pack("<f", 5.0))] ^= 1
    path.write_bytes(content)
    with pytest.raises(RunFolderError, match="does not match its own checksum: it was changed after it was written"):
        read_tensors(path)


def test_changed_description_does_not_match_the_checksum(path):
    path.write_bytes(path.read_bytes().replace(b'\\"step\\": 3', b'\\"step\\": 4'))
    with pytest.raises(RunFolderError, match="does not match its own checksum"):
        read_tensors(path)


def test_no_changed_byte_goes_unnoticed(path):
    content = path.read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1
        path.write_bytes(changed)
        with pytest.raises(RunFolderError, match=re.escape(str(path))):
            read_tensors(path)


def test_no_truncated_file_goes_unnoticed(path):
    content = path.read_bytes()
    for length in range(0, len(content), 7):
        path.write_bytes(content[:length])
        with pytest.raises(RunFolderError, match=r"cannot be read .* damaged or was not written by uniot"):
            read_tensors(path)


def test_missing_file_is_an_error_that_says_how_to_make_one(tmp_path):
    with pytest.raises(RunFolderError, match=r"model\.safetensors does not exist\. Give the folder of a finished run"):
        read_tensors(tmp_path / "model.safetensors")
    with pytest.raises(RunFolderError, match="does not exist"):
        read_tensors(tmp_path)


@pytest.mark.parametrize("metadata", [None, {"format": "uniot-99"}, {"format": "pt"}])
def test_file_of_another_version_names_both(tmp_path, metadata):
    path = tmp_path / "model.safetensors"
    save_file({"weight": torch.zeros(2)}, path, metadata)
    other = None if metadata is None else metadata["format"]
    with pytest.raises(RunFolderError, match=f"has format {other!r} and this version of uniot reads 'uniot-4'"):
        read_tensors(path)


def test_file_without_its_description_and_checksum_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file({"weight": torch.zeros(2)}, path, {"format": "uniot-4"})
    with pytest.raises(RunFolderError, match="does not match its own checksum"):
        read_tensors(path)


def test_file_of_another_program_is_not_read(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"PK\x03\x04 a zip file, such as torch.save writes")
    with pytest.raises(RunFolderError, match="cannot be read"):
        read_tensors(path)


def test_nothing_in_the_package_reads_or_writes_a_pickle():
    source = Path(uniot.__file__).parent
    forbidden = re.compile(
        r"\b(import|from) (pickle|joblib|dill|cloudpickle|shelve)\b|torch\.save\(|allow_pickle=True"
        r"|torch\.load\((?!file, weights_only=False\), \")(?!.*weights_only=True)"
    )
    for file in source.rglob("*.py"):
        assert not forbidden.search(file.read_text(encoding="utf-8")), file


def test_description_can_be_read_without_this_package(path):
    size = struct.unpack("<Q", path.read_bytes()[:8])[0]
    header = json.loads(path.read_bytes()[8 : 8 + size])
    assert json.loads(header["__metadata__"]["about"]) == ABOUT
