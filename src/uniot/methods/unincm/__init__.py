"""UniNCM: a metric, neighbourhoods of the target, and a rejection rule, in closed form."""

from uniot.methods.unincm.method import UniNCMMethod
from uniot.methods.unincm.options import UniNCMOptions

__all__ = ["UniNCMMethod", "UniNCMOptions"]
