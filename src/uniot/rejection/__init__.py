"""Known or unknown: a model whose prior is the rule of a method and whose data are a person's answers."""

from uniot.rejection.answers import CANNOT_TELL, UNKNOWN, Answers
from uniot.rejection.posterior import RejectionPosterior, TargetScores, fit_posterior
from uniot.rejection.private_share import (
    DoubleTilt,
    PrivateShare,
    best_bin_share,
    bootstrap_interval,
    class_shares,
    dedpul_share,
    fit_double_tilt,
    pulse_share,
)

__all__ = [
    "CANNOT_TELL",
    "UNKNOWN",
    "Answers",
    "DoubleTilt",
    "PrivateShare",
    "RejectionPosterior",
    "TargetScores",
    "best_bin_share",
    "bootstrap_interval",
    "class_shares",
    "dedpul_share",
    "fit_double_tilt",
    "fit_posterior",
    "pulse_share",
]
