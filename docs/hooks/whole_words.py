"""Marks code of a single word while the site is built, so that the style can keep it on one line."""

from __future__ import annotations

import re
from typing import Any

WORD = re.compile(r"<code>(?=[^\s<]+</code>)")


def on_page_content(page_html: str, **_: Any) -> str:
    """Called by mkdocs with the HTML of each page."""
    return WORD.sub('<code class="word">', page_html)
