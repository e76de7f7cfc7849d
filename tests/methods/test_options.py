"""The hyper-parameters that each method has of its own: published values are the defaults, wrong ones are named."""

from __future__ import annotations

import pytest

from uniot.errors import SettingsError
from uniot.methods.registry import METHODS

# Shared by the source-free methods; the learning rates of their two stages are 0.01 and 0.001.
SOURCE_FREE = {
    "source_share": 0.5,
    "label_smoothing": 0.1,
    "target_rate": 0.1,
    "pseudo_weight": 0.3,
    "n_neighbours": 4,
    "entropy_threshold": 0.55,
}
# Learning rate of new layers, and options.
PUBLISHED = {
    "uniot": (
        0.01,
        {
            "n_clusters": None,
            "hidden_size": 2048,
            "temperature": 0.1,
            "adaptation_weight": 0.1,
            "similarity_threshold": 0.7,
            "class_mass_momentum": 0.7,
            "epsilon": 0.01,
            "marginal_penalty": 0.5,
            "balanced_epsilon": 0.05,
            "balanced_iterations": 3,
            "detection_start": 100,
        },
    ),
    "source-only": (0.01, {"says_unknown": True}),
    "calibrated": (0.01, {"n_halves": 16, "follows_target": True}),
    "clip-distill": (
        0.01,
        {
            "n_halves": 16,
            "follows_target": False,
            "calibrates": True,
            "temperature": 0.05,
            "distillation_steps": 1000,
        },
    ),
    "unijdot": (
        0.01,
        {
            "feature_weight": 2.8,
            "label_weight": 1.35,
            "source_weight": 0.1,
            "n_clusters": 15,
            "memory_size": 10,
            "marginal_penalty": 0.5,
            "temperature": 0.05,
            "pretraining": 0.5,
            "joint_score": True,
        },
    ),
    "color": (
        0.01,
        {
            "least_rate": 0.02,
            "largest_rate": 0.45,
            "n_heads": 10,
            "most_false": 0.005,
            "sharpness": 2.0,
            "multiplier_rate": 0.02,
            "penalty": 0.01,
            "dropout": 0.2,
        },
    ),
    "tasc": (
        0.01,
        {
            "n_candidates": 100,
            "search_temperature": 0.01,
            "diversity_weight": 0.6,
            "certain": 0.3,
            "match_temperature": 0.02,
            "rounds": 20,
        },
    ),
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
    "deepjdot": (0.01, {"feature_weight": 0.01, "label_weight": 0.5, "n_batches": 4}),
    "jumbot": (0.01, {"feature_weight": 0.01, "label_weight": 0.5, "epsilon": 0.01, "marginal_penalty": 0.5}),
    "ts-pot": (0.01, {"feature_weight": 0.01, "label_weight": 0.5, "mass": 0.5, "n_batches": 2}),
    "mlnet": (
        0.01,
        {
            "one_vs_all_weight": 0.5,
            "entropy_weight": 0.1,
            "mixup_weight": 0.1,
            "consistency_weight": 0.16,
            "neighbour_weight": 0.5,
            "mixup_shape": 2,
            "neighbour_ratio": 0.875,
            "scale": 10.0,
            "warmup": 0.02,
        },
    ),
    "ppot": (
        0.001,
        {
            "threshold": 0.75,
            "transport_weight": 5.0,
            "known_weight": 0.01,
            "unknown_weight": 2.0,
            "farthest": 0.25,
            "epsilon": 0.01,
            "confidence": 0.9,
            "alpha_rate": 0.001,
            "beta_rate": 0.01,
            "rate": 0.1,
            "pretraining": 1 / 6,
            "rounds": 5,
        },
    ),
    "glc": (0.01, SOURCE_FREE | {"prior": 0.75}),
    "glc-plus": (0.01, SOURCE_FREE | {"prior": 0.75, "contrast_weight": 1.0}),
    "lead": (0.01, SOURCE_FREE),
}


def test_no_published_method_is_left_out():
    published = {
        name
        for name, info in METHODS.items()
        if not info.is_reconstruction and info.variant_of is None and name != "unincm"
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
        ("maths", {"significance": 0}),
        ("jumbot", {"marginal_penalty": 0.01}),
        ("ts-pot", {"mass": 0}),
    ],
)
def test_wrong_option_is_named(method, wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(SettingsError, match=f"setting {name} is {value}"):
        METHODS[method].options.checked(**wrong)
