"""`make new-method` writes a method that works."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from uniot.methods.registry import METHODS

DOCS = Path(__file__).parents[2] / "docs"
SCRIPT = runpy.run_path(str(DOCS / "new_method.py"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in ("src/uniot/methods", "tests/methods", "docs/methods"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


def test_written_method_passes_its_test_and_its_example_runs(root, monkeypatch, capsys):
    method, test, page = SCRIPT["write_method"]("two-words", root)
    assert [path.name for path in (method, test, page)] == ["two_words.py", "test_two_words.py", "two-words.md"]
    info = runpy.run_path(str(method))["INFO"]
    assert (info.name, info.title, info.build.__name__) == ("two-words", "Two words", "TwoWords")
    monkeypatch.setitem(METHODS, info.name, info)
    runpy.run_path(str(test))["test_loss_is_that_of_the_equation"]()
    text = page.read_text(encoding="utf-8")
    (example,) = re.findall(r"## Example\n\n```python\n(.*?)```", text, re.S)
    exec(example, {})
    assert re.fullmatch(r"\d+ of 150 samples are unknown\n", capsys.readouterr().out)
    tables = runpy.run_path(str(DOCS / "make_method_tables.py"))
    origins = dict.fromkeys(("entropy_weight", "learning_rate"), "where the value comes from")
    assert tables["options_table"](info, origins).strip() in text


def test_nothing_is_overwritten(root):
    SCRIPT["write_method"]("mine", root)
    with pytest.raises(SystemExit, match=r"src/uniot/methods/mine\.py, .* already exists\. Choose another NAME\."):
        SCRIPT["write_method"]("mine", root)


@pytest.mark.parametrize("name", ["", "Mine", "my_method", "-mine", "a/b", "1st"])
def test_name_that_is_no_option_value_is_refused(root, name):
    with pytest.raises(SystemExit, match="Use lower-case letters, digits and single hyphens"):
        SCRIPT["write_method"](name, root)
    assert not any(path.is_file() for path in root.rglob("*"))
