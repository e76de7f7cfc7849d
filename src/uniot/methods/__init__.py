"""Methods of universal domain adaptation under one protocol."""

from uniot.methods.method import Batch, Losses, Method
from uniot.methods.uniot import UniOTMethod

__all__ = ["Batch", "Losses", "Method", "UniOTMethod"]
