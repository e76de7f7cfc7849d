"""Every public loss has an example in its docstring that runs."""

from __future__ import annotations

import doctest
from importlib import import_module
from pkgutil import iter_modules

import pytest
import torch

import uniot.losses

MODULES = [f"uniot.losses.{module.name}" for module in iter_modules(uniot.losses.__path__)]
# Values without a computation of their own.
WITHOUT_EXAMPLE = {"IndexedFeatures", "UniOTLosses"}


@pytest.mark.parametrize("name", MODULES)
def test_examples_print_what_the_docstrings_say(name):
    result = doctest.testmod(import_module(name), extraglobs={"torch": torch})
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("name", sorted(set(uniot.losses.__all__) - WITHOUT_EXAMPLE))
def test_every_public_name_has_an_example_and_shapes(name):
    documentation = getattr(uniot.losses, name).__doc__
    assert ">>> " in documentation
    assert "Example:" in documentation


def test_a_search_for_the_papers_names_finds_the_losses():
    assert "L_CCD" in uniot.losses.CommonClassDetectionLoss.__doc__
    assert "L_CCD" in uniot.losses.common_class_detection_loss.__doc__
    assert "L_PCD" in uniot.losses.PrivateClassDiscoveryLoss.__doc__
    assert "L_PCD" in uniot.losses.private_class_discovery_loss.__doc__
