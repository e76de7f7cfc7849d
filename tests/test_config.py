from __future__ import annotations

import math
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uniot.config import ImageSettings, Settings
from uniot.errors import SettingsError
from uniot.io.text import read_settings
from uniot.methods import check_method, resolved_settings
from uniot.methods.uniot import UniOTOptions

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read(text: str, tmp_path) -> Settings:
    path = tmp_path / "settings.toml"
    path.write_text(text, encoding="utf-8")
    return read_settings(path)[0]


# --- defaults ---------------------------------------------------------------------------------------------


def test_defaults_are_those_of_the_paper():
    paper, own = Settings(), UniOTOptions()
    assert (own.temperature, own.adaptation_weight, own.similarity_threshold) == (0.1, 0.1, 0.7)
    assert (own.epsilon, own.marginal_penalty, own.class_mass_momentum) == (0.01, 0.5, 0.7)
    assert (own.balanced_epsilon, own.balanced_iterations, own.detection_start) == (0.05, 3, 100)
    resolved = paper.resolved(1000)
    assert (resolved.learning_rate, resolved.backbone_learning_rate) == (0.01, 0.001)
    assert (paper.momentum, paper.weight_decay, paper.batch_size) == (0.9, 5e-4, 36)
    assert (own.hidden_size, paper.feature_size) == (2048, 256)


def test_every_setting_says_what_it_is():
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert field.description.endswith("."), name


@pytest.mark.parametrize(
    ("n_target", "batch_size", "n_clusters", "queue_size", "steps"),
    [
        (1, 1, 2, 2000, 1000),
        (20, 20, 5, 2000, 1000),
        (332, 36, 50, 1980, 1000),
        (795, 36, 50, 1980, 1000),
        (3000, 36, 50, 1980, 1000),
        (4000, 36, 150, 1980, 1111),
        (50_000, 36, 500, 9972, 10_000),
        (1_000_000, 36, 1000, 9972, 10_000),
    ],
)
def test_size_of_the_target_decides_what_was_left_open(n_target, batch_size, n_clusters, queue_size, steps):
    resolved = resolved_settings(Settings(method="uniot"), n_target)
    found = (resolved.batch_size, resolved.method_options["n_clusters"], resolved.queue_size, resolved.steps)
    assert found == (batch_size, n_clusters, queue_size, steps)


@given(n_target=st.integers(1, 10_000_000), batch_size=st.integers(1, 3000))
def test_queue_holds_whole_batches_and_a_batch_is_never_larger_than_the_target(n_target, batch_size):
    resolved = resolved_settings(Settings(method="uniot", batch_size=batch_size), n_target)
    assert resolved.batch_size == min(batch_size, n_target)
    assert resolved.queue_size % resolved.batch_size == 0
    assert resolved.queue_size >= resolved.batch_size
    assert 2 <= resolved.method_options["n_clusters"] <= 1000
    assert 1000 <= resolved.steps <= 10_000


def test_what_was_given_is_not_decided_anew():
    given_ones = Settings.checked(method="uniot", n_clusters=7, queue_size=72, steps=3)
    resolved = resolved_settings(given_ones, 1_000_000)
    assert (resolved.method_options["n_clusters"], resolved.queue_size, resolved.steps) == (7, 72, 3)


def test_resolving_twice_changes_nothing():
    once = Settings().resolved(795)
    assert once.resolved(795) == once


# --- TOML -------------------------------------------------------------------------------------------------


def test_settings_come_back_from_toml_as_they_went(tmp_path):
    for written in (
        Settings(),
        Settings().resolved(795),
        Settings.checked(method="uniot", epsilon=1.5e-3, seed=2**63 - 1, steps=77),
    ):
        assert read(written.to_toml(), tmp_path) == written


@settings(max_examples=60)
@given(
    epsilon=st.floats(1e-3, 10),
    learning_rate=st.floats(0, 100, exclude_min=True),
    threshold=st.floats(-1, 1),
    seed=st.integers(0, 2**63 - 1),
    steps=st.none() | st.integers(1, 10_000_000),
)
def test_numbers_come_back_to_the_last_bit(tmp_path_factory, epsilon, learning_rate, threshold, seed, steps):
    written = Settings.checked(
        method="uniot",
        epsilon=epsilon,
        learning_rate=learning_rate,
        similarity_threshold=threshold,
        seed=seed,
        steps=steps,
    )
    assert read(written.to_toml(), tmp_path_factory.mktemp("settings")) == written


