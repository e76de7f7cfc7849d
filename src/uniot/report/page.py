"""The report as one HTML file, which needs nothing but itself."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from importlib.resources import files
from typing import Any

from uniot import __version__
from uniot.report.content import make_content
from uniot.report.finished_run import FinishedRun
from uniot.report.map import SampleMap
from uniot.report.packages import needed

# The page's own scripts in their order, each in an element of its own: what fails in one does not stop the others.
_SCRIPTS = (
    "page",
    "charts",
    "about",
    "filters",
    "map",
    "names",
    "selection",
    "matrices",
    "enlarge",
    "scrolling",
    "theme",
    "start",
)


def render(run: FinishedRun, drawn: SampleMap) -> str:
    """The whole page.

    Names come from anywhere and may hold anything: the template escapes all text, `_as_json` what scripts read, and
    the page's security policy lets a browser run the scripts below and nothing else.
    """
    jinja = needed("jinja2")
    environment = jinja.Environment(
        loader=jinja.PackageLoader("uniot.report"),
        autoescape=True,
        undefined=jinja.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"as_json": _as_json, "emphasise_numbers": _emphasise_numbers}
    # A browser turns line ends into line feeds before it looks at a script's digest.
    scripts = [needed("plotly.offline").get_plotlyjs(), *(_template_text(f"scripts/{name}.js") for name in _SCRIPTS)]
    scripts = [script.replace("\r\n", "\n").replace("\r", "\n") for script in scripts]
    return str(
        environment.get_template("report.html.j2").render(
            **make_content(run, drawn),
            version=__version__,
            style=_trusted(_template_text("report.css")),
            scripts=[_trusted(script) for script in scripts],
            script_digests=[_digest(script) for script in scripts],
        )
    )


def _as_json(value: Any) -> Any:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return _trusted(text)


def _emphasise_numbers(text: str) -> Any:
    escaped = str(needed("markupsafe").escape(text))
    return _trusted(re.sub(r"\d[\d,]*", r"<b>\g<0></b>", escaped))


def _trusted(text: str) -> Any:
    """Text that goes into the page as it is: this package's own, or made safe by it."""
    return needed("markupsafe").Markup(text)


def _digest(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def _template_text(name: str) -> str:
    return (files("uniot.report") / "templates" / name).read_text(encoding="utf-8")
