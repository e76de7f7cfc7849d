"""Every control of the report works, whatever the method and the run, and none is forgotten."""

from __future__ import annotations

import re

import pytest

from report.controls import CONTROLS
from report.looking import Looking
from report.real_runs import REPORTS

pytestmark = [pytest.mark.browser, pytest.mark.slow]

OPERABLE = (
    "button, select, input, textarea, summary, a[href], [tabindex], [role=button], [contenteditable], [onclick], "
    ".chart, .legendtoggle, #map .points path"
)
FORGOTTEN = """(selectors) => [...document.querySelectorAll(selectors[0])]
  .filter((one) => !one.matches(selectors[1])).map((one) => one.outerHTML.slice(0, 200))"""


@pytest.mark.parametrize("name", REPORTS)
def test_every_control_works_and_none_is_forgotten(real_reports, browsing, name):
    file = real_reports.page(name)
    look = Looking(browsing.page(viewport={"width": 1280, "height": 900}, accept_downloads=True), file)
    assert look.page.evaluate(FORGOTTEN, [OPERABLE, ", ".join(CONTROLS)]) == []
    for selector, drive in CONTROLS.items():
        if look.has(selector):
            drive(look)
    assert {url.partition("#")[0] for url in browsing.requests} == {file.as_uri()}


def test_every_control_is_in_some_report(real_reports, chromium_page):
    missing = set(CONTROLS)
    for name in ("images", "uniot"):
        look = Looking(chromium_page, real_reports.page(name))
        missing = {selector for selector in missing if not look.has(selector)}
    assert missing == set()


def test_a_control_that_is_not_listed_is_found(real_reports, chromium_page):
    look = Looking(chromium_page, real_reports.page("uniot"))
    chromium_page.evaluate("document.body.insertAdjacentHTML('beforeend', '<button id=\"new\">New</button>')")
    (found,) = chromium_page.evaluate(FORGOTTEN, [OPERABLE, ", ".join(CONTROLS)])
    assert look.has("#new")
    assert 'id="new"' in found


# The sentence that the script of each part opens with.
PARTS = {
    "about": "// What is known of the sample under the pointer.",
    "filters": "// Filters act on the map",
    "map": "// The map: what is drawn",
    "selection": "// Samples picked out on the map",
    "theme": "// Light and dark",
}


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_fails_leaves_the_others_alone(real_reports, browsing, tmp_path, part):
    html = real_reports.page("images").read_text(encoding="utf-8")
    start = html.index(PARTS[part])
    broken = html[:start] + "throw new Error('this part fails');" + html[start:]
    broken = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", broken)
    (tmp_path / "broken.html").write_text(broken, encoding="utf-8")
    page = browsing.page()
    browsing.allow("page error: ")
    look = Looking(page, tmp_path / "broken.html")
    assert any("this part fails" in complaint for complaint in browsing.complaints)
    if part != "theme":
        page.locator("#theme").click()
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.locator("li .enlarge").first.click()
    assert page.locator("#large").is_visible()
    page.keyboard.press("Escape")
    if part != "filters":
        page.locator("#filter-category").select_option(index=1)
        assert len(look.in_galleries()) < 24
    if part != "map":
        page.locator("#map-in").click()
        assert look.map("layout.xaxis.range")[1] < 1
