"""Every setting once: type, default, range and a sentence. Unknown keys are refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from uniot.errors import SettingsError
from uniot.untrusted import MOST_SETTINGS_BYTES, read_bounded

if sys.version_info >= (3, 11):
    from typing import Self

    import tomllib
else:
    import tomli as tomllib
    from typing_extensions import Self


class CheckedSettings(BaseModel):
    """Settings that refuse what they do not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def checked(cls, **values: Any) -> Self:
        """Settings from keywords; a wrong one is a `SettingsError` that names it."""
        try:
            return cls(**values)
        except ValidationError as error:
            raise SettingsError(_explain(error, cls)) from None

    def toml_lines(self) -> list[str]:
        """Each setting with its sentence."""
        lines = []
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            lines.append(f"# {field.description}")
            lines.append(f"# {name} =" if value is None else f"{name} = {_toml_value(value)}")
        return lines


class ImageSettings(CheckedSettings):
    """How images become what a method is trained on; the table `images` of a settings.toml."""

    backbone: str = Field(
        "efficientnet_lite0",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:/-]*$",
        max_length=200,
        description="Name of a timm model; efficientnet_lite0 comes with the install.",
    )
    weights: str | None = Field(None, description="File that its weights were read from; its own if left out.")
    flip: bool = Field(
        False,
        description="Average the embedding of an image with that of its mirror image (test-time augmentation).",
    )
    fine_tune: Literal["none", "last", "all"] = Field(
        "none", description="What of the backbone is trained: nothing, the last stage, or all of it."
    )
    accumulate: int = Field(
        1, ge=1, le=10_000, description="Parts of a batch that go through the backbone one after another."
    )
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = Field(
        "32-true", description="Of the network on a GPU; mixed is quicker."
    )


