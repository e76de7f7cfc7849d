"""What uniot raises. Every message says what was expected, what came, and what to do."""

from __future__ import annotations


class UniotError(Exception):
    """Anything that uniot can name; the command line prints its message without a traceback."""


class DataError(UniotError, ValueError):
    """The data given cannot be used as it is."""


class SettingsError(UniotError, ValueError):
    """A setting is unknown, of the wrong type, or outside its range."""


class RunFolderError(UniotError, OSError):
    """A run folder is missing, incomplete, of another version, damaged, or cannot be written."""


class NumericalError(UniotError, ArithmeticError):
    """A computation left the range of numbers; the message names the step and the part."""


class RunInterrupted(UniotError):
    """A run was stopped on request; it can go on from where it is."""


class NotFittedError(UniotError, AttributeError):
    """An answer was asked of a model that has not been fitted."""


class UniotWarning(UserWarning):
    """The answers for a target may be unreliable; the message says why."""


class NumericalWarning(UserWarning):
    """A computation ended without the accuracy that was asked for."""


class UndefinedScoreWarning(UserWarning):
    """A score has no value on this data; the message says which rule stood in."""
