"""A shared run decides as the run does, and holds nothing of the data that it was made from."""

from __future__ import annotations

import json
import re
import shutil
import sys
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from uniot import UniDAClassifier, __version__
from uniot.cli.pull import pull as pull_command
from uniot.cli.push import push as push_command
from uniot.config import ImageSettings
from uniot.datasets import ToyDomains, make_toy_domains
from uniot.errors import DataError, RunFolderError
from uniot.export.hub import pull, push
from uniot.export.hub_client import model_card
from uniot.io.tensor_files import read_tensors, write_tensors
from uniot.io.text import read_settings
from uniot.runs.loading import load_model
from uniot.runs.saving import save_model
from uniot.training.model import AdaptedModel

SHARED = {"README.md", "settings.toml", "history.csv", "features.safetensors", "model.safetensors"}
PAPER = {
    "method": "uniot",
    "steps": 30,
    "hidden_size": 64,
    "feature_size": 32,
    "detection_start": 20,
    "queue_size": 400,
}
REPOSITORY = "somebody/office"


@dataclass
class FakeHub:
    """The hub as a folder; keeps what it was asked."""

    root: Path
    is_private: bool | None = None
    asked: list[tuple[str, dict]] = field(default_factory=list)
    obeys_patterns: bool = True

    def create_repo(self, repo_id: str, **options: object) -> str:
        self.asked.append(("create_repo", {"repo_id": repo_id, **options}))
        (self.root / repo_id).mkdir(parents=True, exist_ok=bool(options["exist_ok"]))
        if self.is_private is None:
            self.is_private = bool(options["private"])
        return f"https://huggingface.co/{repo_id}"

    def repo_info(self, repo_id: str, **options: object) -> SimpleNamespace:
        return SimpleNamespace(id=repo_id, private=self.is_private)

    def upload_folder(self, **options: object) -> None:
        self.asked.append(("upload_folder", options))
        folder = self.root / str(options["repo_id"])
        for path in [*folder.iterdir()]:
            if any(fnmatch(path.name, pattern) for pattern in options["delete_patterns"]):
                path.unlink()
        for path in Path(options["folder_path"]).iterdir():
            if any(fnmatch(path.name, pattern) for pattern in options["allow_patterns"]):
                shutil.copyfile(path, folder / path.name)

    def snapshot_download(self, repo_id: str, **options: object) -> str:
        self.asked.append(("snapshot_download", {"repo_id": repo_id, **options}))
        (options["local_dir"] / ".cache").mkdir()
        for path in (self.root / repo_id).iterdir():
            matches = any(fnmatch(path.name, pattern) for pattern in options["allow_patterns"])
            if matches or not self.obeys_patterns:
                shutil.copyfile(path, options["local_dir"] / path.name)
        return str(options["local_dir"])


class BrokenHub:
    """A hub that answers everything with one error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def create_repo(self, repo_id: str, **options: object) -> str:
        raise self.error

    snapshot_download = create_repo


@pytest.fixture
def hub(tmp_path: Path) -> FakeHub:
    pytest.importorskip("huggingface_hub", reason="pip install 'uniot[hub]'")
    return FakeHub(tmp_path / "hub")


@pytest.fixture(scope="module")
def toy() -> ToyDomains:
    return make_toy_domains(seed=1)


@pytest.fixture(scope="module")
def run(toy: ToyDomains, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, with names and paths that nobody else should see."""
    folder = tmp_path_factory.mktemp("secret") / "run"
    fitted = UniDAClassifier(random_state=0, **PAPER).fit(toy.x_source, toy.y_source, toy.x_target)
    names = [f"secret/patient-{row}.jpg" for row in range(len(toy.x_target))]
    save_model(fitted.model_, folder, names, {"source": str(folder / "source.npz"), "target": "/secret/target.npz"})
    return folder


@pytest.fixture(scope="module")
def loaded(run: Path) -> AdaptedModel:
    return load_model(run)


