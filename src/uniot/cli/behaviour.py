"""How commands behave that differs from typer's own ways."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup


class Interrupted(Exception):
    """Ctrl-C, before typer makes an exit code without words of it."""


class Command(TyperCommand):
    """A command whose help calls a flag by its name alone."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _with_plain_flags(super().get_params(ctx))


class Group(TyperGroup):
    """Commands of which any may be interrupted."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _with_plain_flags(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted from None


def _with_plain_flags(parameters: list[Any]) -> list[Any]:
    # A flag takes no value, so that the name of a type after it, <bool>, only misleads.
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters
