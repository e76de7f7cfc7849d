"""Methods of universal domain adaptation under one protocol."""

from uniot.methods.decision import Decision
from uniot.methods.method import Batch, Losses, Method, MethodInfo, MethodOptions
from uniot.methods.registry import METHODS, check_method, create_method, method_info, register
from uniot.methods.uniot import UniOTMethod
from uniot.methods.uniot_universal import UniversalMethod

__all__ = [
    "METHODS",
    "Batch",
    "Decision",
    "Losses",
    "Method",
    "MethodInfo",
    "MethodOptions",
    "UniOTMethod",
    "UniversalMethod",
    "check_method",
    "create_method",
    "method_info",
    "register",
]