class Settings(CheckedSettings):
    """How a run is made. `None` means that the data or the method decide; `resolved` fills those in."""

    method: str = Field("uniot-universal", max_length=100, description="Which method trains; uniot methods lists them.")
    method_options: dict[str, bool | int | float | str] = Field(
        default_factory=dict, description="Hyper-parameters of that method alone."
    )
    n_clusters: int | None = Field(
        None, ge=1, le=100_000, description="Cluster prototypes K; from the target's size if left out."
    )
    queue_size: int | None = Field(
        None,
        ge=1,
        le=10_000_000,
        description="Target features kept in the queue; from the target's size if left out.",
    )
    steps: int | None = Field(
        None, ge=0, le=10_000_000, description="Training steps; from the target's size and the method if left out."
    )
    batch_size: int = Field(36, ge=1, le=100_000, description="Samples of each domain in a step.")
    hidden_size: int = Field(2048, ge=1, le=1_000_000, description="Width of the projection's hidden layer.")
    feature_size: int = Field(256, ge=1, le=1_000_000, description="Width of a feature.")
    input_norm: float = Field(
        30.0, gt=0, le=1e6, description="Every embedding is scaled to this norm, whatever scale it came in."
    )
    temperature: float = Field(0.1, ge=1e-3, le=100, description="τ; cosines are divided by it.")
    adaptation_weight: float = Field(0.1, ge=0, le=1e3, description="λ, weight of both target losses.")
    similarity_threshold: float = Field(
        0.7,
        ge=-1,
        le=1,
        description="γ, rough border between positive and negative rows in adaptive filling.",
    )
    class_mass_momentum: float = Field(0.7, ge=0, le=1, description="μ, memory of the class mass β.")
    epsilon: float = Field(0.01, ge=1e-3, le=10, description="ε, entropy of the unbalanced transport.")
    marginal_penalty: float = Field(0.5, ge=0.05, le=1e3, description="κ, penalty on its marginals.")
    balanced_epsilon: float = Field(0.05, ge=1e-3, le=10, description="ε of the balanced transport.")
    balanced_iterations: int = Field(3, ge=1, le=10_000, description="Scaling steps of the balanced transport.")
    detection_start: int = Field(
        100, ge=0, le=10_000_000, description="Step after which common-class detection trains."
    )
    learning_rate: float | None = Field(
        None, gt=0, le=100, description="Of all layers but the backbone, at the start; the method's own if left out."
    )
    backbone_learning_rate: float | None = Field(
        None, gt=0, le=100, description="Of the backbone, at the start; a tenth of the other if left out."
    )
    momentum: float = Field(0.9, ge=0, lt=1, description="Of stochastic gradient descent (Nesterov).")
    weight_decay: float = Field(5e-4, ge=0, le=1, description="Of stochastic gradient descent.")
    network: str = Field(
        "none",
        pattern="^(none|small-cnn)$",
        description='Trained from scratch: "none" for embeddings; "small-cnn" for small grey images.',
    )
    n_private_classes: int | None = Field(
        None, ge=0, le=100_000, description="Private groups to find; estimated if left out."
    )
    private_prior: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Fraction of the target that is to be unknown; the rule decides if left out.",
    )
    prefer: Literal["known", "unknown"] | None = Field(
        None,
        description="known halves the fraction that the rule calls unknown, unknown the fraction that it calls known; "
        "neither if left out.",
    )
    store_target: bool = Field(
        True, description="Whether a run whose method looks at neighbours keeps the target's embeddings, or averages."
    )
    checkpoint_every: int = Field(100, ge=1, le=10_000_000, description="Steps between two checkpoints of a run.")
    seed: int = Field(0, ge=0, lt=2**63, description="Decides every random choice.")

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
        """Settings that a fingerprint leaves out: they do not change the result of a run.

        Preferences that are not set are among them, so that runs made before they existed stay valid.
        """
        preferences = {name for name in ("private_prior", "prefer") if getattr(self, name) is None}
        return {"checkpoint_every"} | preferences

    def resolved(self, n_target: int, learning_rate: float = 0.01) -> Settings:
        """The same settings with everything decided for a target of `n_target` samples.

        Args:
            n_target: samples of the target.
            learning_rate: the method's own.

        The number of clusters follows the paper: 50 up to 3 k samples (Office), 150 for 4 k (Office-Home), 500
        for tens of thousands (VisDA), 1000 beyond; never more than a quarter of the samples. So does the queue:
        2000, and 10 000 for large targets. The steps are ten rounds through the target, at least 1000 and at most
        10 000 (the paper, which fine-tunes a network, takes 10 000).
        """
        batch = min(self.batch_size, n_target)
        clusters = next((k for limit, k in _CLUSTERS if n_target <= limit), 1000)
        values: dict[str, Any] = {
            "n_clusters": self.n_clusters or min(clusters, max(2, n_target // 4)),
            "queue_size": self.queue_size or (2000 if n_target <= _LARGE_TARGET else 10_000),
            "steps": min(10_000, max(1000, 10 * n_target // batch)) if self.steps is None else self.steps,
            "batch_size": batch,
            "learning_rate": self.learning_rate or learning_rate,
        }
        values["backbone_learning_rate"] = self.backbone_learning_rate or values["learning_rate"] / 10
        # Whole batches, so that one push never overwrites a part of itself.
        values["queue_size"] = max(1, values["queue_size"] // batch) * batch
        return self.model_copy(update=values)

    def to_toml(self, images: ImageSettings | None = None, **tables: dict[str, Any]) -> str:
        """A commented TOML text that `from_toml` reads back; `tables` are appended as tables."""
        lines = self.toml_lines()
        if images is not None:
            lines += ["", "[images]", *images.toml_lines()]
        for table, values in tables.items():
            as_lines = [f"{key} = {_toml_value(value)}" for key, value in values.items()]
            lines += ["", f"[{table}]", *as_lines]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, path: Path) -> tuple[Settings, ImageSettings | None]:
        """Settings from a TOML file, and those of images where it has a table of them."""
        try:
            values = _read_toml(path)
        except OSError as error:
            raise SettingsError(
                f"{path} cannot be read ({error.strerror}). Give a settings.toml, such as that of another run."
            ) from None
        except ValueError as error:
            raise SettingsError(f"{path} is not valid TOML ({error}). Correct it or remove it.") from None
        values.pop("inputs", None)
        images = values.pop("images", None)
        return cls.checked(**values), None if images is None else ImageSettings.checked(**images)


def read_inputs(path: Path) -> dict[str, str]:
    """Where the data of a run came from, as its settings.toml says."""
    try:
        inputs = _read_toml(path).get("inputs", {})
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path} cannot be read ({error}). Give a run made with `uniot adapt`.") from None
    return {str(name): str(value) for name, value in inputs.items()} if isinstance(inputs, dict) else {}


def _read_toml(path: Path) -> dict[str, Any]:
    """Return what a TOML file says; whatever is wrong with its text is a ValueError."""
    try:
        return tomllib.loads(read_bounded(path, MOST_SETTINGS_BYTES).decode("utf-8"))
    except RecursionError:
        raise ValueError("nested too deeply") from None


_CLUSTERS = ((3500, 50), (10_000, 150), (100_000, 500))
_LARGE_TARGET = 10_000


def _toml_value(value: object) -> str:
    if isinstance(value, dict):
        pairs = ", ".join(f"{_toml_value(str(key))} = {_toml_value(part)}" for key, part in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    # A JSON string is a TOML string, but for the delete character, which TOML wants escaped.
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