@pytest.fixture(scope="module")
def shared(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shared") / "model"
    assert push(run, str(folder)) == str(folder)
    return folder


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_pulled_run_answers_as_the_run_itself(run: Path, shared: Path, toy: ToyDomains, tmp_path: Path) -> None:
    pull(str(shared), tmp_path / "copy")
    before, after = UniDAClassifier.load(run), UniDAClassifier.load(tmp_path / "copy")
    rows = toy.x_target + 0.01
    for name in ("nearest", "known", "confidence", "group"):
        answers = (getattr(fitted.predict_full(rows), name) for fitted in (before, after))
        np.testing.assert_array_equal(*answers, err_msg=name)
    np.testing.assert_array_equal(before.predict_proba(rows), after.predict_proba(rows))
    assert names_in(tmp_path / "copy") == SHARED


def test_a_pulled_run_has_no_target(shared: Path, tmp_path: Path) -> None:
    model = pull(str(shared), tmp_path / "copy")
    assert len(model.target) == 0
    assert model.target_features.shape == (0, 32)
    assert UniDAClassifier.load(tmp_path / "copy").labels_.tolist() == []


def test_nothing_of_the_target_is_shared(run: Path, shared: Path) -> None:
    assert names_in(shared) == SHARED
    mine, _ = read_tensors(run / "model.safetensors")
    theirs, _ = read_tensors(shared / "model.safetensors")
    assert not theirs["method.loss.queue.features"].any()
    assert (theirs["method.loss.queue.ids"] == -1).all()
    assert read_tensors(shared / "features.safetensors")[0]["target"].numel() == 0
    of_target = {name for name in mine if name.startswith("target.")}
    assert of_target
    assert all(theirs[name].numel() == 0 for name in of_target)
    # The run has a row of its own for each sample in these; they must be all there is.
    per_sample = {name for name, tensor in mine.items() if len(tensor.shape) and len(tensor) == 150}
    assert per_sample == of_target


def test_no_path_and_no_name_of_a_file_is_shared(run: Path, shared: Path, tmp_path: Path) -> None:
    assert b"secret" in (run / "settings.toml").read_bytes()
    for path in shared.iterdir():
        content = path.read_bytes()
        assert b"secret" not in content, path.name
        assert str(shared).encode() not in content, path.name
        assert str(Path.home()).encode() not in content, path.name
    assert "[inputs]" not in (shared / "settings.toml").read_text()
    read_settings(shared / "settings.toml")


def test_adapt_does_not_take_a_pulled_run_for_its_own(shared: Path, toy: ToyDomains, tmp_path: Path) -> None:
    pull(str(shared), tmp_path / "copy")
    with pytest.raises(RunFolderError, match="contains a finished run of other data"):
        UniDAClassifier(random_state=0, **PAPER).fit(toy.x_source, toy.y_source, toy.x_target, run=tmp_path / "copy")


def test_the_run_itself_is_left_as_it_was(run: Path, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    push(run, str(tmp_path / "shared"))
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


def test_the_hub_gets_these_files_in_a_private_repository(run: Path, hub: FakeHub) -> None:
    assert push(run, REPOSITORY, hub=hub) == f"https://huggingface.co/{REPOSITORY}"
    assert names_in(hub.root / REPOSITORY) == SHARED
    (created, uploaded) = hub.asked
    assert created == (
        "create_repo",
        {"repo_id": REPOSITORY, "repo_type": "model", "private": True, "exist_ok": True},
    )
    assert uploaded[0] == "upload_folder"
    assert uploaded[1]["repo_id"] == REPOSITORY
    assert uploaded[1]["repo_type"] == "model"
    assert __version__ in uploaded[1]["commit_message"]
    assert set(uploaded[1]["allow_patterns"]) == SHARED | {"backbone.safetensors", "genes.safetensors"}
    assert not Path(uploaded[1]["folder_path"]).exists()


def test_the_hub_gives_back_what_it_got(run: Path, hub: FakeHub, toy: ToyDomains, tmp_path: Path) -> None:
    push(run, REPOSITORY, hub=hub)
    model = pull(REPOSITORY, tmp_path / "copy", "v1", hub=hub)
    assert model.classes.tolist() == np.unique(toy.y_source).tolist()
    name, options = hub.asked[-1]
    assert name == "snapshot_download"
    assert (options["repo_id"], options["revision"], options["repo_type"]) == (REPOSITORY, "v1", "model")
    assert names_in(tmp_path / "copy") == SHARED


def test_another_push_leaves_no_file_of_the_earlier_run(run: Path, hub: FakeHub) -> None:
    (hub.root / REPOSITORY).mkdir(parents=True)
    for name in ("backbone.safetensors", "notes.md"):
        (hub.root / REPOSITORY / name).write_text("of an earlier run")
    push(run, REPOSITORY, hub=hub)
    assert names_in(hub.root / REPOSITORY) == SHARED | {"notes.md"}


def test_a_public_repository_is_not_taken_for_a_private_one(run: Path, hub: FakeHub) -> None:
    hub.is_private = False
    with pytest.raises(DataError, match=r"somebody/office is public.*--public"):
        push(run, REPOSITORY, hub=hub)
    assert names_in(hub.root / REPOSITORY) == set()
    push(run, REPOSITORY, private=False, hub=hub)
    assert names_in(hub.root / REPOSITORY) == SHARED


@pytest.mark.parametrize("obeys_patterns", [True, False])
def test_nothing_but_tensors_and_text_is_fetched(run: Path, hub: FakeHub, tmp_path: Path, obeys_patterns: bool) -> None:
    push(run, REPOSITORY, hub=hub)
    for name in ("pytorch_model.bin", "model.pkl", "setup.py", "predictions.csv", "metrics.json"):
        (hub.root / REPOSITORY / name).write_bytes(b"anything")
    hub.obeys_patterns = obeys_patterns
    pull(REPOSITORY, tmp_path / "copy", hub=hub)
    assert names_in(tmp_path / "copy") == SHARED


def _flip_a_byte(folder: Path) -> None:
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-1000] ^= 1
    (folder / "model.safetensors").write_bytes(bytes(content))


def _of_another_kind(folder: Path) -> None:
    write_tensors(folder / "model.safetensors", {"x": torch.zeros(1)}, {"fingerprint": "", "nothing": 1})
    write_tensors(folder / "features.safetensors", {"target": torch.zeros(0, 32)}, {"fingerprint": ""})


def _of_other_sizes(folder: Path) -> None:
    tensors, about = read_tensors(folder / "model.safetensors")
    about["settings"]["hidden_size"] = 65
    write_tensors(folder / "model.safetensors", tensors, about)


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (_flip_a_byte, r"somebody/office/model.safetensors does not match its own checksum"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"\x80\x04pickle"), "cannot be read"),
        (lambda folder: (folder / "model.safetensors").unlink(), "has no run of uniot: there is no model.safetens"),
        (lambda folder: (folder / "features.safetensors").unlink(), "somebody/office/features.safetensors does not"),
        (_of_another_kind, r"somebody/office/model.safetensors has nothing as classes of its run: field required"),
        (_of_other_sizes, r"model.safetensors does not fit its settings \(size mismatch for projection.hidden.weight"),
    ],
)
def test_what_cannot_be_used_is_refused_and_leaves_no_trace(
    harm, words: str, run: Path, hub: FakeHub, tmp_path: Path
) -> None:
    push(run, REPOSITORY, hub=hub)
    harm(hub.root / REPOSITORY)
    with pytest.raises(RunFolderError, match=words) as caught:
        pull(REPOSITORY, tmp_path / "copy", hub=hub)
    assert ".pull-" not in str(caught.value)
    assert not (tmp_path / "copy").exists()


