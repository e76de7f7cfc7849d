"""Turns formulas into MathML while the site is built: the reader's browser needs no script, no download."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
LIMIT = re.compile(r"<msub><mo>max</mo>(<mi>[^<]*</mi>|<mrow>.*?</mrow>)</msub>")
FUNCTION = re.compile(r"<mi>(log|exp)</mi>(?!<mo stretchy)")
BOLD_ONE = '<mn mathvariant="bold">1</mn>'
TRANSPOSE = "<mo>&#x022A4;</mo>"


def on_page_content(page_html: str, **_: Any) -> str:
    """Called by mkdocs with the HTML of each page."""
    return FORMULA.sub(_mathml, page_html)


def _mathml(match: re.Match[str]) -> str:
    display = "block" if match[1] == "div" else "inline"
    formula: str = convert(html.unescape(match[2]).strip(), display=display)
    # Browsers put no space after the name of a function, do not know bold digits and space a ⊤ like an operator.
    formula = FUNCTION.sub(r'<mi>\1</mi><mspace width="0.167em" />', formula)
    formula = formula.replace(BOLD_ONE, "<mn>&#x1D7CF;</mn>").replace(
        TRANSPOSE, '<mi mathvariant="normal">&#x022A4;</mi>'
    )
    if display == "inline":
        return formula
    formula = LIMIT.sub(r"<munder><mo>max</mo>\1</munder>", formula)
    # A wide one scrolls by itself on a narrow screen.
    return f'<div class="formula">{formula}</div>'
