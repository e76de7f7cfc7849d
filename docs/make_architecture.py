"""Draw docs/figures/architecture.svg: the parts of the package in their layers, and which part imports which.

    python docs/make_architecture.py            # write it
    python docs/make_architecture.py --check    # fail if it is not up to date

The arrows are read from the import statements of src/uniot; the layers are those that tests/test_layers.py checks. An
arrow that follows from others is left out. That no import points outwards is checked by that test.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "uniot"
PICTURE = Path(__file__).parent / "figures" / "architecture.svg"

# What a part is for, in a few words; every part of the package has an entry.
PURPOSES = {
    "errors": "errors and warnings",
    "config": "every setting once",
    "transport": "optimal transport",
    "losses": "for any training loop",
    "io": "arrays, files, tables",
    "linear_algebra": "principal directions",
    "neighbours": "exact and by index",
    "images": "decode and embed",
    "text": "embed, describe",
    "datasets": "toy, benchmark data",
    "annotations": "what people decided",
    "rejection": "known or unknown",
    "discovery": "groups and classes",
    "reliability": "estimated accuracy",
    "methods": "one file per method",
    "metrics": "scores",
    "data_quality": "labels and copies",
    "training": "fit and finalize",
    "runs": "the run folder",
    "estimators": "scikit-learn classes",
    "cells": "AnnData and .h5ad",
    "export": "ONNX and the hub",
    "report": "one HTML page",
    "labelling": "name the new groups",
    "adaptation": "two folders to a run",
    "benchmark": "methods side by side",
    "distributed": "shards with Ray Data",
    "cli": "the commands",
}
BOX, GAP, HEIGHT, ROW, MARGIN = 152, 16, 46, 112, 20
# Nearly every part imports these; arrows to them would hide the others.
EVERYWHERE = {"errors", "config"}


def layers() -> list[tuple[str, ...]]:
    """Return the layers, innermost first, as tests/test_layers.py has them."""
    tree = ast.parse((ROOT / "tests" / "test_layers.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "LAYERS":
            found: list[tuple[str, ...]] = ast.literal_eval(node.value)
            return found
    raise ValueError("tests/test_layers.py has no LAYERS. Write them as a list of tuples of names.")


def imports() -> dict[str, set[str]]:
    """Return the parts that each part imports, wherever in a file it does so."""
    found: dict[str, set[str]] = defaultdict(set)
    for file in sorted(PACKAGE.rglob("*.py")):
        part = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [f"uniot.{alias.name}" for alias in node.names] if node.module == "uniot" else [node.module]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            found[part] |= {name.split(".")[1] for name in names if name.startswith("uniot.")} - {part, "__version__"}
    return found


def direct(edges: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the imports that no chain of other imports implies (the transitive reduction)."""

    def reached(part: str) -> set[str]:
        found: set[str] = set()
        waiting = [part]
        while waiting:
            new = edges.get(waiting.pop(), set()) - found
            found |= new
            waiting += new
        return found

    return {
        part: {other for other in others if not any(other in reached(step) for step in others - {other})}
        for part, others in edges.items()
    }


def drawing() -> str:
    """Return the picture as SVG text."""
    rows = list(reversed(layers()))
    width = 2 * MARGIN + max(len(row) for row in rows) * (BOX + GAP) - GAP
    height = 2 * MARGIN + (len(rows) - 1) * ROW + HEIGHT + 26
    place: dict[str, tuple[float, float]] = {}
    for number, row in enumerate(rows):
        left = (width - len(row) * (BOX + GAP) + GAP) / 2
        for column, part in enumerate(row):
            place[part] = (left + column * (BOX + GAP), MARGIN + number * ROW)
    lines = []
    order = [part for row in layers() for part in row]
    edges = {
        part: {other for other in others - EVERYWHERE if order.index(other) < order.index(part)}
        for part, others in imports().items()
        if part in place
    }
    for part, others in sorted(direct(edges).items()):
        lines += [_arrow(place[part], place[other]) for other in sorted(others)]
    boxes = [_box(part, *place[part]) for row in rows for part in row]
    note = (
        f'<text class="note" x="{width / 2:g}" y="{height - 10}" text-anchor="middle">An arrow points to what is '
        "imported; those that follow from others, and those to errors and config, are left out.</text>"
    )
    return "\n".join([_head(width, height), *lines, *boxes, note, "</svg>", ""])


def _head(width: float, height: float) -> str:
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img"
  aria-label="The parts of uniot in six layers; imports point downwards" font-family="Helvetica, Arial, sans-serif">
<style>
  rect {{ fill: #e3f2ef; stroke: #0b766c; }} text {{ fill: #14332f; font-size: 13.5px; }} .name {{ font-weight: 600;
  font-size: 16px; }} .note {{ fill: #5c6b69; }} path {{ fill: none; stroke: #7d8f8c; stroke-opacity: 0.6; }}
  marker path {{ fill: #7d8f8c; stroke: none; }}
  @media (prefers-color-scheme: dark) {{
    rect {{ fill: #12332f; stroke: #4db6a8; }} text {{ fill: #e6f2f0; }} .note {{ fill: #9db3af; }}
    path {{ stroke: #8fa5a1; }}
    marker path {{ fill: #8fa5a1; }}
  }}
</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
  <path d="M0 0 L8 4 L0 8 z"/></marker></defs>"""


def _arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    (x0, y0), (x1, y1) = start, end
    if y0 == y1:
        # Within a layer: an arc below the boxes.
        x0, x1, y = x0 + BOX / 2, x1 + BOX / 2, y0 + HEIGHT
        bend = y + 14 + abs(x1 - x0) / 25
        return f'<path d="M{x0:g} {y:g} C{x0:g} {bend:g} {x1:g} {bend:g} {x1:g} {y:g}" marker-end="url(#tip)"/>'
    x0, y0, x1 = x0 + BOX / 2, y0 + HEIGHT, x1 + BOX / 2
    middle = (y0 + y1) / 2
    return f'<path d="M{x0:g} {y0:g} C{x0:g} {middle:g} {x1:g} {middle:g} {x1:g} {y1:g}" marker-end="url(#tip)"/>'


def _box(part: str, x: float, y: float) -> str:
    centre = x + BOX / 2
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{BOX}" height="{HEIGHT}" rx="6"/>'
        f'<text class="name" x="{centre:g}" y="{y + 19:g}" text-anchor="middle">{part}</text>'
        f'<text x="{centre:g}" y="{y + 36:g}" text-anchor="middle">{PURPOSES[part]}</text>'
    )


def main() -> None:
    """Write the picture, or report that it is not up to date."""
    made = drawing()
    if "--check" not in sys.argv[1:]:
        PICTURE.write_text(made, encoding="utf-8")
    elif PICTURE.read_text(encoding="utf-8") != made:
        sys.exit("docs/figures/architecture.svg is not up to date. Run python docs/make_architecture.py.")


if __name__ == "__main__":
    main()
