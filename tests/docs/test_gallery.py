"""The gallery: every script has a page that shows its code, and a quick subset of them runs."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "gallery"
MAKER = runpy.run_path(str(ROOT / "docs" / "make_gallery.py"))
SCRIPTS = MAKER["scripts"]()
# Those that take the least time; `make gallery` runs all.
QUICK = ["04", "06", "07", "09", "10", "12"]


def code_of(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)\n```$", page, re.M | re.S)


@pytest.fixture(params=SCRIPTS, ids=lambda script: script.stem)
def script(request):
    return request.param


def test_scripts_are_numbered_without_gaps():
    assert [int(path.name[:2]) for path in SCRIPTS] == list(range(1, len(SCRIPTS) + 1))


def test_cells_are_told_apart():
    cells = MAKER["cells"](
        '"""Doc."""\n\n# %% [markdown]\n# # Title\n#\n# Text.\n\n# %%\nx = 1\n\n\n# %% [markdown]\n# End\n'
    )
    assert [(cell.text, cell.content) for cell in cells] == [
        (True, "# Title\n\nText."),
        (False, "x = 1"),
        (True, "End"),
    ]


def test_page_shows_the_text_and_the_code_of_its_script(script):
    source = script.read_text(encoding="utf-8")
    page = (PAGES / f"{script.stem}.md").read_text(encoding="utf-8")
    cells = MAKER["cells"](source)
    assert code_of(page) == [cell.content for cell in cells if not cell.text], "run make gallery"
    for cell in cells[1:]:
        if cell.text:
            assert cell.content in page, "run make gallery"


def test_page_opens_with_a_picture_and_ends_with_what_can_go_wrong(script):
    page = (PAGES / f"{script.stem}.md").read_text(encoding="utf-8")
    title, lead, picture, *_ = page.split("\n\n")
    assert title.startswith("# ")
    assert len(lead) > 40
    assert picture == f"![{picture[2:].partition(']')[0]}]({script.stem}-1.png)"
    text = re.sub(r"^```.*?^```$", "", page, flags=re.M | re.S)
    assert re.findall(r"^## (.*)$", text, re.M)[-1] == "What can go wrong"


def test_pictures_are_there_and_small(script):
    named = re.findall(r"\]\(([\w-]+\.png)\)", (PAGES / f"{script.stem}.md").read_text(encoding="utf-8"))
    assert sorted(named) == sorted(path.name for path in PAGES.glob(f"{script.stem}-*.png"))
    assert all((PAGES / name).stat().st_size <= MAKER["PICTURE_BYTES"] for name in named)


def test_index_and_navigation_list_all_pages():
    assert (PAGES / "index.md").read_text(encoding="utf-8") == MAKER["index"](), "run make gallery"
    navigation = re.findall(r"^      - (?:.*: )?gallery/(\w+)\.md$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.M)
    assert navigation == ["index", *(script.stem for script in SCRIPTS)]


def test_pages_name_no_folder_of_the_machine_that_made_them(script):
    page = (PAGES / f"{script.stem}.md").read_text(encoding="utf-8")
    assert not re.search(r"/(tmp|root|home|work)/", page)


@pytest.mark.slow
@pytest.mark.parametrize("number", QUICK)
def test_script_keeps_its_promises(number):
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    command = [sys.executable, str(ROOT / "docs" / "make_gallery.py"), "--check", number]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(" s\n")
