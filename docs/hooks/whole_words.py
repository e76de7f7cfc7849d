"""Marks what a browser should keep on one line while the site is built: names, options, and ± with its number."""

from __future__ import annotations

import re
from typing import Any

WORD = re.compile(r"<code>(?=[^\s<]+</code>)")
# An option, also with its value. A browser would break the line after its first hyphens.
OPTION = re.compile(r'<code(?: class="word")?>(?=--[\w-]{1,20}(?: [\w.-]{1,12})?</code>)')
DEVIATION = re.compile(r"± (?=\d)")


def on_page_content(page_html: str, **_: Any) -> str:
    """Called by mkdocs with the HTML of each page."""
    marked = OPTION.sub('<code class="word option">', WORD.sub('<code class="word">', page_html))
    return DEVIATION.sub("±\N{NO-BREAK SPACE}", marked)
