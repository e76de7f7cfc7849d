"""The private categories of the target: how many, which sample is in which; and which source classes are absent."""

from uniot.discovery.absent import absence
from uniot.discovery.exemplars import Exemplars, exemplars
from uniot.discovery.groups import PrivateGroups, private_groups
from uniot.discovery.labelled import LabelledFeatures
from uniot.discovery.number import Evidence, NumberOfClasses, SeenTarget, number_of_private_classes

__all__ = [
    "Evidence",
    "Exemplars",
    "LabelledFeatures",
    "NumberOfClasses",
    "PrivateGroups",
    "SeenTarget",
    "absence",
    "exemplars",
    "number_of_private_classes",
    "private_groups",
]
