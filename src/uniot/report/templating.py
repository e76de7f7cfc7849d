"""Load the templates of the pages: all text is escaped, and a value that is missing is an error."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from uniot.errors import import_optional


def template_environment(doing: str) -> Any:
    """Return the environment of Jinja that has the templates; `doing` says what needs the package."""
    jinja = import_optional("jinja2", "report", doing)
    return jinja.Environment(
        loader=jinja.PackageLoader("uniot.report"),
        autoescape=True,
        undefined=jinja.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def template_text(name: str) -> str:
    """Return a file of the folder of templates, such as `report.css`."""
    return (files("uniot.report") / "templates" / name).read_text(encoding="utf-8")


def trusted(text: str, doing: str) -> Any:
    """Mark text as safe: it is from this package, or was escaped by it."""
    return import_optional("markupsafe", "report", doing).Markup(text)
