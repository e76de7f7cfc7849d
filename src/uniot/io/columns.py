"""Which columns of a table, or arrays of a file, hold labels, sample names, texts and what a person sees."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from uniot.errors import DataError
from uniot.io.text import listed

KEYS = {
    "x": ("x", "X", "embedding", "embeddings", "features"),
    "y": ("y", "label", "labels", "class", "category"),
    "ids": ("ids", "id", "path", "paths", "file", "files"),
}
"""Names under which a file may hold the embeddings, the labels and the sample names."""

_OPTIONS = {"y": "label", "ids": "ids", "show": "show", "text": "text"}
_WORDS = {
    "y": "the labels",
    "ids": "the names of the samples",
    "show": "what a person sees of each sample",
    "text": "the texts",
}


@dataclass(frozen=True)
class Columns:
    """Columns that somebody chose; a file that lacks one may have labels and names under the usual names of `KEYS`.

    Attributes:
        label: column of the labels.
        ids: column of the sample names.
        show: column of what a person sees of each sample: a text, a link or the path of an image.
        text: column of the texts that are embedded.
        needed: which of these must be there, by the names of the attributes; a file may lack the others.
    """

    label: str | None = None
    ids: str | None = None
    show: str | None = None
    text: str | None = None
    needed: frozenset[str] = field(default=frozenset())

    @classmethod
    def of_inputs(cls, inputs: Mapping[str, str]) -> Columns:
        """Return the columns that a run was made with, from the inputs of its settings; none of them is needed."""
        return cls(inputs.get("label"), inputs.get("ids"), inputs.get("show"), inputs.get("text"))

    @property
    def chosen(self) -> dict[str, str]:
        """Return the columns that were chosen, by the names of the attributes, as for the inputs of a run."""
        named = {option: getattr(self, option) for option in _OPTIONS.values()}
        return {option: name for option, name in named.items() if name is not None}

    def needs(self, *options: str) -> Columns:
        """Return the same columns, of which these must be there if they were chosen."""
        return replace(self, needed=frozenset(option for option in options if option in self.chosen))

    def over(self, other: Columns) -> Columns:
        """Return these columns, and those of another choice if this one leaves them open."""
        return replace(
            self,
            label=self.label or other.label,
            ids=self.ids or other.ids,
            show=self.show or other.show,
            text=self.text or other.text,
        )

    def roles(self, where: object, names: Collection[str], *, with_x: bool = False) -> dict[str, str]:
        """Return which of the names hold the embeddings ("x"), labels ("y"), names ("ids"), "show" and "text".

        Args:
            where: the file, for the message.
            names: the columns or arrays of the file.
            with_x: whether to look for the embeddings.

        Raises:
            DataError: a column that is needed is missing.
        """
        found: dict[str, str] = {}
        if with_x:
            found |= {"x": next((key for key in KEYS["x"] if key in names), "")}
        for role, option in _OPTIONS.items():
            chosen = getattr(self, option)
            if chosen in names:
                found[role] = chosen
            elif option not in self.needed:
                found[role] = next((key for key in KEYS.get(role, ()) if key in names), "")
            else:
                raise DataError(
                    f"{where} has no column {chosen!r} for {_WORDS[role]} (--{option}); it has "
                    f"{listed(sorted(names)) or 'no columns'}. Give one of these."
                )
        return {role: key for role, key in found.items() if key}

    def are_no_features(self, names: Collection[str]) -> set[str]:
        """Return those of the columns that are never embeddings: labels and names, by the usual names or as chosen."""
        others = {*KEYS["y"], *KEYS["ids"], *self.chosen.values()}
        return {name for name in names if name in others}
