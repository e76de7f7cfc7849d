from __future__ import annotations

import sys

import pytest

from uniot.errors import DataError
from uniot.images import weights as timm_import
from uniot.images.weights import import_timm


@pytest.fixture
def forgotten():
    """As in a process that has not imported timm yet; what it is put back to afterwards."""
    import_timm()
    import_timm.cache_clear()
    yield
    import_timm.cache_clear()


def test_timm_is_imported_whatever_torchvision_lacks():
    assert callable(import_timm().create_model)
    assert import_timm() is sys.modules["timm"]


def test_missing_package_names_the_extra(forgotten, monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(
        DataError, match=r"backbone needs timm, which cannot be imported .* `pip install 'uniot\[images\]'"
    ):
        import_timm()


def test_missing_operators_are_declared_once_and_the_import_is_tried_again(forgotten, monkeypatch):
    answers = iter([RuntimeError("operator torchvision::nms does not exist"), sys])
    declared = []
    monkeypatch.setattr(timm_import, "import_module", lambda name: _raised_or_returned(next(answers)))
    monkeypatch.setattr(timm_import, "_declare_operators", lambda: declared.append(True))
    assert import_timm() is sys
    assert declared == [True]


def test_other_trouble_of_an_import_is_told_and_not_tried_again(forgotten, monkeypatch):
    monkeypatch.setattr(timm_import, "import_module", lambda name: _raised_or_returned(RuntimeError("out of luck")))
    with pytest.raises(DataError, match="cannot be imported \\(out of luck\\)"):
        import_timm()


def _raised_or_returned(answer):
    if isinstance(answer, Exception):
        raise answer
    return answer
