"""Class names that were probably not meant are named before the fit."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest

from uniot import UniNCM
from uniot.data_quality.class_names import class_name_warnings
from uniot.datasets import make_toy_domains
from uniot.errors import UniotWarning

NFC, NFD = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))


@pytest.mark.parametrize(
    ("classes", "shown"),
    [
        (["cat", "cat "], "'cat' and 'cat '"),
        (["cat", "\tcat"], "'cat' and '\\tcat'"),
        (["black cat", "black  cat"], "'black cat' and 'black  cat'"),
        (["black cat", "black\u00a0cat"], "'black cat' and 'black\\xa0cat'"),
        (["cat", "c\u200bat"], "'cat' and 'c\\u200bat'"),
        ([NFC, NFD], "'caf\\xe9' and 'cafe\\u0301'"),
        (["cat", "unknown "], "'unknown ' and 'unknown'"),
        (["a", "a ", " a"], "'a' and 'a ' and ' a'"),
    ],
)
def test_names_that_look_the_same_are_told_apart(classes, shown):
    (words,) = class_name_warnings(classes, "unknown")
    assert words.startswith(f"class names that look the same are treated as different classes: {shown}. They differ")


@pytest.mark.parametrize("name", ["None", "none", "NULL", "N/A", "NA", "nan", "  "])
def test_name_of_a_missing_label_is_named(name):
    (words,) = class_name_warnings(["cat", name], "unknown")
    assert words == f"{name!r} is a class. If that marks samples without a label, leave these samples out."


@pytest.mark.parametrize(
    ("classes", "unknown"),
    [(["cat", "Cat", "a", "A"], "unknown"), ([" cat", "dog "], "unknown"), ([1, 2, 3], -1), ([NFC, "cafe"], "unknown")],
)
def test_names_that_can_be_told_apart_give_no_warning(classes, unknown):
    assert class_name_warnings(classes, unknown) == ()


def test_fit_warns_before_it_fits():
    toy = make_toy_domains()
    labels = np.where(np.arange(len(toy.y_source)) % 2, toy.y_source, np.char.add(toy.y_source, " "))
    with pytest.warns(UniotWarning, match="look the same are treated as different classes: 'common-0' and 'common-0 '"):
        model = UniNCM(random_state=0).fit(toy.x_source, labels, toy.x_target)
    assert model.reliability_.warnings[0].startswith("class names that look the same")
