"""Find faults of the collections themselves: source labels that look wrong, and near-duplicates."""

from uniot.data_quality.near_duplicates import NearDuplicates, near_duplicates
from uniot.data_quality.suspect_labels import SuspectLabels, suspect_labels

__all__ = ["NearDuplicates", "SuspectLabels", "near_duplicates", "suspect_labels"]
