"""Known or unknown: a model whose prior is the rule of a method and whose data are a person's answers."""

from uniot.rejection.answers import CANNOT_TELL, UNKNOWN, Answers
from uniot.rejection.posterior import RejectionPosterior, TargetScores, fit_posterior

__all__ = ["CANNOT_TELL", "UNKNOWN", "Answers", "RejectionPosterior", "TargetScores", "fit_posterior"]
