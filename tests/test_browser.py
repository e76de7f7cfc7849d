"""The browser fixtures notice what goes wrong on a page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.browser


@pytest.fixture
def page_of(tmp_path, browsing):
    def load(body: str) -> None:
        file: Path = tmp_path / "page.html"
        file.write_text(f"<!doctype html><link rel='icon' href='data:,'>{body}", encoding="utf-8")
        page = browsing.page()
        page.goto(file.as_uri())
        page.wait_for_load_state("networkidle")

    return load


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("<script>null.on('click')</script>", r"page error: .*Cannot read properties of null"),
        ("<script>Promise.reject(new Error('late'))</script>", "page error: .*late"),
        ("<script>console.error('oh')</script>", "console error: oh"),
        ("<img src='gone.png'>", r"request failed: GET file://.*/gone\.png net::ERR_FILE_NOT_FOUND"),
    ],
)
def test_what_goes_wrong_on_a_page_is_a_complaint(page_of, browsing, body, complaint):
    page_of(body)
    (found,) = browsing.unexpected()
    assert re.search(complaint, found)
    browsing.allow(complaint)
    assert browsing.unexpected() == []


def test_a_page_without_faults_has_no_complaint(page_of, browsing):
    page_of("<p>fine</p><script>console.log('fine')</script>")
    assert browsing.complaints == []
    assert [url.rsplit("/", 1)[-1] for url in browsing.requests] == ["page.html"]


@pytest.mark.slow
def test_a_complaint_fails_its_test(pytester):
    pytester.makeini("[pytest]\npythonpath = " + str(Path(__file__).parent))
    pytester.makeconftest("from browser import browsing, chromium, chromium_page")
    pytester.makepyfile("def test_page(chromium_page):\n    chromium_page.evaluate('() => console.error(\"oh\")')\n")
    pytester.runpytest_subprocess().assert_outcomes(passed=1, errors=1)
