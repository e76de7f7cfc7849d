"""What a test asks of a report in a browser: its data, its map, and where a point is on the screen."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

# Where on the screen the loneliest point of a kind is, which one that is, and which ones it may be taken for.
POINT = """
(kind) => {
  const map = document.getElementById("map"), layout = map._fullLayout;
  map.scrollIntoView({ block: "center", behavior: "instant" });
  const box = map.getBoundingClientRect();
  const points = map.data.flatMap((trace) => trace.customdata.map((point, i) => ({
    kind: trace.meta,
    point,
    x: box.left + layout._size.l + layout.xaxis.d2p(trace.x[i]),
    y: box.top + layout._size.t + layout.yaxis.d2p(trace.y[i]),
  })));
  const apart = (one, other) => (one === other ? Infinity : Math.hypot(one.x - other.x, one.y - other.y));
  const room = (one) => Math.min(...points.map((other) => apart(one, other)));
  const found = points.filter((one) => one.kind === kind).reduce((best, one) => (room(one) > room(best) ? one : best));
  return { ...found, near: points.filter((one) => one === found || apart(one, found) < 12).map(({ point }) => point) };
}
"""
# Opacity of each sign that is drawn, by its number; what is less than DIM is dimmed.
OPACITY = """
() => Object.fromEntries([...document.querySelectorAll("#map .trace.scatter")].flatMap((group) => {
  const { customdata } = group.__data__[0].trace;
  const signs = [...group.querySelectorAll(".points path")];
  return signs.map((sign) => [customdata[sign.__data__.i], Number(getComputedStyle(sign).opacity)]);
}))
"""
DIM = 0.1
COUNTS = re.compile(r"Shown: ([\d,]+)(?: of [\d,]+)? on the map, ([\d,]+)(?: of [\d,]+)? in the galleries")
IN_VIEW = """(id) => {
  const box = document.getElementById(id).getBoundingClientRect();
  return box.height > 0 && box.top < window.innerHeight && box.bottom > 0;
}"""


@dataclass(frozen=True)
class Sample:
    """A sample of the target, as the page's data has it."""

    row: int
    name: str
    confidence: float
    nearest: int
    category: int


class Looking:
    """A report that is open in a browser."""

    def __init__(self, page: Any, file: Path) -> None:
        self.page = page
        page.goto(file.as_uri())
        page.locator("#similarity .main-svg").first.wait_for()
        # Links scroll at once, so that a test need not wait.
        page.add_style_tag(content="html { scroll-behavior: auto !important; }")

    def has(self, selector: str) -> bool:
        """Whether this run's report has such an element."""
        return self.page.locator(selector).count() > 0

    @cached_property
    def data(self) -> dict[str, Any]:
        """Return what the scripts read."""
        return json.loads(self.page.locator("#data").text_content())

    @cached_property
    def samples(self) -> dict[int, Sample]:
        """Return the samples of the target by row."""
        return {
            int(row): Sample(int(row), name, confidence, nearest, category)
            for row, (name, confidence, _, nearest, category, *_) in self.data["samples"].items()
        }

    @cached_property
    def target_points(self) -> dict[int, Sample]:
        """Return the samples of the target by their number on the map."""
        return {number: self.samples[point[0]] for number, point in enumerate(self.data["points"]) if point[1]}

    def name_of_point(self, point: int) -> str:
        """Return the class or group of a point, as the page calls it."""
        _, of_target, category, of_class, _ = self.data["points"][point]
        return self.data["categories"][category][0] if of_target else self.data["classes"][of_class]

    def map(self, path: str) -> Any:
        """Evaluate an attribute of the map, such as layout.xaxis.range."""
        return self.page.evaluate(f"document.getElementById('map').{path}")

    def lit(self) -> set[int]:
        """Return the points of the target that are drawn and not dimmed."""
        opacity = self.page.evaluate(OPACITY)
        return {point for point in self.target_points if opacity.get(str(point), 0) > DIM}

    def in_galleries(self) -> list[int]:
        """Return the rows that galleries show."""
        shown = self.page.locator(".card li[data-row]").filter(visible=True)
        return [int(row) for row in shown.evaluate_all("(items) => items.map((item) => item.dataset.row)")]

    def counts(self) -> tuple[int, int]:
        """Return how many samples the page says that it shows on the map and in the galleries."""
        text = self.page.locator("#filter-count").inner_text()
        on_map, in_galleries = COUNTS.fullmatch(text).groups()
        return int(on_map.replace(",", "")), int(in_galleries.replace(",", ""))

    def expect_count(self, count: int) -> None:
        """Wait until the page says how many samples of the map it shows."""
        self.page.wait_for_function(
            "(start) => document.getElementById('filter-count').value.startsWith(start)", arg=f"Shown: {count:,} o"
        )

    def follows(self, link: Any) -> None:
        """Click a link and check that what it leads to is in view."""
        target = link.get_attribute("href").removeprefix("#")
        link.click()
        assert self.page.evaluate("decodeURIComponent(location.hash)") == f"#{target}"
        assert self.page.evaluate(IN_VIEW, target), target
