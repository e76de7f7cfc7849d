"""Write the generated parts of the method pages from the registry, so that they are never stale.

    python docs/make_method_tables.py            # write them
    python docs/make_method_tables.py --check    # fail if a page is not up to date

Two parts are generated: the table of hyper-parameters of each docs/methods/<name>.md (names, defaults and meanings come
from the method's options; the last column, where a value comes from, is written by hand and kept), and the table of all
methods in docs/methods.md.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from uniot.config import Settings
from uniot.methods import METHODS, MethodInfo

DOCS = Path(__file__).parent
INDEX = DOCS / "methods.md"
# Shared settings that the UniOT paper gives a value for.
SHARED_BY_UNIOT = ("queue_size", "feature_size")
_OPTIONS = re.compile(r"(<!-- options ([a-z-]+) -->\n\n).*?(\n\n<!-- end of options -->)", re.S)
_ALL = re.compile(r"(<!-- all methods -->\n\n).*?(\n\n<!-- end of all methods -->)", re.S)


def main() -> None:
    """Write every page, or report those that are not up to date."""
    stale = []
    for page, text in pages().items():
        if text != page.read_text(encoding="utf-8"):
            stale.append(page.name)
            if "--check" not in sys.argv[1:]:
                page.write_text(text, encoding="utf-8")
    if stale and "--check" in sys.argv[1:]:
        sys.exit(f"{', '.join(stale)}: not up to date. Run python docs/make_method_tables.py.")


def pages() -> dict[Path, str]:
    """Return each page with its generated parts as they should be."""
    filled = {INDEX: _ALL.sub(lambda found: found[1] + index_table() + found[2], INDEX.read_text(encoding="utf-8"))}
    for info in listed():
        page = DOCS / "methods" / f"{info.name}.md"
        text = page.read_text(encoding="utf-8")
        origins = dict(re.findall(r"^\| `(\w+)` \|.*\| ([^|]*) \|$", text, re.M))
        filled[page] = _OPTIONS.sub(
            lambda found, origins=origins: found[1] + options_table(METHODS[found[2]], origins) + found[3], text
        )
    return filled


def listed() -> list[MethodInfo]:
    """Return the methods that have a page: all but variants and methods of other installed packages."""
    return [info for info in METHODS.values() if info.variant_of is None and METHODS.package_of(info.name) is None]


def index_table() -> str:
    """Return the table of all methods, in Markdown."""
    lines = ["| method | from | a sample is unknown if |", "|---|---|---|"]
    for info in listed():
        rule = info.rule.removeprefix("unknown where ").removeprefix("unknown if ").removeprefix("unknown when ")
        source = info.source.replace("this project", "this project: [beyond the paper](beyond-the-paper.md)")
        lines.append(f"| [{info.title}](methods/{info.name}.md) `{info.name}` | {source} | {rule} |")
    return "\n".join(lines)


def options_table(info: MethodInfo, origins: dict[str, str]) -> str:
    """Return the table of a method's hyper-parameters, in Markdown; an origin that is not known is left empty."""
    uniot = METHODS["uniot"].options
    # A method that lets UniOT train a network has UniOT's hyper-parameters as well; its page links to them.
    inherited = uniot.model_fields if info.name != "uniot" and issubclass(info.options, uniot) else {}
    own = {name: field for name, field in info.options.model_fields.items() if name not in inherited}
    rows = {name: (_shown(field.default), field.description) for name, field in own.items()}
    if info.name == "uniot":
        shared = {name: Settings.model_fields[name] for name in SHARED_BY_UNIOT}
        rows |= {name: (_shown(field.default), field.description) for name, field in shared.items()}
    rows["learning_rate"] = (_shown(info.learning_rate), "Initial learning rate of all layers but the backbone.")
    lines = ["| parameter | default | meaning | value from |", "|---|---|---|---|"]
    lines += [f"| `{name}` | {shown} | {text} | {origins.get(name, '')} |" for name, (shown, text) in rows.items()]
    return "\n".join(lines)


def _shown(value: object) -> str:
    if value is None:
        return "from the target's size"
    return f"{value:g}" if isinstance(value, float) else f"{value}"


if __name__ == "__main__":
    main()
