"""What `model.safetensors` says of its run in words and numbers, checked before anything is made of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, ValidationError

from uniot.calibration import Calibration
from uniot.discovery import NumberOfClasses
from uniot.errors import RunFolderError
from uniot.settings import Settings
from uniot.stored_tensors import MAKE_AGAIN
from uniot.threshold import Threshold
from uniot.universal import Reliability

# An array of text takes as much room for each name as for the longest.
_MOST_LETTERS = 1 << 26
# Numbers in one sample: an image of 4096 × 4096 pixels.
_MOST_INPUTS = 1 << 24
_MOST_CLASSES = 10_000_000

_Label = Annotated[StrictInt, Field(ge=-(2**63), lt=2**63)]


class RunDescription(BaseModel):
    """The description of a run; `model_files.save_model` writes it."""

    model_config = ConfigDict(frozen=True)

    classes: list[StrictStr] | list[_Label] = Field(min_length=1)
    unknown: StrictStr | _Label
    settings: dict[str, Any]
    input_shape: list[Annotated[StrictInt, Field(ge=1, le=_MOST_INPUTS)]] = Field(min_length=1, max_length=4)
    rule: dict[str, Any]
    columns: list[StrictStr] = Field(max_length=1000)
    number: NumberOfClasses
    fingerprint: StrictStr = Field(max_length=1000)
    from_images: bool
    threshold: Threshold | None
    calibration: Calibration
    reliability: Reliability | None

    @classmethod
    def of(cls, path: Path, about: dict[str, Any]) -> RunDescription:
        """Return the description that a file holds.

        Raises:
            RunFolderError: a part of it is missing, of another type, or out of its range.
        """
        try:
            found = cls(**about)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in problem["loc"])
            came = "nothing" if problem["type"] == "missing" else _short(problem["input"])
            raise RunFolderError(
                f"{path} says {came} of {place} of its run: {problem['msg'].lower()}. {MAKE_AGAIN}"
            ) from None
        wrong = found._wrong()
        if wrong is not None:
            raise RunFolderError(f"{path} {wrong}. {MAKE_AGAIN}")
        return found

    def _wrong(self) -> str | None:
        """Return in words what does not fit together; None if all does."""
        if len(set(self.classes)) < len(self.classes):
            return "gives two classes the same name"
        longest = max((len(name) for name in self.classes if isinstance(name, str)), default=1)
        if len(self.classes) * longest > _MOST_LETTERS:
            return f"has {len(self.classes)} class names of up to {longest} letters, which is more than can be held"
        if math.prod(self.input_shape) > _MOST_INPUTS:
            return f"says that a sample has {math.prod(self.input_shape)} numbers; expected were at most {_MOST_INPUTS}"
        counts = (self.number.estimate, *self.number.interval)
        if not 0 <= min(counts) <= max(counts) <= _MOST_CLASSES:
            return f"says that there are {self.number.estimate} private classes, from {counts[1]} to {counts[2]}"
        if self.threshold is not None and not 0 < self.threshold.value < math.inf:
            return f"has the threshold {self.threshold.value}; expected was a positive number"
        exponents = (self.calibration.known, self.calibration.unknown)
        if not all(0 < exponent < math.inf for exponent in exponents):
            return f"has the exponents {exponents} of probabilities; expected were positive numbers"
        found = self.reliability
        estimated = () if found is None else (found.accuracy, found.known_accuracy, found.unknown_accuracy)
        if not all(0 <= accuracy <= 1 for accuracy in estimated if accuracy is not None):
            return f"has the estimated accuracies {estimated}; expected were numbers from 0 to 1"
        return None

    @property
    def class_array(self) -> np.ndarray:
        """The classes as an array of text or of integers, (c,)."""
        return np.array(self.classes)

    @property
    def checked_settings(self) -> Settings:
        """The settings, or a SettingsError that names the wrong one."""
        return Settings.checked(**self.settings)


def _short(value: object) -> str:
    text = repr(value)[:61]
    return text if len(text) < 61 else f"{text[:60]}…"
