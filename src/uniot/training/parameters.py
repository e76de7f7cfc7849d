"""Constructor parameters of the estimators: which act for a method, and which names they had before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any

from uniot.errors import SettingsError
from uniot.methods.registry import hyperparameters

if TYPE_CHECKING:
    from uniot.training.model import AdaptedModel


def acting_parameters(method: str, network: str) -> dict[str, Any]:
    """Return the hyper-parameters that act, with their defaults; logger and augmentation are among them."""
    acting = hyperparameters(method, network)
    if "steps" in acting:
        acting["logger"] = None
    if network != "none":
        acting["augmentation"] = None
    return acting


def check_acting(method: str, network: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hyper-parameters that act; raise a SettingsError that lists them if one is given that does not."""
    if not isinstance(method, str):
        raise SettingsError(f"method is {method!r}. Give the name of a method; `uniot methods` lists them.")
    acting = acting_parameters(method, network)
    idle = [name for name in given if name not in acting]
    if idle:
        on = f" with network={network!r}" if network != "none" else ""
        raise SettingsError(
            f"{', '.join(idle)} {'does' if len(idle) == 1 else 'do'} nothing for the method {method!r}{on}. "
            f"Hyper-parameters that act are {', '.join(acting)}."
        )
    return acting


def values_of(model: AdaptedModel, names: Mapping[str, Any], method: str | None = None) -> dict[str, Any]:
    """Return the values that a model was fitted with, for names of settings and of the method's own options."""
    if method not in (None, model.settings.method):
        raise SettingsError(f"this is a run of {model.settings.method!r}. Open it with `uniot.load(folder)`.")
    values = model.settings.model_dump()
    values |= values.pop("method_options")
    return {name: values[name] for name in names if name in values}


def names_its_successor(init: Callable[..., None]) -> Callable[..., None]:
    """Return a constructor that rejects arguments of earlier versions by naming the class to use now."""

    @wraps(init)
    def checked(self: Any, **given: Any) -> None:
        for old in ("variant", "method"):
            if old in given:
                former = {"universal": "unincm", "paper": "uniot", "uniot-universal": "unincm"}
                method = former.get(given[old], given[old])
                use = {"uniot": "UniOT()", "unincm": "UniNCM()"}.get(method, f"UniDAClassifier({method!r})")
                raise SettingsError(f"UniOT({old}={given[old]!r}) is now {use}; UniOT is the paper's method alone.")
        if "method_options" in given:
            raise SettingsError("UniOT has no method_options. Give each as an argument, as in UniOT(epsilon=0.01).")
        init(self, **given)

    return checked


def keep_arguments(estimator: object, arguments: Mapping[str, Any]) -> None:
    """Set every argument of a constructor as an attribute of the same name, as scikit-learn requires."""
    for name in arguments.keys() - {"self", "__class__"}:
        setattr(estimator, name, arguments[name])
