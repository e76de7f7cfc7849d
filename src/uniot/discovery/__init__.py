"""The private categories of the target: how many, and which sample is in which."""

from uniot.discovery.groups import PrivateGroups, private_groups

__all__ = ["PrivateGroups", "private_groups"]
