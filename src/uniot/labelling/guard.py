"""Who may talk to the labelling page: only the browser that was given the address, and only from the page itself."""

from __future__ import annotations

import ipaddress
import secrets
import socket
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BODY_BYTES = 1 << 17
# A table with a label for each of a hundred thousand samples.
MOST_IMPORT_BYTES = 1 << 23
IMPORT = "/import"

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_LOOPBACK_NAMES = {"localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True)
class Access:
    """What a request must show.

    Attributes:
        token: what the address that was printed ends with.
        cookie: name of the cookie that keeps it; one for each port, because cookies know no ports.
        host: what the server listens on.
    """

    token: str
    cookie: str
    host: str

    @classmethod
    def new(cls, host: str, port: int) -> Access:
        """With a fresh token."""
        return cls(secrets.token_urlsafe(32), f"uniot-label-{port}", host)

    def admits_token(self, given: str | None) -> bool:
        """Whether this is the token; how long that takes does not tell how much of it was right."""
        return given is not None and secrets.compare_digest(given.encode(), self.token.encode())

    def admits_host(self, header: str | None) -> bool:
        """Whether the page was asked for by a name that is ours.

        A foreign site can let its own name point to this machine, and would then be the same origin; it cannot make
        a browser send another name than its own. A number for a name is never such a name.
        """
        try:
            name = urlsplit(f"//{header}").hostname if header else None
        except ValueError:
            return False
        if name is None:
            return False
        if is_loopback(self.host):
            return name in _LOOPBACK_NAMES or name == self.host
        return name in {*_LOOPBACK_NAMES, self.host.lower(), socket.gethostname().lower()} or _is_number(name)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    return host == "localhost" or (_is_number(host) and ipaddress.ip_address(host).is_loopback)


class Guard:
    """Checks every request before anything else sees it, and says on every answer what a browser may do with it.

    The token comes with the address once; a cookie keeps it from then on, and the address is replaced by one without.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        answer = self._refusal(scope) or self._redirection(scope)
        if answer is None and scope["method"] == "POST":
            most = MOST_IMPORT_BYTES if scope["path"] == IMPORT else MOST_BODY_BYTES
            body = await _read_body(receive, most)
            if body is None:
                answer = PlainTextResponse(f"A request may have {most} bytes at most.", 413)
            else:
                receive = _replay(body, receive)
        await (answer or self._app)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if len(headers.getlist("host")) != 1 or not self._access.admits_host(headers.get("host")):
            return _refused("This name is not one of this server's. Open the address that `uniot label` printed.")
        given = _token_in_address(scope)
        if given is None:
            given = Request(scope).cookies.get(self._access.cookie)
        if not self._access.admits_token(given):
            return _refused(
                "This page needs the token at the end of the address that `uniot label` printed. Open that address; "
                "each start of `uniot label` prints a new one."
            )
        if scope["path"] != "/" and headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return _refused("Another site asked for this.")
        if scope["method"] in ("GET", "HEAD"):
            return None
        if not _is_same_origin(headers):
            return _refused("Only the labelling page itself may change labels.")
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return PlainTextResponse("Give JSON.", 415)
        return None

    def _redirection(self, scope: Scope) -> Response | None:
        if _token_in_address(scope) is None:
            return None
        answer = RedirectResponse("/", status_code=303)
        answer.set_cookie(self._access.cookie, self._access.token, httponly=True, samesite="strict", path="/")
        return answer


def _refused(reason: str) -> Response:
    return PlainTextResponse(f"{reason}\n", 403)


def _token_in_address(scope: Scope) -> str | None:
    if scope["path"] != "/" or scope["method"] != "GET":
        return None
    given = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True).get("token")
    return None if given is None else given[0]


def _is_same_origin(headers: Headers) -> bool:
    """Whether a browser says that the page itself asks; a request without such words is not believed."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is None and site is None:
        return False
    if site is not None and site != "same-origin":
        return False
    return origin is None or (origin.startswith("http") and urlsplit(origin).netloc == headers["host"])


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def _read_body(receive: Receive, most: int) -> bytes | None:
    """The whole body; None where it is too large, of which no more is read than it takes to know."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return bytes(body)
        body += message.get("body", b"")
        if len(body) > most:
            return None
        if not message.get("more_body", False):
            return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    waiting = [body]

    async def again() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return again
