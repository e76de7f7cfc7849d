"""The description of a finished run in the file of its model, checked before anything else is read."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, ValidationError

from uniot.config import Settings
from uniot.discovery.class_count import NumberOfClasses
from uniot.errors import RunFolderError
from uniot.io.labels import class_names_problem
from uniot.io.tensor_files import MAKE_AGAIN, describe_tensors
from uniot.methods.decision import Calibration, Threshold
from uniot.reliability import Reliability
from uniot.runs.files import RunFiles, check_run_folder

_MOST_INPUTS = 1 << 24  # values of one sample: an image of 4096 × 4096 pixels
_MOST_CLASSES = 10_000_000
_Label = Annotated[StrictInt, Field(ge=-(2**63), lt=2**63)]


class RunDescription(BaseModel):
    """The description in the model's file."""

    model_config = ConfigDict(frozen=True)

    classes: list[StrictStr] | list[_Label] = Field(min_length=1)
    unknown: StrictStr | _Label
    settings: dict[str, Any]
    method_package: StrictStr | None = Field(None, max_length=1000)
    input_shape: list[Annotated[StrictInt, Field(ge=1, le=_MOST_INPUTS)]] = Field(min_length=1, max_length=4)
    columns: list[StrictStr] = Field(max_length=1000)
    number: NumberOfClasses
    fingerprint: StrictStr = Field(max_length=1000)
    from_images: bool
    threshold: Threshold | None
    calibration: Calibration
    reliability: Reliability
    feature_names: list[StrictStr] | None = Field(None, max_length=_MOST_INPUTS)

    @classmethod
    def of(cls, path: Path, about: dict[str, Any]) -> RunDescription:
        """Return the description of a run, given the model's file and what it describes.

        Raises:
            RunFolderError: a part of the description is missing, has another type, or is out of range.
        """
        try:
            found = cls(**about)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in problem["loc"])
            came = "nothing" if problem["type"] == "missing" else repr(problem["input"])[:60]
            raise RunFolderError(
                f"{path} has {came} as {place} of its run: {problem['msg'].lower()}. {MAKE_AGAIN}"
            ) from None
        wrong = found._wrong()
        if wrong is not None:
            raise RunFolderError(f"{path} {wrong}. {MAKE_AGAIN}")
        return found

    def _wrong(self) -> str | None:
        """Return a phrase about what is inconsistent; None if everything is consistent."""
        problem = class_names_problem(self.classes)
        if problem is not None:
            return problem
        if math.prod(self.input_shape) > _MOST_INPUTS:
            return f"has samples of {math.prod(self.input_shape)} numbers; expected at most {_MOST_INPUTS}"
        if self.feature_names is not None and len(self.feature_names) != math.prod(self.input_shape):
            return f"has {len(self.feature_names)} names for the {math.prod(self.input_shape)} numbers of a sample"
        counts = (self.number.estimate, *self.number.interval)
        if not 0 <= min(counts) <= max(counts) <= _MOST_CLASSES:
            return f"has {self.number.estimate} private classes, from {counts[1]} to {counts[2]}"
        if self.threshold is not None and not 0 < self.threshold.value < math.inf:
            return f"has the threshold {self.threshold.value}; expected a positive number"
        exponents = (self.calibration.known, self.calibration.unknown)
        if not all(0 < exponent < math.inf for exponent in exponents):
            return f"has the exponents {exponents} of probabilities; expected positive numbers"
        found = self.reliability
        estimated = (found.accuracy, found.known_accuracy, found.unknown_accuracy)
        if not all(0 <= accuracy <= 1 for accuracy in estimated if accuracy is not None):
            return f"has the estimated accuracies {estimated}; expected numbers from 0 to 1"
        return None

    @property
    def checked_settings(self) -> Settings:
        """Return the settings; raise SettingsError if one is wrong."""
        return Settings.checked(**self.settings)


def describe_run(folder: Path) -> tuple[RunDescription, int]:
    """Return the description of a finished run and its number of target samples, without loading the model.

    Raises:
        RunFolderError: the folder has no finished run, or a damaged one.
    """
    check_run_folder(folder)
    files = RunFiles(folder)
    outline, about = describe_tensors(files.model)
    run, nearest = RunDescription.of(files.model, about), outline.get("target.nearest")
    if nearest is None or nearest.ndim != 1:
        raise RunFolderError(f"{files.model} has no predictions for its target. {MAKE_AGAIN}")
    return run, len(nearest)
