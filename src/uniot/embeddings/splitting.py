"""Where a network can be cut in two: what stays as it is, and what is trained."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn

from uniot.errors import SettingsError

Cut = Literal["none", "last", "all"]


class Part(nn.Sequential):
    """A piece of a network that evaluates always.

    Whatever mode a trainer sets, normalisation uses the statistics of the pretraining and nothing is dropped.
    """

    def __init__(self, layers: Mapping[str, nn.Module]) -> None:
        super().__init__(OrderedDict(layers))
        self.eval()

    def train(self, mode: bool = True) -> Part:
        return super().train(False)


class FlipAveraged(Part):
    """A whole network whose embedding is the mean of those of an image and of its mirror image.

    The names of its weights are those of the network without averaging.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__({"network": network})

    def forward(self, images: Tensor) -> Tensor:
        # One pass after the other: both in one batch would take twice the memory.
        embeddings: Tensor = self[0](images)
        mirrored: Tensor = self[0](images.flip(-1))
        return (embeddings + mirrored) / 2


@dataclass(frozen=True)
class _Family:
    """Layers of a class of networks in the order of its forward pass; the last of `stages` begins the tail."""

    before: tuple[str, ...]
    stages: str
    after: tuple[str, ...]

    def parts(self, network: nn.Module) -> tuple[Part, Part]:
        stages: nn.Sequential = getattr(network, self.stages)
        before = {name: getattr(network, name) for name in self.before}
        after = {name: getattr(network, name) for name in self.after}
        return Part({**before, self.stages: stages[:-1]}), Part({self.stages: stages[-1:], **after})


_FAMILIES = {
    "EfficientNet": _Family(("conv_stem", "bn1"), "blocks", ("conv_head", "bn2", "global_pool")),
    "MobileNetV3": _Family(
        ("conv_stem", "bn1"), "blocks", ("global_pool", "conv_head", "norm_head", "act2", "flatten")
    ),
    "ConvNeXt": _Family(("stem",), "stages", ("norm_pre", "head")),
}
_RESNET = (("conv1", "bn1", "act1", "maxpool", "layer1", "layer2", "layer3"), ("layer4", "global_pool"))


def parts(network: nn.Module, cut: Cut, name: str, *, flip: bool = False) -> tuple[nn.Module, nn.Module]:
    """The frozen and the trained part of a network of timm without a classifier; they take its layers over.

    Args:
        network: the whole.
        cut: what is trained.
        name: of the network, for errors.
        flip: whether the frozen part averages over an image and its mirror image.

    Raises:
        SettingsError: the stages of the network are not known, or embeddings that are trained are to be averaged.
    """
    if flip and cut != "none":
        raise SettingsError(
            f"flip averages the embeddings of a frozen network, and fine_tune is {cut!r}: training sees one view of an "
            "image at a time. Set fine_tune to 'none', or flip to false."
        )
    if flip:
        return FlipAveraged(network), nn.Identity()
    if cut == "none":
        return Part({"network": network}), nn.Identity()
    if cut == "all":
        return nn.Identity(), Part({"network": network})
    # The class itself: one that inherits from it may have another forward pass.
    family = type(network).__name__ if type(network).__module__.startswith("timm.models.") else ""
    if family in _FAMILIES:
        return _FAMILIES[family].parts(network)
    if family == "ResNet":
        trunk, tail = (Part({layer: getattr(network, layer) for layer in layers}) for layers in _RESNET)
        return trunk, tail
    if family == "VisionTransformer":
        return _parts_of_transformer(network)
    raise SettingsError(
        f"fine_tune is 'last', but where the last stage of {name} begins is not known: it is of the class "
        f"{type(network).__name__}, and those known are {', '.join([*_FAMILIES, 'ResNet', 'VisionTransformer'])}. "
        "Set fine_tune to 'none' or 'all', or choose another backbone."
    )


def _parts_of_transformer(network: Any) -> tuple[Part, Part]:
    blocks: nn.Sequential = network.blocks
    first = len(blocks) - max(1, len(blocks) // 4)
    trunk = Part({"tokens": _Tokens(network), "blocks": blocks[:first]})
    return trunk, Part({"blocks": blocks[first:], "norm": network.norm, "pool": _Pool(network)})


class _Tokens(nn.Module):
    """A vision transformer up to its first block."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = _without(network, "blocks", "norm", "attn_pool", "fc_norm", "head")

    def forward(self, images: Tensor) -> Tensor:
        network = self.network
        tokens: Tensor = network.norm_pre(network.patch_drop(network._pos_embed(network.patch_embed(images))))
        return tokens


class _Pool(nn.Module):
    """A vision transformer after its last norm."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        inputs = ("patch_embed", "cls_token", "reg_token", "pos_embed", "norm_pre")
        self.network = _without(network, *inputs, "blocks", "norm")

    def forward(self, tokens: Tensor) -> Tensor:
        pooled: Tensor = self.network.forward_head(tokens)
        return pooled


def _without(network: Any, *names: str) -> Any:
    """A copy that lacks the layers and parameters named; only steps that do not use them may be asked of it."""
    copy = deepcopy(network)
    for name in names:
        setattr(copy, name, nn.Identity() if isinstance(getattr(copy, name), nn.Module) else None)
    return copy