@given(text=st.text(st.characters(codec="utf-8")))
def test_any_text_in_a_table_comes_back_from_toml(text):
    written = Settings().to_toml(data={"source": text, "flag": True, "sizes": [1, 2], "names": [text]})
    assert tomllib.loads(written)["data"] == {"source": text, "flag": True, "sizes": [1, 2], "names": [text]}


def test_unicode_paths_and_quotes_come_back_from_the_file(tmp_path):
    data = {"source": 'Übung "ä" \\ λ/数据/🦉\ttab\x7f'}
    path = tmp_path / "settings.toml"
    path.write_text(Settings().to_toml(inputs=data), encoding="utf-8")
    assert tomllib.loads(path.read_text(encoding="utf-8"))["inputs"] == data
    assert read_settings(path) == (Settings(), None)


def test_settings_of_images_are_a_table_of_their_own(tmp_path):
    images = ImageSettings.checked(backbone="resnet50.a1_in1k", fine_tune="last", weights='w "1".safetensors')
    path = tmp_path / "settings.toml"
    path.write_text(Settings(steps=7).to_toml(images, inputs={"source": "a"}), encoding="utf-8")
    assert read_settings(path) == (Settings(steps=7), images)


@pytest.mark.parametrize(
    "wrong", [{"fine_tune": "some"}, {"backbone": "../x y"}, {"accumulate": 0}, {"flip": "sideways"}, {"size": 3}]
)
def test_wrong_settings_of_images_are_named(wrong):
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        ImageSettings.checked(**wrong)


def test_toml_explains_every_setting():
    text = Settings().to_toml()
    for name, field in Settings.model_fields.items():
        assert f"# {field.description}\n" in text
        assert f"{name} =" in text


def test_comments_of_the_toml_are_for_people_who_do_not_know_python():
    comments = [line for line in Settings().to_toml(ImageSettings()).splitlines() if line.startswith("# ")]
    assert not [line for line in comments if "None" in line or "`" in line]


# --- what is refused --------------------------------------------------------------------------------------


def test_unknown_key_is_refused_with_the_list_of_known_ones(tmp_path):
    with pytest.raises(SettingsError, match="no setting called 'epsilom'; known ones are .*epsilon"):
        check_method(read("method = 'uniot'\nepsilom = 0.1\n", tmp_path))
    with pytest.raises(SettingsError, match="data"):
        read("[data]\nsource = 'x'\n", tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("epsilon", 1e-4, "greater than or equal to 0.001"),
        ("marginal_penalty", 0.01, "greater than or equal to 0.05"),
        ("steps", -1, "greater than or equal to 0"),
        ("momentum", 1.0, "less than 1"),
        ("seed", -1, "greater than or equal to 0"),
        ("similarity_threshold", 1.1, "less than or equal to 1"),
        ("learning_rate", 0.0, "greater than 0"),
        ("batch_size", 3.5, "integer"),
        ("batch_size", "many", "integer"),
        ("network", "resnet", "match"),
        ("temperature", math.nan, "less than or equal to 100"),
        ("temperature", math.inf, "less than or equal to 100"),
    ],
)
def test_value_outside_its_range_is_named_with_the_setting_and_its_sentence(name, value, words):
    with pytest.raises(SettingsError) as caught:
        check_method(Settings.checked(method="uniot", **{name: value}))
    message = str(caught.value)
    assert f"setting {name} is {value!r}: " in message
    assert words in message
    assert (Settings.model_fields | UniOTOptions.model_fields)[name].description in message


def test_two_mistakes_are_both_named():
    with pytest.raises(SettingsError, match=r"setting steps is -3.*setting momentum is 2"):
        Settings.checked(momentum=2, steps=-3)


def test_text_that_is_not_toml_is_named_with_its_file(tmp_path):
    with pytest.raises(SettingsError, match=r"settings\.toml is not valid TOML .* Correct it or remove it"):
        read("epsilon = = 3\n", tmp_path)
    (tmp_path / "settings.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match=r"settings\.toml is not valid TOML"):
        read_settings(tmp_path / "settings.toml")


def test_settings_do_not_change_under_a_run():
    with pytest.raises(ValueError, match="frozen"):
        Settings().steps = 5
