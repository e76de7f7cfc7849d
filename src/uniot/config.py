"""The settings of a run, each defined once: type, default, range and a sentence that describes it."""

from __future__ import annotations

import json
import sys
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from uniot.errors import SettingsError

if sys.version_info >= (3, 11):
    from typing import Self
else:
    from typing_extensions import Self


class CheckedSettings(BaseModel):
    """Immutable settings; a name that does not exist is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def checked(cls, **values: Any) -> Self:
        """Return settings from keywords; raise a SettingsError that names the wrong ones."""
        try:
            return cls(**values)
        except ValidationError as error:
            raise SettingsError(_explain(error, cls)) from None

    def toml_lines(self) -> list[str]:
        """Return the lines of a TOML text: each setting, below a comment that describes it."""
        lines = []
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            lines.append(f"# {field.description}")
            lines.append(f"# {name} =" if value is None else f"{name} = {_toml_value(value)}")
        return lines


class ImageSettings(CheckedSettings):
    """Settings of the network that reads images; the table `images` of a settings.toml."""

    backbone: str = Field(
        "efficientnet_lite0",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:/-]*$",
        max_length=200,
        description="Network that makes embeddings of images, a timm model; efficientnet_lite0 comes with uniot.",
    )
    weights: str | None = Field(
        None, description="File with the weights of the network; its pretrained weights if not set."
    )
    flip: bool = Field(
        False,
        description="Whether the embedding of an image is averaged with that of its mirror image.",
    )
    fine_tune: Literal["none", "last", "all"] = Field(
        "none", description="Part of the network that is trained: none, the last stage, or all of it."
    )
    batch_norm: Literal["frozen", "trained"] = Field(
        "frozen",
        description="Batch normalisation of the trained part: frozen keeps the statistics of the pretraining, trained "
        "uses those of each batch, per domain.",
    )
    scaled: bool = Field(
        True, description="Whether the embeddings of a trained network are scaled to input_norm, as others are."
    )
    accumulate: int = Field(
        1,
        ge=1,
        le=10_000,
        description="Number of parts that a batch is split into, to save memory.",
    )
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = Field(
        "32-true", description="Floating-point precision of the network on a GPU; mixed precision is faster."
    )

    @model_validator(mode="after")
    def _trained_statistics(self) -> Self:
        if self.batch_norm == "trained" and self.accumulate > 1:
            raise PydanticCustomError(
                "parts_of_batch",
                "batch_norm is 'trained' and accumulate is {accumulate}: the statistics of a part are not those of the "
                "batch. Set accumulate to 1, or batch_norm to 'frozen'.",
                {"accumulate": self.accumulate},
            )
        if self.fine_tune == "none" and (self.batch_norm == "trained" or not self.scaled):
            raise PydanticCustomError(
                "nothing_trained",
                "batch_norm and scaled are settings of a trained network, and fine_tune is 'none'. Leave them out, or "
                "set fine_tune to 'last' or 'all'.",
            )
        return self

    @property
    def outside_fingerprint(self) -> set[str]:
        """Return the names of the settings that a fingerprint leaves out.

        Those are the place of the weights, and settings at their defaults that older runs did not have.
        """
        defaults = {"batch_norm": "frozen", "scaled": True}
        return {"weights"} | {name for name, value in defaults.items() if getattr(self, name) == value}


class Settings(CheckedSettings):
    """Settings of a run. None means that the value is derived from the data or the method, by `resolved`."""

    method: str = Field(
        "unincm", max_length=100, description="Name of the method; the command uniot methods lists them."
    )
    method_options: dict[str, bool | int | float | str] = Field(
        default_factory=dict, description="Hyper-parameters of the method."
    )
    queue_size: int | None = Field(
        None,
        ge=1,
        le=10_000_000,
        description="Number of target features in the queue; derived from the target's size if not set.",
    )
    steps: int | None = Field(
        None,
        ge=0,
        le=10_000_000,
        description="Number of training steps; derived from the target's size and the method if not set.",
    )
    batch_size: int = Field(36, ge=1, le=100_000, description="Number of samples per domain and step.")
    feature_size: int = Field(256, ge=1, le=1_000_000, description="Width of the features that the method learns.")
    input_norm: float = Field(30.0, gt=0, le=1e6, description="Norm that every embedding is scaled to.")
    learning_rate: float | None = Field(
        None,
        gt=0,
        le=100,
        description="Initial learning rate of all layers but the backbone; that of the method if not set.",
    )
    backbone_learning_rate: float | None = Field(
        None, gt=0, le=100, description="Initial learning rate of the backbone; a tenth of learning_rate if not set."
    )
    momentum: float = Field(0.9, ge=0, lt=1, description="Nesterov momentum of stochastic gradient descent.")
    weight_decay: float = Field(5e-4, ge=0, le=1, description="Weight decay of stochastic gradient descent.")
    network: str = Field(
        "none",
        pattern="^(none|small-cnn)$",
        description='Network that is trained from scratch: "small-cnn" for small grey images, "none" for embeddings.',
    )
    n_private_classes: int | None = Field(
        None, ge=0, le=100_000, description="Number of groups of unknown samples; estimated if not set."
    )
    private_prior: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Fraction of the target that is called unknown; the method decides if not set.",
    )
    prefer: Literal["known", "unknown"] | None = Field(
        None,
        description="known halves the fraction that is called unknown, unknown the fraction that is called known; "
        "the method decides if not set.",
    )
    store_target: bool = Field(
        True, description="Whether a run keeps the target's embeddings to compare new samples with; if not, averages."
    )
    checkpoint_every: int = Field(100, ge=1, le=10_000_000, description="Number of steps between checkpoints.")
    seed: int = Field(0, ge=0, lt=2**63, description="Random seed.")

    @classmethod
    def checked(cls, **values: Any) -> Self:
        """Return settings from keywords; every keyword that is not a setting is a hyper-parameter of the method.

        `uniot.methods.check_method` checks the hyper-parameters, which differ from method to method.

        Raises:
            SettingsError: a value is of the wrong type or out of its range.
        """
        own = {name: values.pop(name) for name in list(values) if name not in cls.model_fields}
        if own:
            values["method_options"] = {**(values.get("method_options") or {}), **own}
        return super().checked(**values)

    @model_validator(mode="after")
    def _one_preference(self) -> Self:
        if self.private_prior is not None and self.prefer is not None:
            raise PydanticCustomError(
                "two_preferences",
                "private_prior is {private_prior} and prefer is '{prefer}', and each sets the threshold. Give one of "
                "them, or none.",
                {"private_prior": self.private_prior, "prefer": self.prefer},
            )
        return self

    @property
    def outside_fingerprint(self) -> set[str]:
        """Return the names of the settings that a fingerprint leaves out: they do not change the result of a run.

        Preferences that are not set are among them, so that runs made before they existed stay valid.
        """
        preferences = {name for name in ("private_prior", "prefer") if getattr(self, name) is None}
        return {"checkpoint_every"} | preferences

    def resolved(self, n_target: int, learning_rate: float = 0.01) -> Settings:
        """Return the settings with every value that depends on the target or the method filled in.

        The queue follows the paper: 2000 samples, and 10 000 for large targets. The steps are ten epochs of the
        target, at least 1000 and at most 10 000 (the paper, which fine-tunes a network, takes 10 000).

        Args:
            n_target: number of target samples.
            learning_rate: learning rate of the method, used if none is set.

        Returns:
            Settings without None, but for those that are not derived.
        """
        batch = min(self.batch_size, n_target)
        values: dict[str, Any] = {
            "queue_size": self.queue_size or (2000 if n_target <= _LARGE_TARGET else 10_000),
            "steps": min(10_000, max(1000, 10 * n_target // batch)) if self.steps is None else self.steps,
            "batch_size": batch,
            "learning_rate": self.learning_rate or learning_rate,
        }
        values["backbone_learning_rate"] = self.backbone_learning_rate or values["learning_rate"] / 10
        # Whole batches, so that a push never overwrites a part of itself.
        values["queue_size"] = max(1, values["queue_size"] // batch) * batch
        return self.model_copy(update=values)

    def to_toml(self, images: ImageSettings | None = None, **tables: dict[str, Any]) -> str:
        """Return a commented TOML text, which `uniot.io.text.read_settings` reads back.

        Args:
            images: image settings, for the table `images`; none if None.
            **tables: further tables by name.
        """
        lines = self.toml_lines()
        if images is not None:
            lines += ["", "[images]", *images.toml_lines()]
        for table, values in tables.items():
            as_lines = [f"{key} = {_toml_value(value)}" for key, value in values.items()]
            lines += ["", f"[{table}]", *as_lines]
        return "\n".join(lines) + "\n"


_LARGE_TARGET = 10_000


def _toml_value(value: object) -> str:
    if isinstance(value, dict):
        pairs = ", ".join(f"{_toml_value(str(key))} = {_toml_value(part)}" for key, part in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    # A JSON string is a TOML string except for the delete character, which TOML requires to be escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _explain(error: ValidationError, model: type[BaseModel]) -> str:
    sentences = []
    for problem in error.errors():
        name = ".".join(str(part) for part in problem["loc"])
        if not problem["loc"]:
            sentences.append(problem["msg"])
        elif problem["type"] == "extra_forbidden":
            sentences.append(f"there is no setting called {name!r}; known ones are {', '.join(model.model_fields)}.")
        else:
            about = model.model_fields[name].description if name in model.model_fields else ""
            sentences.append(f"setting {name} is {repr(problem['input'])[:200]}: {problem['msg'].lower()}. ({about})")
    return " ".join(sentences)
