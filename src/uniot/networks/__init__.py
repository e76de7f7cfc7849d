"""Weights and state: projection head, unit-norm prototypes, queue of features, a small backbone."""

from uniot.networks.projection import ProjectionHead
from uniot.networks.prototypes import Prototypes
from uniot.networks.queue import FeatureQueue, nearest_neighbours

__all__ = ["FeatureQueue", "ProjectionHead", "Prototypes", "nearest_neighbours"]
