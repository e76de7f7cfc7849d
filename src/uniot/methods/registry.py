"""Registry of all methods by name: those of this package, and those that installed packages add.

A new method of this package needs a file with its `INFO`, an import and an entry here. A method of another package
needs an entry point of the group "uniot.methods" that loads to its `MethodInfo`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import Any
from warnings import warn

from torch import nn

from uniot.config import Settings
from uniot.errors import PackageWarning, SettingsError
from uniot.methods import (
    ati,
    calibrated,
    clip_distill,
    cmu,
    color,
    dance,
    dann,
    dcc,
    deepjdot,
    glc,
    glc_plus,
    iwan,
    jumbot,
    lead,
    maths,
    mlnet,
    osbp,
    ovanet,
    pada,
    ppot,
    rtn,
    source_only,
    tasc,
    tnt,
    ts_pot,
    uan,
    unijdot,
    uniot,
    uniot_learners,
    uniot_variants,
)
from uniot.methods.base import Method, MethodInfo
from uniot.methods.unincm import method as unincm

_OF_TRAINING = (
    "steps",
    "batch_size",
    "queue_size",
    "feature_size",
    "input_norm",
    "learning_rate",
    "backbone_learning_rate",
    "momentum",
    "weight_decay",
    "checkpoint_every",
)

_ENTRY_POINTS = "uniot.methods"


class MethodRegistry(MutableMapping[str, MethodInfo]):
    """Methods by name. Installed packages are searched for methods when a method is first looked up."""

    def __init__(self, infos: Iterable[MethodInfo]) -> None:
        self._infos = {info.name: info for info in infos}
        self._packages: dict[str, str] = {}
        self._has_searched = False

    def __getitem__(self, name: str) -> MethodInfo:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __setitem__(self, name: str, info: MethodInfo) -> None:
        self._all()[name] = info

    def __delitem__(self, name: str) -> None:
        del self._all()[name]

    def package_of(self, name: str) -> str | None:
        """Return the installed package that a method comes from; None for a method of uniot or of `register`."""
        self._all()
        return self._packages.get(name)

    def _all(self) -> dict[str, MethodInfo]:
        if not self._has_searched:
            # Set before the search: a package may look up a method while it is imported.
            self._has_searched = True
            for entry in sorted(entry_points(group=_ENTRY_POINTS), key=lambda entry: entry.name):
                self._add(entry)
        return self._infos

    def _add(self, entry: EntryPoint) -> None:
        """Add the method of an entry point; warn if there is none, so that one package cannot break the others."""
        package = "an unknown package" if entry.dist is None else f"the package {entry.dist.name}"
        try:
            info = entry.load()
        except Exception as error:  # the import of a package may fail in any way
            problem, cure = f"cannot be imported ({type(error).__name__}: {error})", "Update or uninstall the package."
        else:
            if not isinstance(info, MethodInfo):
                problem, cure = f"loads to {info!r:.60}, expected a MethodInfo", "Its authors have to correct it."
            elif info.name != entry.name:
                problem = f"calls itself {info.name!r}"
                cure = "Its authors have to give the entry point and the MethodInfo the same name."
            elif info.name in self._infos:
                other = self._packages.get(info.name, "uniot")
                problem, cure = f"has a name that a method of {other} has already", "Its authors have to rename it."
            else:
                self._infos[info.name] = info
                if entry.dist is not None:
                    self._packages[info.name] = entry.dist.name
                return
        warn(f"the method {entry.name!r} of {package} is left out: it {problem}. {cure}", PackageWarning, stacklevel=2)


METHODS = MethodRegistry(
    (
        uniot.INFO,
        unincm.INFO,
        *unincm.INFOS,
        *uniot_variants.INFOS,
        *uniot_learners.INFOS,
        source_only.INFO,
        calibrated.INFO,
        clip_distill.INFO,
        clip_distill.ZERO_SHOT,
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
        maths.INFO,
        ovanet.INFO,
        deepjdot.INFO,
        jumbot.INFO,
        ts_pot.INFO,
        unijdot.INFO,
        mlnet.INFO,
        ppot.INFO,
        glc.INFO,
        glc_plus.INFO,
        lead.INFO,
        color.INFO,
        tasc.INFO,
    )
)


def register(info: MethodInfo) -> None:
    """Register a method by its name, for this process only.

    Raises:
        SettingsError: another method has this name.
    """
    if METHODS.get(info.name, info) is not info:
        raise SettingsError(f"there is a method called {info.name!r} already. Choose another name.")
    METHODS[info.name] = info


def method_info(name: str, package: str | None = None) -> MethodInfo:
    """Return the registry entry of a method.

    Args:
        name: of the method.
        package: that the method came from when a run was made; None for a method of uniot.

    Raises:
        SettingsError: there is no such method; the message names its package, or similar methods.
    """
    if name in METHODS:
        return METHODS[name]
    if package is not None:
        raise SettingsError(
            f"there is no method called {name!r}: it comes from the package {package}, which is not installed here. "
            f"Run `pip install {package}`."
        )
    alike = get_close_matches(name, METHODS, n=1)
    meant = f" Did you mean {alike[0]!r}?" if alike else ""
    known = [other for other, info in METHODS.items() if info.variant_of is None]
    raise SettingsError(
        f"there is no method called {name!r}.{meant} Choose one of {', '.join(known)}, or a variant of these: see "
        "`uniot methods --all`."
    )


def check_method(settings: Settings) -> None:
    """Raise an error for a method or an option that does not exist, before any work.

    Raises:
        SettingsError: which one, and what there is instead.
    """
    method_info(settings.method).options.checked(**settings.method_options)


def check_start(name: str, before: Method, *, trains: bool = True) -> None:
    """Raise an error if a method cannot continue from a finished run, before any work.

    Args:
        name: of the method.
        before: the method of the finished run.
        trains: whether a network is trained.

    Raises:
        SettingsError: the method cannot continue at all, or not from weights of that method.
    """
    info, instead = method_info(name), "Start from random weights: with --names on the command line, without `start` in"
    if not info.can_continue:
        raise SettingsError(
            f"{name} cannot continue from the weights of another run; only UniOT and UniNCM can. {instead} Python."
        )
    if (trains or not info.is_closed_form) and not isinstance(before.trained_part(), uniot.UniOTMethod):
        raise SettingsError(
            f"only UniOT and UniNCM continue from weights that UniOT trained, and this run is of "
            f"{before.settings.method}. {instead} Python."
        )


def resolved_settings(settings: Settings, n_target: int, *, trains: bool = True) -> Settings:
    """Return the settings with every value decided for a target, shared ones and the method's own.

    Args:
        settings: as given.
        n_target: samples of the target.
        trains: whether anything is trained; if not, there are no steps, and options of the training are left out.
    """
    info = method_info(settings.method)
    options = info.options.checked(**settings.method_options).resolved(n_target)
    own = options.model_dump(include=options.acting(trains=trains), exclude_none=True)
    changed: dict[str, object] = {"method_options": own}
    if not trains:
        changed["steps"] = 0
    return settings.resolved(n_target, info.learning_rate).model_copy(update=changed)


def hyperparameters(method: str, network: str = "none") -> dict[str, Any]:
    """Return the hyper-parameters that act for a method, with their defaults.

    Args:
        method: its name.
        network: network that is trained in front of the method; "none" for embeddings.

    Returns:
        Shared settings of the training that the method uses, then its own options.
    """
    info = method_info(method)
    trains = network != "none" or not info.is_closed_form
    # Embeddings have no backbone to train, and images are not scaled to a norm.
    absent = {"backbone_learning_rate"} if network == "none" else {"input_norm"}
    shared = [name for name in (*_OF_TRAINING, "store_target") if trains or name == "store_target"]
    own = info.options().acting(trains=trains)
    defaults = {name: Settings.model_fields[name].default for name in shared}
    defaults |= {name: field.default for name, field in info.options.model_fields.items() if name in own}
    return {name: value for name, value in defaults.items() if name not in info.idle | absent}


def create_method(settings: Settings, in_features: int, n_classes: int, backbone: nn.Module | None = None) -> Method:
    """Build a method with random weights.

    Args:
        settings: resolved settings; `method` and `method_options` decide which method it is.
        in_features: width of an embedding, or of the backbone's output.
        n_classes: source classes.
        backbone: maps inputs to embeddings; None if the inputs are embeddings.

    Returns:
        The method.
    """
    info = method_info(settings.method)
    return info.build(in_features, n_classes, settings, info.options.checked(**settings.method_options), backbone)
