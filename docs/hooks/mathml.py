"""Turns formulas into MathML while the site is built: the reader's browser needs no script, no download."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(page_html: str, **_: Any) -> str:
    """Called by mkdocs with the HTML of each page."""
    return FORMULA.sub(_mathml, page_html)


def _mathml(match: re.Match[str]) -> str:
    display = "block" if match[1] == "div" else "inline"
    formula: str = convert(html.unescape(match[2]).strip(), display=display)
    # A wide one scrolls by itself on a narrow screen.
    return f'<div class="formula">{formula}</div>' if display == "block" else formula
