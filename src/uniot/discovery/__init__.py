"""The private categories of the target: how many, which sample is in which; and which source classes are absent."""

from uniot.discovery.absent import absence
from uniot.discovery.exemplars import Exemplars, exemplars
from uniot.discovery.groups import PrivateGroups, private_groups
from uniot.discovery.label_queue import Queued, label_queue
from uniot.discovery.label_spreading import RUN_WEIGHT, Neighbourhoods, spread_labels, uncertainty
from uniot.discovery.labelled import LabelledFeatures
from uniot.discovery.number import Evidence, NumberOfClasses, SeenTarget, number_of_private_classes

__all__ = [
    "RUN_WEIGHT",
    "Evidence",
    "Exemplars",
    "LabelledFeatures",
    "Neighbourhoods",
    "NumberOfClasses",
    "PrivateGroups",
    "Queued",
    "SeenTarget",
    "absence",
    "exemplars",
    "label_queue",
    "number_of_private_classes",
    "private_groups",
    "spread_labels",
    "uncertainty",
]
