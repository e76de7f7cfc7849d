"""README, pictures, navigation and links of the documentation."""

from __future__ import annotations

import re
import runpy
from itertools import pairwise
from pathlib import Path

import pandas
import pytest

from uniot.io.csv_tables import write_table

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted(DOCS.rglob("*.md"))
LINK = re.compile(r"(?<!!)\[[^\]\[]*(?:\[[^\]]*\][^\]\[]*)*\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """Addresses of the headings of a page, as mkdocs makes them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    found = set()
    for heading in re.findall(r"^#+ (.*)$", text, re.M):
        plain = re.sub(r"[^\w\s-]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)).strip().lower()
        found.add(re.sub(r"[-\s]+", "-", plain.encode("ascii", "ignore").decode()))
    # mkdocstrings gives what a page names, and each of its members, an address of its own.
    return found | set(re.findall(r"^::: ([\w.]+)$", text, re.M))


def links(page: Path) -> list[str]:
    return LINK.findall(re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S))


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in links(page):
        if link.startswith("http"):
            assert re.fullmatch(r"https?://[\w.-]+\.[a-z]+(:\d+)?(/\S*)?", link), link
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor and target.suffix == ".md":
            known = anchors(target)
            assert anchor in known or anchor.rpartition(".")[0] in known, f"{page.name}: {link}"


def test_every_page_is_in_the_navigation():
    written = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in PAGES:
        assert re.search(rf"[ :]{re.escape(page.relative_to(DOCS).as_posix())}$", written, re.M), page.name


def test_newcomers_path_is_the_same_in_the_navigation_and_on_the_index():
    written = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    (path,) = re.findall(r"^  - Start here:\n((?:      - .*\n)+)", written, re.M)
    pages = re.findall(r": ([\w-]+\.md)$", path, re.M)
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    (steps,) = re.findall(r"^## Start here.*?\n(.*?)\n## ", index, re.M | re.S)
    assert len(pages) <= 6
    assert pages == ["index.md", *re.findall(r"^\d\. \*\*\[[^\]]*\]\(([\w-]+\.md)\)", steps, re.M)]
    # Each page ends its text with a link to the next one.
    for page, following in pairwise(pages[1:]):
        assert f"({following})" in (DOCS / page).read_text(encoding="utf-8").partition("\nNext: ")[2].splitlines()[0]


@pytest.mark.medium
def test_picture_of_the_architecture_is_up_to_date():
    script = runpy.run_path(str(DOCS / "make_architecture.py"))
    assert (DOCS / "figures" / "architecture.svg").read_text(encoding="utf-8") == script["drawing"](), (
        "run python docs/make_architecture.py"
    )


@pytest.mark.parametrize("part", ["places", "walk"])
def test_files_of_the_architecture_exist(part):
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    (named,) = re.findall(rf"<!-- {part}.*?-->(.*?)<!-- end of {part} -->", page, re.S)
    files = re.findall(r"`([\w/]+(?:\.py|/))`", named)
    assert len(files) > 10
    for file in files:
        assert (ROOT / "src" / "uniot" / file).exists(), file


def test_arrows_that_follow_from_others_are_left_out():
    direct = runpy.run_path(str(DOCS / "make_architecture.py"))["direct"]
    assert direct({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {"a": {"b"}, "b": {"c"}, "c": set()}


def test_picture_of_the_readme_loads_quickly():
    assert (DOCS / "figures" / "report.png").stat().st_size < 300_000


def test_python_of_the_readme_prints_what_it_shows(capsys):
    (code, shown) = re.search(r"```python\n(.*?)```\n+```text\n(.*?)```", README, re.S).groups()
    exec(code, {})
    assert capsys.readouterr().out == shown


def test_pandas_reads_a_table_with_the_code_of_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ["@a.jpg", "'=b.jpg", "it's"]
    write_table(tmp_path / "run" / "predictions.csv", ("path", "confidence"), [(name, 0.5) for name in names])
    page = (DOCS / "your-own-data.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(import pandas\n.*?)```", page, re.S)
    found: dict[str, pandas.DataFrame] = {}
    exec(code, found)
    assert found["table"]["path"].tolist() == names
    assert found["table"]["confidence"].tolist() == [0.5, 0.5, 0.5]
