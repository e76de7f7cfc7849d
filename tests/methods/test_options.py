"""The hyper-parameters that each method has of its own: published values are the defaults, wrong ones are named."""

from __future__ import annotations

import pytest

from uniot.errors import SettingsError
from uniot.methods import METHODS

# Learning rate of new layers, and options.
PUBLISHED = {
    "source-only": (0.01, {"says_unknown": True}),
    "dann": (0.01, {"adversarial_weight": 1.0, "discriminator_size": 1024}),
    "rtn": (
        0.01,
        {
            "discrepancy_weight": 1.0,
            "entropy_weight": 0.1,
            "entropy_ramp": 0.1,
            "n_kernels": 5,
            "kernel_factor": 2.0,
        },
    ),
    "iwan": (
        0.001,
        {"adversarial_weight": 3.0, "weigher_weight": 4.5, "entropy_weight": 0.1, "discriminator_size": 1024},
    ),
    "pada": (
        0.01,
        {"adversarial_weight": 1.0, "discriminator_size": 1024, "temperature": 1.0, "refreshes": 24},
    ),
    "ati": (0.01, {"outlier_share": 0.5, "rounds": 6, "tolerance": 0.001}),
    "osbp": (0.001, {"boundary": 0.5, "adversarial_weight": 1.0, "dropout": 0.5}),
    "uan": (
        0.001,
        {"threshold": -0.5, "source_temperature": 10.0, "discriminator_size": 1024, "faithful": False},
    ),
    "cmu": (0.01, {"threshold": 0.5, "perturbation": 0.1, "discriminator_size": 1024, "rounds": 20}),
    "dance": (0.01, {"temperature": 0.05, "target_weight": 0.05, "margin": 0.5}),
    "dcc": (
        0.001,
        {
            "rounds": 15,
            "interval": 2,
            "most_clusters": 3.0,
            "drops": 3,
            "alignment_weight": 0.1,
            "prototype_temperature": 0.1,
            "ramp": 3.0,
            "drawn_classes": 10,
            "drawn_samples": 3,
        },
    ),
    "ovanet": (0.01, {"one_vs_all_weight": 0.5, "entropy_weight": 0.1}),
}


def test_no_published_method_is_left_out():
    published = {
        name
        for name, info in METHODS.items()
        if info.options.model_fields and not info.is_reconstruction and not name.startswith("uniot-")
    }
    assert PUBLISHED.keys() == published


@pytest.mark.parametrize("method", PUBLISHED)
def test_published_values_are_the_defaults(method):
    info = METHODS[method]
    assert (info.learning_rate, info.options().model_dump()) == PUBLISHED[method]


@pytest.mark.parametrize(
    ("method", "wrong"),
    [
        ("dann", {"adversarial_weight": -1}),
        ("osbp", {"boundary": 1.0}),
        ("uan", {"threshold": -2}),
        ("cmu", {"rounds": 0}),
        ("dcc", {"interval": 0}),
        ("tnt", {"n_neighbours": 0}),
    ],
)
def test_wrong_option_is_named(method, wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(SettingsError, match=f"setting {name} is {value}"):
        METHODS[method].options.checked(**wrong)
