"""Source labels that look wrong, as the page shows them, and what people say about them."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

from uniot.annotations.annotations import class_named
from uniot.data_quality.checks import SuspectLabel, read_suspect_labels
from uniot.errors import DataError
from uniot.io.text import as_utf8
from uniot.labelling.names import read_names
from uniot.labelling.reading import IN_EXAMPLE, SampleTexts
from uniot.labelling.source_labels import SourceLabels, checked
from uniot.runs.run import Run

if TYPE_CHECKING:
    from uniot.labelling.samples import TargetSamples

MOST_SHOWN = 1000


class SuspectLabels:
    """The suspect labels of a run, the most likely wrong first; every decision is written at once.

    Args:
        run: the run.
        target: its target, with its classes and texts.
    """

    def __init__(self, run: Run, target: TargetSamples) -> None:
        self._files, self._target = run.files, target
        self._texts = SampleTexts(target)
        self._lock = Lock()
        self._said = SourceLabels.of_run(run.files.source_labels)
        # Target samples that people labelled are in the source of a continued run; their labels are theirs.
        theirs = set(read_names(run.files.names).names) if run.files.names.is_file() else set()
        found = [one for one in read_suspect_labels(run.files.suspect_labels) if as_utf8(one.sample) not in theirs]
        self._suspects = {one.row: one for one in found[:MOST_SHOWN]}
        names = [as_utf8(one.sample) for one in found]
        self._twice = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set()

    def __len__(self) -> int:
        return len(self._suspects)

    def view(self) -> dict[str, Any]:
        """Return every suspect label with what was said about it, as JSON values."""
        with self._lock:
            shown = [self._describe(one) for one in self._suspects.values()]
            return {"suspects": shown, "decided": sum(one["decision"] != "" for one in shown)}

    def decide(self, row: int, decision: str, label: str = "") -> str:
        """Save what a person says about the label of a source sample; return a sentence for people.

        Args:
            row: of the source, which must be that of a suspect label.
            decision: `right`, `changed`, `dropped`, or nothing to withdraw what was said.
            label: the other label, a class of the source, if it is changed.

        Raises:
            DataError: there is no such suspect or class, or another sample has the same name.
        """
        with self._lock:
            one = self._suspects.get(row)
            if one is None:
                raise DataError(f"row {row} of the source has no suspect label. Reload the page.")
            name = as_utf8(one.sample)
            if name in self._twice:
                raise DataError(
                    f"several source samples are named {name!r}. Give each a name of its own, and run again."
                )
            said = dict(self._said.said)
            if decision == "":
                said.pop(name, None)
            else:
                if decision == "changed" and class_named(label, self._target.classes) is None:
                    raise DataError(f"{label!r} is no class of the source. Choose one of the list.")
                said[name] = checked(one.label if decision == "right" else label, decision)
            after = SourceLabels(said)
            with Run.writer(self._files.folder, wait=True) as writer:
                writer.write_source_labels(after.lines())
            self._said = after
            return _sentence(name, decision, label)

    def _describe(self, one: SuspectLabel) -> dict[str, Any]:
        label, decision = self._said.said.get(as_utf8(one.sample), ("", ""))
        return {
            "row": one.row,
            "name": as_utf8(one.sample),
            **self._texts.shown("source", one.row, IN_EXAMPLE),
            "label": one.label,
            "suggested": one.suggested,
            "score": round(one.score, 2),
            "clear": one.clear,
            "decision": decision,
            "said": label,
        }


def _sentence(name: str, decision: str, label: str) -> str:
    what = {
        "right": "the label is right",
        "changed": f"the label is now “{label}”",
        "dropped": "left out of the next run",
        "": "nothing is said about its label any more",
    }
    return f"{name}: {what[decision]}."
