"""Warn of numbers that mislead: codes for missing values, outliers, features in another unit, one row many times.

Samples are compared by the directions of their rows, in which a few large numbers decide alone, and with their
neighbours, which copies are not. Some statistics of each collection show that before anything is fitted:

    code        a value other than 0 that is repeated, far outside of all other values of its features
    outlier     a value of many times the usual deviation of its feature, which outweighs the rest of its row; if most
                values of a row are that large, the row is merely long, and its direction does not depend on that
    scale       the part of the variance that a few features have
    units       how much the spread of a feature differs between the collections, relative to that of other features
    precision   the spread of the rows relative to their length, which float32 has to resolve
    copies      the part of the rows that are equal to one row, if the others are not repeated
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from uniot.io.text import listed, plural

# Enough to see what occurs in one row of a hundred.
_MOST_ROWS = 1000
_BLOCK_VALUES = 1 << 21
# A code is this many times as far from the other values of its feature as these are from each other, and occurs in at
# least this part of the rows. Counts, grey values and levels have neighbours that are nearer.
_CODE_DISTANCE, _CODE_ROWS, _FEWEST_CODES = 5, 0.01, 3
# Isolated values that are looked for at each end of a feature, such as a code and an outlier beyond it.
_MOST_ISOLATED = 3
# Median deviations of a feature that make an outlier; in a normal distribution these are 13 standard deviations.
_OUTLIER_DEVIATIONS = 20
# A row depends on outliers if these have nine tenths of its squared length and are a tenth of its values at most.
_DECISIVE_PART, _MOST_OUTLIERS = 0.9, 0.1
# Part of the rows that depend on outliers which is reported; labels of fewer matter less than the estimate's own error.
_OUTLIER_ROWS = 0.1
# A few features, a tenth of all at most, leave a hundredth of the variance to the others. In five dimensions hardly ten
# classes can be told apart; in a tenth of all words of a text they can.
_FEW_FEATURES, _LARGEST_PART, _SCALE_PART = 5, 0.1, 0.99
# Half of the features change by more than this factor against the others. A change of style is less: of 19 pairs of
# domains (photographs, sentences, cells) the largest change, from photographs to sketches, is a factor of 2.3.
_OTHER_UNITS, _FEWEST_COMPARED = 2.5, 10
# float32 has seven digits; with a smaller spread, less than one of them is left for differences between samples.
_LEAST_SPREAD = 1e-6
# Part of the rows that are copies of one, and how many times as often that occurs as the next row: all rows of counts,
# levels or one-hot codes may be repeated.
_COPIES, _TIMES_THE_NEXT = 0.05, 5
# Values beyond these quantiles are moved to them before the variance of a feature is computed.
_TAIL = 0.01
_MOST_NAMES = 5
# Squares of larger numbers would overflow.
_LARGEST = 1e150


def feature_warnings(
    collections: Mapping[str, np.ndarray], feature_names: Sequence[str] | np.ndarray | None = None
) -> tuple[str, ...]:
    """Return warnings about numbers that mislead, as sentences.

    Args:
        collections: finite numbers of each collection, (n_samples, n_features), by its name in the sentences.
        feature_names: names of the features, (n_features,); they are numbered if None.
    """
    n_features = next(iter(collections.values())).shape[1]
    if n_features == 1:
        return (
            "each sample has a single feature. Samples are compared by the direction of their rows, of which only the "
            "sign is left: labels are unreliable. Give more features.",
        )
    if n_features == 2:
        return (
            "each sample has only two features. Samples are compared by the direction of their rows, which is one "
            "angle: labels are unreliable. Give more features.",
        )
    seen = {name: _SeenValues.of(rows) for name, rows in collections.items()}
    names = [str(place) for place in range(n_features)] if feature_names is None else list(feature_names)
    return (
        *_codes(seen, names),
        *_outliers(seen),
        *_scale(seen, names),
        *_units(seen),
        *_precision(seen),
        *_copies(seen),
    )


@dataclass(frozen=True)
class _Code:
    """Part of the rows that have a code for missing values, and the features that it occurs in, (n,)."""

    part: float
    features: np.ndarray


@dataclass(frozen=True)
class _SeenValues:
    """What was looked at in a collection.

    Attributes:
        codes: probable codes for missing values, by value.
        outlier_part: part of the rows that depend on outliers.
        centre: median of each feature, (n_features,).
        variance: of each feature without its tails, (n_features,).
        copied_part: part of the rows that are equal to one row, if the others are not repeated as often; 0 otherwise.
        copies_are_zero: whether that row is zero.
    """

    codes: dict[float, _Code]
    outlier_part: float
    centre: np.ndarray
    variance: np.ndarray
    copied_part: float
    copies_are_zero: bool

    @classmethod
    def of(cls, rows: np.ndarray) -> _SeenValues:
        """Look at some rows of a collection, (n_samples, n_features)."""
        if len(rows) > _MOST_ROWS:
            rows = rows[np.sort(np.random.default_rng(0).choice(len(rows), _MOST_ROWS, replace=False))]
        features = [_Features.of(block) for block in _blocks(rows)]
        codes = _repeated(rows, np.concatenate([some.isolated for some in features]))
        of_outliers, of_all, n_outliers, n_all = np.zeros((4, len(rows)))
        for block, some in zip(_blocks(rows), features, strict=True):
            deviations = np.abs(block - some.centre[:, None])
            if codes:
                deviations[np.isin(block, list(codes))] = 0
            is_outlier = deviations > _OUTLIER_DEVIATIONS * some.usual[:, None]
            squares = deviations.clip(max=_LARGEST) ** 2
            of_outliers += squares.sum(axis=0, where=is_outlier)
            of_all += squares.sum(axis=0)
            n_outliers += is_outlier.sum(axis=0)
            n_all += (deviations > 0).sum(axis=0)
        decide = (of_outliers > _DECISIVE_PART * of_all) & (n_outliers <= np.maximum(_MOST_OUTLIERS * n_all, 1))
        return cls(
            codes,
            float(decide.mean()),
            np.concatenate([some.centre for some in features]),
            np.concatenate([some.variance for some in features]),
            *_copied_part(rows),
        )


@dataclass(frozen=True)
class _Features:
    """Statistics of some features.

    Attributes:
        isolated: values at an end of a feature that are far from all its others, one per feature and value, (n,).
        centre: median of the others, (n_features,).
        usual: median deviation of the values that differ from the centre, (n_features,).
        variance: without tails, (n_features,).
    """

    isolated: np.ndarray
    centre: np.ndarray
    usual: np.ndarray
    variance: np.ndarray

    @classmethod
    def of(cls, columns: np.ndarray) -> _Features:
        """Compute the statistics of columns, (n_features, n_samples)."""
        ordered = np.sort(columns, axis=1)
        isolated, first, last = _isolated(ordered)
        centre = _at(ordered, (first + last) // 2)
        n_below = (ordered < centre[:, None]).sum(axis=1) - first
        n_above = (ordered > centre[:, None]).sum(axis=1) - (ordered.shape[1] - 1 - last)
        below = centre - _at(ordered, first + n_below // 2)
        above = _at(ordered, last - n_above // 2) - centre
        usual = (n_below * below + n_above * above) / np.maximum(n_below + n_above, 1)
        tail = (_TAIL * (last - first)).astype(np.int64)
        bounds = (_at(ordered, first + tail)[:, None], _at(ordered, last - tail)[:, None])
        deviations = (np.clip(columns, *bounds) - centre[:, None]).clip(-_LARGEST, _LARGEST)
        return cls(isolated, centre, usual, deviations.var(axis=1))


def _blocks(rows: np.ndarray) -> Iterator[np.ndarray]:
    """Yield some columns of rows (n_samples, n_features) at a time, (n_columns, n_samples), which bounds the memory."""
    width = max(1, _BLOCK_VALUES // len(rows))
    for start in range(0, rows.shape[1], width):
        yield np.ascontiguousarray(rows[:, start : start + width].T, dtype=np.float64)


def _at(ordered: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return one value per row, (n_rows,), at these places, (n_rows,)."""
    return np.asarray(np.take_along_axis(ordered, places[:, None], axis=1)[:, 0])