def test_a_link_out_of_the_repository_is_refused(
    run: Path, hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(run, REPOSITORY, hub=hub)

    def with_a_link(repo_id: str, **options: object) -> None:
        (options["local_dir"] / "model.safetensors").symlink_to(run / "model.safetensors")

    monkeypatch.setattr(hub, "snapshot_download", with_a_link)
    with pytest.raises(RunFolderError, match=r"model.safetensors of somebody/office is a link"):
        pull(REPOSITORY, tmp_path / "copy", hub=hub)


def test_a_folder_that_is_in_use_is_not_pulled_into(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    for place in (tmp_path, tmp_path / "README.md"):
        with pytest.raises(RunFolderError, match=r"is not an empty folder. Give a new one."):
            pull(str(shared), place)
    assert names_in(tmp_path) == {"README.md"}
    (tmp_path / "empty").mkdir()
    pull(str(shared), tmp_path / "empty")
    assert names_in(tmp_path / "empty") == SHARED


def test_a_run_is_not_replaced_by_its_shared_form(run: Path) -> None:
    with pytest.raises(RunFolderError, match="contains a run with its predictions, which would be lost"):
        push(run, str(run))
    assert len(load_model(run).target) == 150


def test_a_folder_of_other_things_is_not_pushed_into(run: Path, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(RunFolderError, match=r"contains other files, such as README.md. Give a new folder."):
        push(run, str(tmp_path))
    with pytest.raises(RunFolderError, match="is a file"):
        push(run, str(tmp_path / "README.md"))
    assert (tmp_path / "README.md").read_text() == "mine"


def test_a_clone_of_a_repository_keeps_its_history(run: Path, tmp_path: Path) -> None:
    (tmp_path / "clone" / ".git").mkdir(parents=True)
    for _ in range(2):
        push(run, str(tmp_path / "clone"))
        assert names_in(tmp_path / "clone") == SHARED | {".git"}


@pytest.mark.parametrize("form", ["./shared", "file:shared", "shared"])
def test_a_folder_may_be_written_in_several_ways(
    form: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shared").mkdir()
    push(run, form)
    assert names_in(tmp_path / "shared") == SHARED
    pull(form, tmp_path / "copy")


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"nowhere is not a folder. Give one that `uniot push` wrote"):
        pull(str(tmp_path / "nowhere"), tmp_path / "copy")


def test_a_folder_has_no_revisions(shared: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is a folder, which has no revisions. Leave 'v1' out."):
        pull(str(shared), tmp_path / "copy", "v1")


def _errors() -> dict[str, tuple[Exception, str]]:
    if find_spec("huggingface_hub") is None:
        return {}
    from huggingface_hub import errors

    def answer(status: int) -> SimpleNamespace:
        return SimpleNamespace(status_code=status, headers={}, request=None)

    return {
        "404": (
            errors.RepositoryNotFoundError("404 Client Error", response=answer(404)),
            r"there is no somebody/office on the hub, or you may not see it.*hf auth login",
        ),
        "gated": (
            errors.GatedRepoError("403 Client Error", response=answer(403)),
            r"accept its terms. Do so at https://huggingface.co/somebody/office",
        ),
        "revision": (
            errors.RevisionNotFoundError("404 Client Error", response=answer(404)),
            r"somebody/office has no revision 'v9'",
        ),
        "401": (
            errors.HfHubHTTPError("401 Client Error", response=answer(401)),
            r"denies access to.*\(401\).*HF_TOKEN",
        ),
        "403": (errors.HfHubHTTPError("403 Client Error", response=answer(403)), r"the token must allow writing there"),
        "500": (
            errors.HfHubHTTPError("500 Server Error", response=answer(500)),
            r"the hub responds with 500.*Try again later",
        ),
        "no token": (errors.LocalTokenNotFoundError("none"), r"requires you to log in.*hf auth login"),
        "no network": (
            errors.HTTPError("Name or service not known"),
            r"cannot be reached \(Name or service not known\)",
        ),
        "offline": (errors.OfflineModeIsEnabled("offline mode"), r"cannot be reached \(offline mode\).*\./shared"),
        "nothing cached": (
            errors.LocalEntryNotFoundError("Got: ConnectError\nand more"),
            r"reached \(Got: ConnectError\)",
        ),
        "full disk": (OSError(28, "No space left on device"), r"cannot be copied \(No space left on device\)"),
        "name": (errors.HFValidationError("Repo id must be"), r"'somebody/office' cannot be the name of a repository"),
    }


@pytest.mark.parametrize("name", _errors())
def test_what_the_hub_or_the_network_says_is_put_in_words_that_help(name: str, run: Path, tmp_path: Path) -> None:
    error, words = _errors()[name]
    with pytest.raises((DataError, RunFolderError), match=words):
        pull(REPOSITORY, tmp_path / "copy", "v9", hub=BrokenHub(error))
    assert not (tmp_path / "copy").exists()
    if name != "revision":
        with pytest.raises((DataError, RunFolderError), match=words):
            push(run, REPOSITORY, hub=BrokenHub(error))


def test_a_missing_package_is_named_with_what_to_install(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", None)
    for ask in (lambda: push(run, REPOSITORY), lambda: pull(REPOSITORY, tmp_path / "copy")):
        with pytest.raises(DataError, match=r"huggingface_hub.*pip install 'uniot\[hub\]'"):
            ask()


def test_the_token_goes_to_the_hub(run: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    given_to = []
    monkeypatch.setattr("huggingface_hub.HfApi", lambda **options: given_to.append(options) or hub)
    push(run, REPOSITORY, token="hf_secret")
    assert given_to == [{"token": "hf_secret", "library_name": "uniot", "library_version": __version__}]


def test_the_real_client_has_what_is_asked_of_it() -> None:
    # The fake takes whatever it is given; the names must be those of the real one.
    import inspect

    api = pytest.importorskip("huggingface_hub").HfApi
    expected = {
        "create_repo": {"repo_id", "repo_type", "private", "exist_ok"},
        "repo_info": {"repo_id", "repo_type"},
        "upload_folder": {
            *("repo_id", "repo_type", "folder_path", "allow_patterns", "delete_patterns", "commit_message")
        },
        "snapshot_download": {"repo_id", "repo_type", "revision", "local_dir", "allow_patterns"},
    }
    for name, parameters in expected.items():
        assert parameters <= set(inspect.signature(getattr(api, name)).parameters), name


# The model card.


def test_the_hub_can_read_the_header_of_the_card(run: Path, tmp_path: Path) -> None:
    cards = pytest.importorskip("huggingface_hub", reason="pip install 'uniot[hub]'")
    push(run, str(tmp_path / "shared"), licence="cc-by-4.0")
    header = cards.ModelCard.load(tmp_path / "shared" / "README.md").data.to_dict()
    tags = ["uniot", "domain-adaptation", "universal-domain-adaptation", "optimal-transport"]
    assert header == {"library_name": "uniot", "license": "cc-by-4.0", "tags": tags}


def test_the_card_says_what_the_model_is_and_how_it_is_used(run: Path, hub: FakeHub) -> None:
    push(run, REPOSITORY, hub=hub)
    card = (hub.root / REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert "license" not in card
    assert "# office\n" in card
    assert "Install uniot with the extra `hub`, as its README says." in card
    assert f"$ uniot pull {REPOSITORY} --out run/\n$ uniot predict run/ new.npz\n" in card
    assert "common-0\ncommon-1\ncommon-2\nsource-0\nsource-1\n" in card
    assert "Embeddings have 32 numbers" in card
    assert "| steps | 30 |" in card
    assert "classified on its own" in card
    assert "Scores" not in card


def test_scores_are_in_the_card_where_the_run_was_scored(run: Path, tmp_path: Path) -> None:
    scored = Path(shutil.copytree(run, tmp_path / "run"))
    metrics = {"h_score": 0.91234, "auroc": None, "per_class_recall": {"secret": 1.0}}
    (scored / "metrics.json").write_text(json.dumps(metrics))
    push(scored, str(tmp_path / "shared"))
    card = (tmp_path / "shared" / "README.md").read_text(encoding="utf-8")
    assert "| h_score | 91.2 | Overall: high only if" in card
    assert "auroc" not in card
    assert "secret" not in card
    (scored / "metrics.json").write_text("[")
    with pytest.raises(RunFolderError, match=r"metrics.json cannot be read.*`uniot evaluate` again"):
        push(scored, str(tmp_path / "again"))


@pytest.mark.parametrize("licence", ["MIT", "mit\nlibrary_name: other", ""])
def test_a_licence_is_an_abbreviation(licence: str, run: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Give its abbreviation in small letters"):
        push(run, str(tmp_path / "shared"), licence=licence)


@given(st.lists(st.text(max_size=8) | st.sampled_from(["```", "`````", "---", "a\nb", "b\udcff"]), min_size=1))
def test_no_class_name_breaks_out_of_its_block(loaded: AdaptedModel, names: list[str]) -> None:
    card = model_card(replace(loaded, classes=np.array(names)), REPOSITORY)
    card.encode("utf-8")
    block = card.partition("## Classes\n\n")[2]
    fence = re.match(r"`+", block)[0]
    inside, _, after = block.removeprefix(f"{fence}text\n").partition(f"\n{fence}\n")
    assert len(inside.split("\n")) == len(names)
    assert after.startswith("\n## Settings\n")


# Runs made from images.


def test_a_run_of_images_takes_its_backbone_along_and_leaves_its_path(tmp_path: Path) -> None:
    if find_spec("timm") is None:
        pytest.skip("pip install 'uniot[images]'")
    from uniot.images.backbones import ImageReader, load_backbone

    backbone = load_backbone("test_resnet", pretrained=False)
    settings = ImageSettings(backbone="test_resnet", weights="/secret/weights.pth")
    reader = ImageReader(settings, backbone, backbone.split("none"))
    random = np.random.default_rng(0)
    rows = random.normal(size=(20, backbone.width))
    fitted = UniDAClassifier(random_state=0, **(PAPER | {"queue_size": 20})).fit(
        rows, np.repeat(["a", "b"], 10), rows + 0.1
    )
    save_model(replace(fitted.model_, reader=reader), tmp_path / "run")
    push(tmp_path / "run", str(tmp_path / "shared"))
    assert names_in(tmp_path / "shared") == SHARED | {"backbone.safetensors"}
    assert "with the extras `hub` and `images`" in (tmp_path / "shared" / "README.md").read_text(encoding="utf-8")
    for path in (tmp_path / "shared").iterdir():
        assert b"secret" not in path.read_bytes(), path.name
    card = (tmp_path / "shared" / "README.md").read_text(encoding="utf-8")
    assert "pipeline_tag: image-classification" in card
    assert "| backbone | test_resnet |" in card
    assert "$ uniot predict run/ photos/" in card
    model = pull(str(tmp_path / "shared"), tmp_path / "copy")
    assert model.reader is not None
    for name, tensor in reader.split.trunk.state_dict().items():
        torch.testing.assert_close(model.reader.split.trunk.state_dict()[name], tensor, rtol=0, atol=0)


# The commands.


def test_the_commands_share_and_fetch_a_run(run: Path, tmp_path: Path) -> None:
    app = typer.Typer()
    app.command("push")(push_command)
    app.command("pull")(pull_command)
    shared, copy = str(tmp_path / "shared"), str(tmp_path / "copy")

    def uniot(*arguments: str) -> str:
        answer = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
        assert answer.exit_code == 0, answer.output
        return " ".join(answer.stdout.split())

    said = uniot("push", str(run), shared, "--licence", "mit")
    assert "no predictions for the target, no features of it, and no paths" in said
    assert f"Next: uniot pull {shared} --out copy/" in said
    said = uniot("pull", shared, "--out", copy)
    assert "contains a run with 5 classes and" in said
    assert f"Next: uniot predict {copy} new.npz" in said
    assert names_in(tmp_path / "copy") == SHARED


def test_the_command_shares_in_private_unless_told_otherwise(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = typer.Typer()
    app.command("push")(push_command)
    asked = []
    monkeypatch.setattr("uniot.export.hub.push", lambda *arguments, **options: asked.append(options) or "somewhere")
    for more in ([], ["--public"]):
        CliRunner().invoke(app, [str(run), REPOSITORY, *more])
    assert [options["private"] for options in asked] == [True, False]
