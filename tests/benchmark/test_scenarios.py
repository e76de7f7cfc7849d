"""Scenarios: exact shares, disjoint classes, never more samples than there are, and the same ones every time."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uniot.benchmark.features import TaskData, draw_target
from uniot.benchmark.scenarios import (
    FAMILIES,
    MAX_TARGET,
    MIN_TARGET,
    Scenario,
    TargetDraw,
    family_of,
    make_scenarios,
    scenario_order,
    setting_sizes,
)
from uniot.benchmark.universality import PURPOSES
from uniot.datasets.catalogue import benchmark_set
from uniot.errors import DataError

OFFICE = {name: 70 + place for place, name in enumerate(benchmark_set("office31").classes)}


def scenarios(sizes: dict[str, int] = OFFICE, seed: int = 300, source: str = "amazon") -> dict[str, Scenario]:
    return {one.name: one for one in make_scenarios(source, "webcam", set(sizes), sizes, seed)}


def n_private(scenario: Scenario) -> int:
    return sum(count for name, count in scenario.draw.counts if name in scenario.split.target_private)


@pytest.mark.parametrize(
    ("n_classes", "open_partial", "open_set", "closed"),
    [
        (31, (11, 10, 10), (16, 15), 27),
        (28, (10, 9, 9), (14, 14), 24),
        (10, (4, 3, 3), (5, 5), 9),
        (7, (3, 2, 2), (4, 3), 6),
    ],
)
def test_settings_are_thirds_halves_and_nearly_all_classes(n_classes, open_partial, open_set, closed):
    sizes = setting_sizes(n_classes)
    found = sizes["open-partial"]
    assert (found.common, found.source_private, found.target_private) == open_partial
    assert (sizes["open"].common, sizes["open"].target_private, sizes["open"].source_private) == (*open_set, 0)
    assert (sizes["partial"].common, sizes["partial"].source_private, sizes["partial"].target_private) == (*open_set, 0)
    assert sizes["closed"].common == closed


def test_a_large_set_has_every_scenario():
    found = scenarios()
    assert {name.partition("=")[0] for name in found} == set(FAMILIES)
    assert len(found) == 34
    assert [name for name in found if name.startswith("source-classes")] == [
        f"source-classes={number}" for number in (2, 3, 5, 10, 20)
    ]


@given(
    st.dictionaries(st.text("abcdefgh", min_size=1, max_size=4), st.integers(1, 900), min_size=2, max_size=40),
    st.sampled_from([300, 900]),
)
def test_whatever_the_data_a_scenario_is_one(sizes, seed):
    for scenario in scenarios(sizes, seed).values():
        split, counts = scenario.split, dict(scenario.draw.counts)
        classes = [*split.common, *split.source_private, *split.target_private]
        assert len(classes) == len(set(classes)), "no class is both common and private"
        assert set(classes) <= set(sizes)
        assert len(split.source) >= 2
        assert set(counts) <= set(split.target)
        assert all(1 <= count <= sizes[name] for name, count in counts.items())
        assert MIN_TARGET <= scenario.draw.n_samples <= MAX_TARGET
        assert list(counts) == sorted(counts)
        kind, _, value = scenario.name.partition("=")
        if kind == "private-prior":
            assert n_private(scenario) / scenario.draw.n_samples == float(value)
        if kind.startswith("dominant"):
            largest = max(counts, key=counts.__getitem__)
            assert max(counts.values()) / scenario.draw.n_samples == float(value)
            # With one half in one class, another may have the other half.
            assert value == "0.5" or (largest in split.common) == (kind == "dominant-known")
        if kind.endswith("target-size"):
            assert scenario.draw.n_samples == int(value)
        if kind == "source-classes":
            assert len(split.source) == int(value)
            assert len(split.common) == (int(value) + 1) // 2
            assert len(split.target_private) == min(int(value), len(sizes) - int(value))
        if kind in ("closed", "closed-classes", "closed-target-size"):
            assert not split.source_private
            assert not split.target_private


def test_a_long_tail_falls_by_a_factor_of_a_hundred_down_to_one_sample_in_small_domains():
    counts = dict(scenarios(dict.fromkeys("abcdefg", 1000))["long-tail"].draw.counts)
    assert len(counts) == 5
    assert max(counts.values()) == 100 * min(counts.values())
    ratios = np.diff(np.log(sorted(counts.values())))
    np.testing.assert_allclose(ratios, np.log(100) / 4, rtol=0.1)
    small = dict(scenarios(dict.fromkeys("abcdefg", 40))["long-tail"].draw.counts)
    assert (max(small.values()), min(small.values())) == (40, 1)


def test_small_targets_are_parts_of_larger_ones():
    found = scenarios()
    for kind in ("target-size", "closed-target-size"):
        small, large = (dict(found[f"{kind}={size}"].draw.counts) for size in (50, 300))
        assert found[f"{kind}=50"].split == found[f"{kind}=300"].split
        assert all(count <= large[name] for name, count in small.items())


def test_what_there_are_too_few_samples_for_is_left_out():
    found = scenarios(dict.fromkeys("abcdefg", 30))
    assert "dominant-known=0.9" in found
    assert "dominant-known=0.98" not in found, "49 samples of one class are needed"
    assert "target-size=300" not in found
    assert "source-classes=10" not in found
    assert not make_scenarios("a", "b", {"cup"}, {"cup": 100, "pen": 100}, 300), "one shared class is no split"


def test_classes_of_one_domain_alone_are_in_no_split():
    sizes = dict.fromkeys("abcdefghij", 50)
    found = make_scenarios("amazon", "webcam", set("abcdefg") | {"z"}, sizes, 300)
    assert {name for one in found for name in (*one.split.source, *one.split.target)} == set("abcdefg")


def test_scenarios_are_drawn_anew_for_every_seed_and_pair_and_are_the_same_every_time():
    assert scenarios() == scenarios()
    assert scenarios()["open-partial"].split != scenarios(seed=301)["open-partial"].split
    assert scenarios()["open-partial"].split != scenarios(source="dslr")["open-partial"].split
    assert scenarios() == scenarios(dict(reversed(OFFICE.items()))), "the order of the classes does not matter"


def test_choice_and_check_have_no_split_in_common():
    assert not set(PURPOSES["choice"]) & set(PURPOSES["check"])
    splits = {
        purpose: {one.split for seed in seeds for name, one in scenarios(seed=seed).items() if one.split.target_private}
        for purpose, seeds in PURPOSES.items()
    }
    assert not splits["choice"] & splits["check"]


@pytest.mark.parametrize(
    ("seed", "common", "digest"),
    [
        (300, "tape_dispenser mug laptop_computer projector speaker", "dfd3e0711cc8130d"),
        (900, "speaker scissors back_pack file_cabinet bottle", "219ee8c15a0e1f3d"),
    ],
)
def test_splits_are_those_that_results_were_reported_on(seed, common, digest):
    """Whoever changes how scenarios are drawn starts a new list of results."""
    found = scenarios(seed=seed)
    assert " ".join(found["open-partial"].split.common[:5]) == common
    text = "\n".join(f"{one.name} {one.split} {one.draw}" for one in found.values())
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == digest


def test_names_sort_by_kind_and_value():
    names = ["target-size=300", "private-prior=0.9", "target-size=50", "closed", "private-prior=0", "open-partial"]
    assert sorted(names, key=scenario_order) == [
        "open-partial",
        "closed",
        "private-prior=0",
        "private-prior=0.9",
        "target-size=50",
        "target-size=300",
    ]
    assert family_of("closed-target-size=50") == "target size"


@pytest.fixture
def data() -> TaskData:
    labels = np.array(["cup", "pen", "hat", "cup", "pen", "cup"] * 5)
    return TaskData(np.zeros((2, 1)), np.array(["cup", "pen"]), np.arange(30)[:, None], labels)


def test_a_target_has_as_many_samples_of_each_class_as_its_draw_says(data):
    drawn = draw_target(data, TargetDraw((("cup", 4), ("hat", 5)), 3))
    names, counts = np.unique(drawn.oracle_target_labels, return_counts=True)
    assert dict(zip(names.tolist(), counts.tolist(), strict=True)) == {"cup": 4, "hat": 5}
    rows = drawn.target[:, 0]
    assert (np.diff(rows) > 0).all(), "in the order of the domain, each once"
    np.testing.assert_array_equal(data.oracle_target_labels[rows], drawn.oracle_target_labels)
    assert (drawn.source is data.source, drawn.source_labels is data.source_labels) == (True, True)


def test_draws_of_one_seed_are_nested_and_of_two_seeds_differ(data):
    small, large, other = (
        set(draw_target(data, TargetDraw((("cup", count),), seed)).target[:, 0].tolist())
        for count, seed in ((4, 3), (9, 3), (4, 5))
    )
    assert small < large
    assert small != other


def test_a_draw_of_more_samples_than_there_are_is_refused(data):
    with pytest.raises(DataError, match="the target has 5 samples of class 'hat', and 6 are to be drawn"):
        draw_target(data, TargetDraw((("hat", 6),), 0))
