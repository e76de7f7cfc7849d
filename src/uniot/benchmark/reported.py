"""What the paper reports: every number of its tables, to stand beside one's own."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

AVERAGE = "average"
"""Stands for a task where the mean of all tasks is meant."""


@dataclass(frozen=True)
class PaperPart:
    """One data set and one score of a table.

    Attributes:
        table: number of the table, such as "1" or "S2".
        dataset: name as in `uniot.data.benchmark_sets`.
        score: "h" or "h3_oracle".
        columns: tasks, and `AVERAGE` where there is one.
        rows: method to a number for each column, in per cent.
        deviations: method to a standard deviation for each column, where the table has them.
    """

    table: str
    dataset: str
    score: str
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[float, ...]]
    deviations: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True)
class PaperTables:
    """Tables 1 to 4 and S1 to S3 of the paper.

    Attributes:
        setting: of every number, as in `uniot.data.published_set`.
        backbone: of every number.
        steps: that the paper's own method was trained for.
        labels: method to what the tables call it.
        parts: in the order of the paper; where two give the same number, the first one counts.
    """

    setting: str
    backbone: str
    steps: int
    labels: Mapping[str, str]
    parts: tuple[PaperPart, ...]

    def reported(self, dataset: str, method: str, task: str, score: str) -> float | None:
        """A number of the tables in per cent, or None where they have none.

        Args:
            dataset: such as "office31".
            method: such as "uniot"; "source-only" is the row that the tables call ResNet.
            task: such as "A2W", or `AVERAGE`.
            score: "h", or "h3_oracle", which the paper calls H³; it reports no other.
        """
        return self._find("rows", dataset, method, task, score)

    def reported_deviation(self, dataset: str, method: str, task: str, score: str) -> float | None:
        """Standard deviation over three runs of a reported number, or None where the tables have none."""
        return self._find("deviations", dataset, method, task, score)

    def _find(self, kind: str, dataset: str, method: str, task: str, score: str) -> float | None:
        for part in self.parts:
            numbers: Mapping[str, tuple[float, ...]] = getattr(part, kind)
            if (part.dataset, part.score) == (dataset, score) and method in numbers and task in part.columns:
                return numbers[method][part.columns.index(task)]
        return None


@cache
def paper_tables() -> PaperTables:
    """The tables, which come with the install."""
    text = files("uniot.benchmark").joinpath("paper_tables.toml").read_text(encoding="utf-8")
    content = tomllib.loads(text)
    return PaperTables(labels=content["labels"], parts=tuple(map(_part, content["parts"])), **content["protocol"])


def _part(content: Mapping[str, Any]) -> PaperPart:
    return PaperPart(
        table=content["table"],
        dataset=content["dataset"],
        score=content["score"],
        columns=tuple(content["columns"]),
        rows=_rows(content["rows"]),
        deviations=_rows(content.get("deviations", {})),
    )


def _rows(content: Mapping[str, list[float]]) -> dict[str, tuple[float, ...]]:
    return {method: tuple(map(float, numbers)) for method, numbers in content.items()}
