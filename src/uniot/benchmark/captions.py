"""Captions that say how the numbers of a table came about."""

from __future__ import annotations

from collections.abc import Sequence

from uniot.benchmark.reported import paper_tables
from uniot.benchmark.results import Result
from uniot.benchmark.score_grid import Cell


def table_caption(
    what: str, results: Sequence[Result], cells: Sequence[Cell], *, best: str | None, n_pairs: Sequence[int]
) -> str:
    """What a reader of a table must know, in sentences.

    Args:
        what: score and data set.
        results: behind the table, of one setting and one backbone.
        cells: of the table.
        best: title of the method that the others were compared with.
        n_pairs: of each comparison that has a p-value.
    """
    setting, backbone = results[0].setting, results[0].backbone
    ran = [result for result in results if not result.failure] or results
    sentences = [f"{what}, {setting}.", f"Backbone: {backbone}; {_span([result.steps for result in ran], 'step')}."]
    n_seeds = [cell.n_seeds for cell in cells if cell.mean is not None]
    if n_seeds:
        spread = "Mean ± standard deviation over" if max(n_seeds) > 1 else "From"
        sentences.append(f"{spread} {_span(n_seeds, 'seed')}.")
    if any(cell.is_best for cell in cells):
        sentences.append("Bold: best of its column.")
    if any(cell.n_failed for cell in cells):
        sentences.append("Where jobs failed, the mean is over the others and never bold.")
    if any(cell.reported is not None for cell in cells):
        paper = paper_tables()
        sentences.append(
            f"In brackets: as the paper reports ({paper.backbone}; {paper.labels['uniot']} with {paper.steps} steps)."
        )
    if best is not None and n_pairs:
        sentences.append(
            f"p: {best} against each other method, two-sided sign-flip test over {_span(n_pairs, 'pair')} of task and "
            "seed, corrected after Holm for the number of methods, not for the choice of the best."
        )
    return " ".join(sentences)


def _span(numbers: Sequence[int], unit: str) -> str:
    low, high = min(numbers), max(numbers)
    amount = f"{low}" if low == high else f"{low} to {high}"
    return f"{amount} {unit}" if high == 1 else f"{amount} {unit}s"
