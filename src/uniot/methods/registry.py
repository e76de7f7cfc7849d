"""Every method by name. Adding one takes a file with its `INFO`, and a line here."""

from __future__ import annotations

from difflib import get_close_matches

from torch import nn

from uniot.errors import SettingsError
from uniot.methods import (
    ati,
    cmu,
    dance,
    dann,
    dcc,
    iwan,
    osbp,
    ovanet,
    pada,
    rtn,
    source_only,
    tnt,
    uan,
    uniot,
    uniot_universal,
    uniot_universal_variants,
    uniot_variants,
)
from uniot.methods.method import Method, MethodInfo
from uniot.settings import Settings

METHODS: dict[str, MethodInfo] = {
    info.name: info
    for info in (
        uniot.INFO,
        uniot_universal.INFO,
        *uniot_universal_variants.INFOS,
        *uniot_variants.INFOS,
        source_only.INFO,
        dann.INFO,
        rtn.INFO,
        iwan.INFO,
        pada.INFO,
        ati.INFO,
        osbp.INFO,
        uan.INFO,
        cmu.INFO,
        dance.INFO,
        dcc.INFO,
        tnt.INFO,
        ovanet.INFO,
    )
}


def register(info: MethodInfo) -> None:
    """Makes a method of your own known by its name, for this process."""
    if info.name in METHODS and METHODS[info.name] is not info:
        raise SettingsError(f"there is a method called {info.name!r} already. Choose another name.")
    METHODS[info.name] = info


def method_info(name: str) -> MethodInfo:
    """What is known of a method."""
    if name not in METHODS:
        alike = get_close_matches(name, METHODS, n=1)
        meant = f" Did you mean {alike[0]!r}?" if alike else ""
        known = [other for other, info in METHODS.items() if info.variant_of is None]
        raise SettingsError(
            f"there is no method called {name!r}.{meant} Known are {', '.join(known)}, and variants of these: see "
            "`uniot methods --all`."
        )
    return METHODS[name]


def check_method(settings: Settings) -> None:
    """Refuse a method or an option of a method that does not exist, before any work.

    Raises:
        SettingsError: which one, and what there is instead.
    """
    method_info(settings.method).options.checked(**settings.method_options)


def create_method(settings: Settings, in_features: int, n_classes: int, backbone: nn.Module | None = None) -> Method:
    """A method with random weights.

    Args:
        settings: resolved settings; `method` and `method_options` decide which method it is.
        in_features: width of an embedding, or of the backbone's output.
        n_classes: source classes.
        backbone: from inputs to embeddings; nothing for embeddings.
    """
    info = method_info(settings.method)
    return info.build(in_features, n_classes, settings, info.options.checked(**settings.method_options), backbone)
