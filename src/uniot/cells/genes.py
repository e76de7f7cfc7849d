"""Find the genes that two collections of cells have in common, whatever their names are kept in."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from uniot.cells.cells import INDEX
from uniot.errors import DataError
from uniot.io.text import counted, listed

# The number after the dot is the version of an Ensembl identifier, which differs between annotations.
_ENSEMBL = re.compile(r"(ENS[A-Z]*G\d{11})(\.\d+)?", re.ASCII)
# A share of the genes below which other names of the genes are tried.
_FEW = 0.5


@dataclass(frozen=True)
class CommonGenes:
    """Genes that two collections have in common.

    Attributes:
        names: sorted, (n_genes,).
        reference: their columns in the matrix of the reference, (n_genes,).
        query: their columns in the matrix of the query, (n_genes,).
        notes: sentences on how they were found.
    """

    names: list[str]
    reference: np.ndarray
    query: np.ndarray
    notes: tuple[str, ...] = ()


def common_genes(
    reference: Mapping[str, Sequence[str]], query: Mapping[str, Sequence[str]], where: tuple[str, str]
) -> CommonGenes:
    """Return the genes in common, by the names of both that agree most.

    Args:
        reference: names of the genes of the reference by the column of var that they are in; its index is first.
        query: those of the query.
        where: what the two are called in messages.

    Raises:
        DataError: no gene is in both; the message says if the one has identifiers and the other symbols, or the two
            are written as those of different species are.
    """
    of_reference = {column: _columns_of(names) for column, names in reference.items()}
    of_query = {column: _columns_of(names) for column, names in query.items()}
    first, second = of_reference[INDEX], of_query[INDEX]
    smaller = min(len(first), len(second))
    chosen, best = (INDEX, INDEX), len(first.keys() & second.keys())
    if best < _FEW * smaller:
        pairs = [(one, other) for one in of_reference for other in of_query]
        shared = {pair: len(of_reference[pair[0]].keys() & of_query[pair[1]].keys()) for pair in pairs}
        found = max(shared, key=lambda pair: shared[pair])
        if shared[found] > best:
            chosen, best = found, shared[found]
    if best == 0:
        raise DataError(_none_in_common(list(reference[INDEX]), list(query[INDEX]), where))
    one, other = of_reference[chosen[0]], of_query[chosen[1]]
    names = sorted(one.keys() & other.keys())
    notes = []
    if chosen != (INDEX, INDEX):
        notes.append(f"Genes are matched by {_column(chosen[0])} of {where[0]} and {_column(chosen[1])} of {where[1]}.")
    return CommonGenes(
        names, np.array([one[name] for name in names]), np.array([other[name] for name in names]), tuple(notes)
    )


def columns_of_genes(genes: Sequence[str], names: Mapping[str, Sequence[str]]) -> np.ndarray:
    """Return the column of each gene in a matrix, -1 if it has none, (n_genes,).

    Args:
        genes: the genes that are sought.
        names: names of the genes of the matrix by the column of var that they are in; the best one is used.
    """
    found = [_columns_of(of_matrix) for of_matrix in names.values()]
    places = max(found, key=lambda of_matrix: sum(gene in of_matrix for gene in genes))
    return np.array([places.get(gene, -1) for gene in genes], dtype=np.int64)


def symbols(names: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names of the genes as people know them: symbols if there are any, (n_genes,)."""
    index = list(names[INDEX])
    if sum(_is_ensembl(name) for name in index) < _FEW * len(index):
        return index
    for column, others in names.items():
        if column != INDEX and sum(_is_ensembl(name) for name in others) < _FEW * len(index):
            return [other or name for other, name in zip(others, index, strict=True)]
    return index


def _columns_of(names: Sequence[str]) -> dict[str, int]:
    """Return the column of each gene; a name that several have says nothing about which one is meant."""
    plain = [_without_version(name) for name in names]
    count = Counter(plain)
    return {name: column for column, name in enumerate(plain) if name and count[name] == 1}


def _without_version(name: str) -> str:
    found = _ENSEMBL.fullmatch(name)
    return found.group(1) if found else name


def _is_ensembl(name: str) -> bool:
    return _ENSEMBL.fullmatch(name) is not None


def _column(name: str) -> str:
    return "the index of var" if name == INDEX else f"var[{name!r}]"


def _none_in_common(reference: list[str], query: list[str], where: tuple[str, str]) -> str:
    examples = [f"{where[0]} has {listed(reference, 3)}", f"{where[1]} has {listed(query, 3)}"]
    begin = f"the two files have no gene in common: {', '.join(examples)}."
    are_ids = [sum(map(_is_ensembl, names)) > _FEW * len(names) for names in (reference, query)]
    if are_ids[0] != are_ids[1]:
        with_ids, other = where if are_ids[0] else where[::-1]
        return (
            f"{begin} {with_ids} has Ensembl identifiers and {other} has symbols. Add the symbols to the first as "
            'var["gene_symbols"].'
        )
    alike = len({name.upper() for name in reference} & {name.upper() for name in query})
    if alike:
        return (
            f"{begin} {counted(alike, 'name')} would agree without regard to capitals, as MS4A1 of humans and Ms4a1 of "
            "mice do. Map the genes of the one species to those of the other first."
        )
    return f'{begin} Give both the same kind of gene names, in var_names or as var["gene_symbols"].'
