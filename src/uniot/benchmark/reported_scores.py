"""The numbers that the paper reports, which tables show beside measured ones."""

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
"""Name of the column with the mean over all tasks."""


@dataclass(frozen=True)
class PaperPart:
    """One score on one data set, from a table of the paper.

    Attributes:
        table: number of the table, such as "1" or "S2".
        dataset: name as in `uniot.datasets.catalogue`.
        score: "h" or "h3_oracle".
        columns: tasks, and `AVERAGE` if the table has it.
        rows: numbers per column by method, in per cent.
        deviations: standard deviations per column by method; empty if the table has none.
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
        setting: setting of all numbers, as in `uniot.datasets.catalogue`.
        backbone: backbone of all numbers.
        steps: training steps of the paper's method.
        labels: titles of the methods in the tables.
        parts: parts in the order of the paper; if two report the same number, the first one counts.
    """

    setting: str
    backbone: str
    steps: int
    labels: Mapping[str, str]
    parts: tuple[PaperPart, ...]

    def reported(self, dataset: str, method: str, task: str, score: str) -> float | None:
        """Return a number of the tables in per cent, or None if they do not have it.

        Args:
            dataset: such as "office31".
            method: such as "uniot"; "source-only" is the row that the tables call ResNet.
            task: such as "A2W", or `AVERAGE`.
            score: "h", or "h3_oracle", which the paper calls H³; it reports no other.
        """
        return self._find("rows", dataset, method, task, score)

    def reported_deviation(self, dataset: str, method: str, task: str, score: str) -> float | None:
        """Return the standard deviation over three runs of a reported number, or None if the tables do not have it."""
        return self._find("deviations", dataset, method, task, score)

    def _find(self, kind: str, dataset: str, method: str, task: str, score: str) -> float | None:
        for part in self.parts:
            numbers: Mapping[str, tuple[float, ...]] = getattr(part, kind)
            if (part.dataset, part.score) == (dataset, score) and method in numbers and task in part.columns:
                return numbers[method][part.columns.index(task)]
        return None


@cache
def paper_tables() -> PaperTables:
    """Return the tables of the paper, which come with the install."""
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
