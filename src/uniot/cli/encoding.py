"""Every command prints wherever it is run: what a terminal or a pipe cannot encode is written in ASCII."""

from __future__ import annotations

import codecs
import sys

_HANDLER = "uniot-ascii"
# What commands print themselves. A name from the data that cannot be encoded is written as \u4e2d.
_IN_ASCII = {
    "±": "+-",
    "×": "x",
    "−": "-",
    "–": "-",
    "…": "...",
    "→": "->",
    "³": "^3",
    "₀": "0",
    "α": "alpha",
    "β": "beta",
    "γ": "gamma",
    "ε": "epsilon",
    "η": "eta",
    "κ": "kappa",
    "λ": "lambda",
    "μ": "mu",
    "ρ": "rho",
    "τ": "tau",
    "•": "*",
    "’": "'",
    "“": '"',
    "”": '"',
}


def print_anywhere() -> None:
    """Let standard output and standard error replace what their encoding does not have, instead of failing."""
    codecs.register_error(_HANDLER, _in_ascii)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is None:
            continue
        # With UTF-8 and surrogateescape, names of files come out byte by byte as they are.
        if stream.errors != "surrogateescape" or codecs.lookup(stream.encoding).name != "utf-8":
            reconfigure(errors=_HANDLER)


def _in_ascii(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end]
    written = (_IN_ASCII.get(one) or one.encode("ascii", "backslashreplace").decode("ascii") for one in letters)
    return "".join(written), error.end
