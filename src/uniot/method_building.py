"""A method's networks before the first step: with random weights, or with those that another run ended with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from uniot.data.batches import generator_for
from uniot.data.samples import Samples
from uniot.embeddings.image_reader import ImageReader
from uniot.errors import SettingsError
from uniot.methods import Method, UniOTMethod, UniversalMethod, create_method
from uniot.model import AdaptedModel
from uniot.network_features import features_of_samples
from uniot.networks.fine_tuned import FineTuned
from uniot.networks.small_cnn import SmallCNN
from uniot.settings import Settings

# The purpose of a generator; batches have the small numbers, the end of a run those after this one.
_WEIGHTS = 100


def build_method(
    input_shape: Sequence[int], n_classes: int, settings: Settings, reader: ImageReader | None = None
) -> Method:
    """The networks with the weights that the seed decides; torch's own random state stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(int(generator_for(settings.seed, _WEIGHTS).initial_seed()))
        if settings.network == "small-cnn":
            backbone = SmallCNN()
            return create_method(settings, backbone.out_features, n_classes, backbone)
        if reader is not None and reader.fine_tunes:
            tail = FineTuned(reader.tail, settings.input_norm, reader.settings.accumulate)
            return create_method(settings, reader.width, n_classes, tail)
        return create_method(settings, int(np.prod(input_shape)), n_classes)


def carry_over(
    method: Method, start: AdaptedModel, classes: np.ndarray, source: Samples, source_classes: Tensor
) -> None:
    """Gives a new UniOT the weights that another run of UniOT ended with, the paper's or the universal one.

    Where nothing is trained there is nothing to carry over. Classes that the run had keep their prototype and their
    mass. A new one begins at the mean direction of its samples, with an even share. The queue is filled anew: the
    target may be another.

    Args:
        method: changed in place.
        start: what the other run ended with.
        classes: of the new run, sorted.
        source: labelled samples of the new run.
        source_classes: (n,), class index of each.
    """
    if isinstance(method, UniversalMethod):
        if method.trainer is None:
            return
        method = method.trainer
    before = start.method.trainer if isinstance(start.method, UniversalMethod) else start.method
    if not isinstance(method, UniOTMethod) or not isinstance(before, UniOTMethod):
        raise SettingsError(
            "only UniOT, as published or universal, goes on from weights that UniOT trained, and this run is of "
            f"{start.settings.method}. Begin anew, with --names on the command line and without `start` in Python."
        )
    weights = dict(before.state_dict())
    old_prototypes, old_mass = weights.pop("classes.weight"), weights.pop("class_mass")
    kept = {
        name: value
        for name, value in weights.items()
        if not name.startswith("queue.") and name != "potential" and value.shape == method.state_dict()[name].shape
    }
    method.load_state_dict(kept, strict=False)
    place = {str(name): index for index, name in enumerate(start.classes.tolist())}
    prototypes, mass = method.classes.weight.detach().clone(), torch.full_like(method.class_mass, 1 / len(classes))
    for index, name in enumerate(classes.tolist()):
        if str(name) in place:
            prototypes[index], mass[index] = old_prototypes[place[str(name)]], old_mass[place[str(name)]]
            continue
        features, _ = features_of_samples(method, source, torch.nonzero(source_classes == index).flatten())
        prototypes[index] = F.normalize(features.mean(dim=0), dim=0)
    with torch.no_grad():
        method.classes.weight.copy_(prototypes)
        method.class_mass.copy_(mass / mass.sum())
