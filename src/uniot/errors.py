"""Errors and warnings of uniot. Every message gives what was expected, what came, and what to do."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


class UniotError(Exception):
    """Base class of uniot's errors; the command line prints the message without a traceback."""


class DataError(UniotError, ValueError):
    """The given data cannot be used."""


class MissingPackageError(DataError, ImportError):
    """An optional package that the data or an option needs is not installed."""


class SettingsError(UniotError, ValueError):
    """A setting is unknown, of the wrong type, or outside its range."""


class RunFolderError(UniotError, OSError):
    """A run folder is missing, incomplete, of another version, damaged, or cannot be written."""


class NumericalError(UniotError, ArithmeticError):
    """A computation produced NaN or infinity; the message names the step and the part."""


class RunInterrupted(UniotError):
    """A run was stopped on request; the same command resumes it."""


class NotFittedError(UniotError, AttributeError):
    """A prediction was requested from a model that has not been fitted."""


class UniotWarning(UserWarning):
    """The predictions for a target may be unreliable; the message gives the reason."""


class NumericalWarning(UserWarning):
    """A computation ended before it reached the requested accuracy."""


class UndefinedScoreWarning(UserWarning):
    """A score is undefined on this data; the message names the value that is used instead."""


class PackageWarning(UserWarning):
    """A method of an installed package cannot be used; the message gives the reason."""


def import_optional(name: str, extra: str, purpose: str) -> ModuleType:
    """Import a module of an optional package.

    Args:
        name: module to import, such as `pyarrow.parquet`.
        extra: extra of uniot that installs the package, as in `pip install 'uniot[extra]'`; empty for a package of the
            plain install.
        purpose: what the package is needed for; begins the error message, such as "reading Parquet files".

    Returns:
        The module.

    Raises:
        MissingPackageError: the module cannot be imported.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise missing_package(name, extra, purpose, error) from None


def missing_package(name: str, extra: str, purpose: str, error: Exception) -> MissingPackageError:
    """Return the error for a module that cannot be imported, with the command that installs its package."""
    package = name.partition(".")[0]
    reason = str(error).partition("\n")[0]
    install = f"uniot[{extra}]" if extra else "uniot"
    return MissingPackageError(
        f"{purpose} needs {package}, which cannot be imported ({reason}). Run `pip install '{install}'`."
    )