def _isolated(ordered: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find values at an end of sorted rows that are far from all others of their row.

    Args:
        ordered: (n_rows, n_values), each row sorted.

    Returns:
        The isolated values of all rows, (n,); first and last place of the others in each row, (n_rows,).
    """
    n_rows, n_values = ordered.shape
    first, last = np.zeros(n_rows, dtype=np.int64), np.full(n_rows, n_values - 1)
    found = []
    for _ in range(_MOST_ISOLATED):
        low, high = _at(ordered, first), _at(ordered, last)
        next_low = (ordered <= low[:, None]).sum(axis=1).clip(max=n_values - 1)
        next_high = (n_values - 1 - (ordered >= high[:, None]).sum(axis=1)).clip(min=0)
        above_low, below_high = _at(ordered, next_low), _at(ordered, next_high)
        is_low = (low != 0) & _is_far(above_low - low, high - above_low)
        is_high = (high != 0) & ~is_low & _is_far(high - below_high, below_high - low)
        found += [low[is_low], high[is_high]]
        first, last = np.where(is_low, next_low, first), np.where(is_high, next_high, last)
        if not (is_low | is_high).any():
            break
    return np.concatenate(found), first, last


def _is_far(distance: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Whether a value is far from others, at this distance from the nearest of them and with this spread of theirs."""
    return (spread > 0) & (distance > _CODE_DISTANCE * spread)


def _repeated(rows: np.ndarray, isolated: np.ndarray) -> dict[float, _Code]:
    """Return the isolated values that are repeated, and isolated in most features that they occur in."""
    found = {}
    values, n_isolated = np.unique(isolated, return_counts=True)
    for value, n_features in sorted(zip(values.tolist(), n_isolated.tolist(), strict=True), key=lambda one: -one[1]):
        is_code = rows == value
        features = np.flatnonzero(is_code.any(axis=0))
        part = float(is_code.any(axis=1).mean())
        if is_code.sum() >= _FEWEST_CODES and part >= _CODE_ROWS and 2 * n_features > len(features):
            found[value] = _Code(part, features)
        if len(found) == _MOST_ISOLATED:
            break
    return found


def _copied_part(rows: np.ndarray) -> tuple[float, bool]:
    """Return the part of the rows that are equal to one row, 0 if others are repeated too; and whether it is zero."""
    values, counts = np.unique(rows, axis=0, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    if len(order) < 2 or counts[order[0]] < _TIMES_THE_NEXT * counts[order[1]]:
        return 0.0, False
    return float(counts[order[0]] / len(rows)), not values[order[0]].any()


def _codes(seen: Mapping[str, _SeenValues], names: Sequence[str]) -> Iterator[str]:
    places: dict[float, dict[str, _Code]] = defaultdict(dict)
    for collection, one in seen.items():
        for value, code in one.codes.items():
            places[value][collection] = code
    for value, codes in places.items():
        features = np.unique(np.concatenate([code.features for code in codes.values()])).tolist()
        occurs = _parts({collection: code.part for collection, code in codes.items()})
        yield (
            f"the value {value:g} occurs in {occurs}, far from all other values of {_called(features, names)}: it is "
            "probably a code for missing values, and outweighs all other values of a sample. Leave out these samples "
            "or features, or impute the values."
        )


def _outliers(seen: Mapping[str, _SeenValues]) -> tuple[str, ...]:
    parts = {name: one.outlier_part for name, one in seen.items() if one.outlier_part >= _OUTLIER_ROWS}
    if not parts:
        return ()
    return (
        f"{_parts(parts)} have outliers that outweigh all their other values, more than {_OUTLIER_DEVIATIONS} times "
        "the usual deviation of a feature: labels of these samples are unreliable. Clip outliers, or give logarithms.",
    )


def _scale(seen: Mapping[str, _SeenValues], names: Sequence[str]) -> Iterator[str]:
    for collection, one in seen.items():
        # Constant features are neither large nor small.
        order = np.argsort(-one.variance, kind="stable")[: np.count_nonzero(one.variance)]
        if len(order) < 2:
            continue
        part = one.variance[order].cumsum() / one.variance.sum()
        n_largest = int((part < _SCALE_PART).sum()) + 1
        if n_largest <= max(1, min(_FEW_FEATURES, int(_LARGEST_PART * len(order)))):
            called = _called(order[:n_largest].tolist(), names)
            yield (
                f"{called} {plural(n_largest, 'has', 'have')} {_percent(part[n_largest - 1])} of the variance of the "
                f"{collection}, so that the other {len(order) - n_largest} features hardly count: labels are "
                "unreliable. Standardise the features of both collections, such as with scikit-learn's StandardScaler."
            )
            return


def _units(seen: Mapping[str, _SeenValues]) -> tuple[str, ...]:
    if len(seen) < 2:
        return ()
    first, second = (one.variance for one in seen.values())
    varies = (first > 0) & (second > 0)
    if varies.sum() < _FEWEST_COMPARED:
        return ()
    change = (np.log(second[varies]) - np.log(first[varies])) / 2
    # What all features have in common is the scale of the whole collection, which does not matter.
    factor = float(np.exp(np.median(np.abs(change - np.median(change)))))
    if factor <= _OTHER_UNITS:
        return ()
    return (
        f"the features of {' and '.join(seen)} do not seem to have the same units: the spread of half of them differs "
        f"by a factor of {factor:.1f} or more from what the others have in common. Labels are unreliable. Give the "
        "same features in the same order and units, or standardise each collection.",
    )


def _precision(seen: Mapping[str, _SeenValues]) -> Iterator[str]:
    for collection, one in seen.items():
        spread, length = float(np.sqrt(one.variance.sum())), float(np.linalg.norm(one.centre.clip(-_LARGEST, _LARGEST)))
        if 0 < spread < _LEAST_SPREAD * length:
            yield (
                f"the samples of the {collection} differ by a part of {spread / length:.0e} of their size, which is "
                "too little for numbers of seven digits (float32): labels are unreliable. Subtract the mean of the "
                "source from both collections."
            )
            return


def _copies(seen: Mapping[str, _SeenValues]) -> Iterator[str]:
    for collection, one in seen.items():
        if one.copied_part >= _COPIES:
            equal = "zero in all features" if one.copies_are_zero else "equal to one and the same sample"
            yield (
                f"{_parts({collection: one.copied_part})} are {equal}, and the others are not: labels of these samples "
                "are unreliable. They may be failures or placeholders; leave them out."
            )


def _parts(parts: Mapping[str, float]) -> str:
    """Return parts of collections in words, such as `3 % of the source samples and 2 % of the target samples`."""
    return " and ".join(f"{_percent(part)} of the {name} samples" for name, part in parts.items())


def _percent(part: float) -> str:
    return f"{min(100 * part, 99.99):.4g} %" if 0.99 < part < 1 else f"{100 * part:.2g} %" if part < 1 else "100 %"


def _called(features: Sequence[int], names: Sequence[str]) -> str:
    return f"{plural(len(features), 'feature')} {listed([names[place] for place in features], _MOST_NAMES)}"
