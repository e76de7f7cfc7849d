"""Methods of universal domain adaptation under one protocol."""

from uniot.methods.base import Batch, Losses, Method, MethodInfo, MethodOptions
from uniot.methods.decision import Decision
from uniot.methods.registry import (
    METHODS,
    MethodRegistry,
    check_method,
    create_method,
    hyperparameters,
    method_info,
    register,
    resolved_settings,
)
from uniot.methods.unincm.method import UniNCMMethod
from uniot.methods.uniot import UniOTMethod

__all__ = [
    "METHODS",
    "Batch",
    "Decision",
    "Losses",
    "Method",
    "MethodInfo",
    "MethodOptions",
    "MethodRegistry",
    "UniNCMMethod",
    "UniOTMethod",
    "check_method",
    "create_method",
    "hyperparameters",
    "method_info",
    "register",
    "resolved_settings",
]
