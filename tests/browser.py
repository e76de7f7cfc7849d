"""Fixtures for tests in a browser: a page error, a console error or a failed request fails the test that caused it.

`chromium_page` is a new page; `browsing.page(**options)` is one with other options, such as a viewport. A complaint
that a test provokes on purpose is announced by `browsing.allow(pattern)`. `browsing.requests` holds every address that
was asked for, so that a test can check that a page talks to nobody else.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, Response

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# No sandbox, because a container's root has none; the rest keeps the browser from calling home.
BROWSER_OPTIONS = (
    "--no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync"
)

# Every visible text of a page with the contrast between its colour and what is behind it.
CONTRASTS = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const channel = (byte) => (byte <= 10 ? byte / 255 / 12.92 : ((byte / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const colour = parse(getComputedStyle(node).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
  };
  return [...document.querySelectorAll("body *")]
    .filter((node) => [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim()))
    .filter((node) => node.checkVisibility() && !node.disabled && !node.closest("script"))
    .map((node) => {
      const [ink, paper] = [luminance(parse(getComputedStyle(node).color)), luminance(behind(node))];
      return [node.textContent.trim(), (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05)];
    });
}"""


class Browsing:
    """The pages of one test, and what their browser complains of.

    Attributes:
        complaints: page errors, console errors and warnings, failed requests and error responses.
        requests: addresses that were asked for, apart from data and blob addresses.
    """

    def __init__(self, browser: Browser) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._browser = browser
        self._allowed: list[str] = []
        self._contexts: list[BrowserContext] = []

    def page(self, **options: Any) -> Page:
        """Open a page that shares nothing with other pages; `options` are those of playwright's `new_context`."""
        context = self._browser.new_context(**options)
        self._contexts.append(context)
        context.on("weberror", lambda error: self.complaints.append(f"page error: {error.error}"))
        context.on("console", self._on_console)
        context.on("request", self._on_request)
        context.on("requestfailed", self._on_failure)
        context.on("response", self._on_response)
        return context.new_page()

    def allow(self, pattern: str) -> None:
        """Let complaints that match a regular expression pass."""
        self._allowed.append(pattern)

    def unexpected(self) -> list[str]:
        """Return the complaints that were not allowed."""
        return [text for text in self.complaints if not any(re.search(pattern, text) for pattern in self._allowed)]

    def close(self) -> None:
        """Close every page."""
        for context in self._contexts:
            context.close()

    def _on_console(self, message: ConsoleMessage) -> None:
        # The same failure arrives as a request or a response, with its address.
        if message.type in ("error", "warning") and not message.text.startswith("Failed to load resource"):
            self.complaints.append(f"console {message.type}: {message.text}")

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith(("data:", "blob:")):
            self.requests.append(request.url)

    def _on_failure(self, request: Request) -> None:
        # A request is aborted when its page is left; that is no failure.
        if request.failure != "net::ERR_ABORTED":
            self.complaints.append(f"request failed: {request.method} {request.url} {request.failure}")

    def _on_response(self, response: Response) -> None:
        if response.status >= 400:
            self.complaints.append(f"response {response.status}: {response.request.method} {response.url}")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One browser for all tests; without one they are skipped, unless UNIOT_REQUIRE_BROWSER is set."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        no_browser("the package playwright is not installed")
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
        found = next(filter(None, map(shutil.which, (*BROWSERS, own))), None)
        if found is None:
            no_browser(f"none of {', '.join(BROWSERS)} is on the path, and playwright has none of its own")
        browser = playwright.chromium.launch(executable_path=found, args=BROWSER_OPTIONS.split())
        yield browser
        browser.close()


@pytest.fixture
def browsing(chromium: Browser) -> Iterator[Browsing]:
    """The pages of this test; it fails if any of them complains."""
    pages = Browsing(chromium)
    yield pages
    pages.close()
    if complaints := pages.unexpected():
        pytest.fail("the browser complains of the page:\n" + "\n".join(complaints), pytrace=False)


@pytest.fixture
def chromium_page(browsing: Browsing) -> Page:
    """A new page that shares nothing with other tests."""
    return browsing.page()


def no_browser(why: str) -> None:
    """Skip the test, or fail it if a browser is required."""
    if os.environ.get("UNIOT_REQUIRE_BROWSER"):
        pytest.fail(f"UNIOT_REQUIRE_BROWSER is set, and {why}", pytrace=False)
    pytest.skip(f"no browser: {why}")
