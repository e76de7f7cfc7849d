"""Each method has a page with the hyper-parameters that the code has, and an example that runs."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from uniot.methods import METHODS

from tiers import FAMILIES, slow_unless  # isort: skip

DOCS = Path(__file__).parents[2] / "docs"
LISTED = [info for info in METHODS.values() if info.variant_of is None]
PAGES = {info.name: (DOCS / "methods" / f"{info.name}.md").read_text(encoding="utf-8") for info in LISTED}
SECTIONS = [
    "Idea",
    "When a sample is unknown",
    "Hyper-parameters",
    "Departures from the paper and its code",
    "Example",
]


def test_generated_tables_are_up_to_date():
    script = runpy.run_path(str(DOCS / "make_method_tables.py"))
    for page, text in script["pages"]().items():
        assert page.read_text(encoding="utf-8") == text, f"{page.name}: run python docs/make_method_tables.py"


def test_table_follows_the_options_and_keeps_where_a_value_comes_from():
    script = runpy.run_path(str(DOCS / "make_method_tables.py"))
    table = script["options_table"](METHODS["dance"], {"margin": "by hand"})
    assert re.search(r"^\| `margin` \| 0\.5 \| .* \| by hand \|$", table, re.M)
    assert re.search(r"^\| `learning_rate` \| 0\.01 \| .* \|  \|$", table, re.M)
    assert table.count("\n| `") == len(METHODS["dance"].options.model_fields) + 1


@pytest.mark.parametrize("name", PAGES)
def test_page_has_its_sections_and_no_value_without_an_origin(name):
    headings = re.findall(r"^## (.*)$", PAGES[name], re.M)
    assert [heading for heading in headings if heading in SECTIONS] == SECTIONS
    assert PAGES[name].startswith(f"# {METHODS[name].title}\n")
    assert "|  |" not in PAGES[name]


def test_every_variant_is_on_the_page_of_its_method():
    for info in METHODS.values():
        if info.variant_of is not None:
            assert f"`{info.name}`" in PAGES[info.variant_of]


def test_only_methods_without_public_code_are_called_reconstructions():
    assert [info.name for info in LISTED if info.is_reconstruction] == ["tnt", "maths"]
    assert all("This is a reconstruction" in PAGES[name] for name in ("tnt", "maths"))
    index = (DOCS / "methods.md").read_text(encoding="utf-8")
    assert "| [TNT (reconstruction)](methods/tnt.md) `tnt` |" in index


@pytest.mark.parametrize("name", slow_unless(PAGES, set(FAMILIES) - {"uniot"}))
@pytest.mark.medium
def test_example_runs(name, capsys):
    (example,) = re.findall(r"## Example\n\n```python\n(.*?)```", PAGES[name], re.S)
    exec(example, {})
    assert re.fullmatch(r"\d+ of 150 samples are unknown\n", capsys.readouterr().out)
