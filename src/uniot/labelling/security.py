"""Control access to the page: host names, token, origin, size of requests, and security headers of responses."""

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

MAX_BODY_BYTES = 1 << 17
# A table with a label for each of a hundred thousand samples.
MAX_IMPORT_BYTES = 1 << 23
IMPORT_PATH = "/import"

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
    """The credentials that a request needs.

    Attributes:
        token: at the end of the printed address.
        cookie: name of the cookie that stores the token; it contains the port, because cookies are shared by ports.
        host: address that the server listens on.
    """

    token: str
    cookie: str
    host: str

    @classmethod
    def new(cls, host: str, port: int) -> Access:
        """Return credentials with a new random token."""
        return cls(secrets.token_urlsafe(32), f"uniot-label-{port}", host)

    def is_valid_token(self, given: str | None) -> bool:
        """Return whether this is the token; the comparison takes constant time."""
        return given is not None and secrets.compare_digest(given.encode(), self.token.encode())

    def is_valid_host(self, header: str | None) -> bool:
        """Return whether a Host header names this server, which prevents DNS rebinding.

        Another site can make its own name resolve to this machine and would then be the same origin, but it cannot make
        a browser send a different name. An IP address is never such a name.
        """
        try:
            name = urlsplit(f"//{header}").hostname if header else None
        except ValueError:
            return False
        if name is None:
            return False
        if is_loopback(self.host):
            return name in _LOOPBACK_NAMES or name == self.host
        return name in {*_LOOPBACK_NAMES, self.host.lower(), socket.gethostname().lower()} or _is_ip_address(name)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server that listens on this address."""
    return host == "localhost" or (_is_ip_address(host) and ipaddress.ip_address(host).is_loopback)


class SecurityMiddleware:
    """Checks every request and adds security headers to every response, as ASGI middleware.

    The first request has the token in its address; it is redirected to an address without it, and a cookie stores it.

    Args:
        app: application that gets the accepted requests.
        access: credentials that a request needs.
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

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                # The report has a policy of its own, which allows the scripts in it by their digests and no others.
                policy = headers.get("Content-Security-Policy", _HEADERS["Content-Security-Policy"])
                headers.update(_HEADERS | {"Content-Security-Policy": policy})
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        response = self._rejection(scope) or self._redirect(scope)
        if response is None and scope["method"] == "POST":
            limit = MAX_IMPORT_BYTES if scope["path"] == IMPORT_PATH else MAX_BODY_BYTES
            body = await _read_body(receive, limit)
            if body is None:
                response = PlainTextResponse(f"A request may have at most {limit} bytes. Import a smaller file.", 413)
            else:
                receive = _replay(body, receive)
        await (response or self._app)(scope, receive, send_with_headers)

    def _rejection(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if len(headers.getlist("host")) != 1 or not self._access.is_valid_host(headers.get("host")):
            return _forbidden(
                "This is not an address of the labelling page. Open the one that `uniot label` or `uniot ask` printed."
            )
        given = _token_in_address(scope)
        if given is None:
            given = Request(scope).cookies.get(self._access.cookie)
        if not self._access.is_valid_token(given):
            return _forbidden(
                "This page needs the token at the end of the address that `uniot label` or `uniot ask` printed. Open "
                "that address; each start prints a new one."
            )
        if scope["path"] != "/" and headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return _forbidden("Another website requested this page. Open the address that the command printed.")
        if scope["method"] in ("GET", "HEAD"):
            return None
        if not _is_same_origin(headers):
            return _forbidden("Only the labelling page itself can change labels. Open the address that was printed.")
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return PlainTextResponse("Send the request as JSON (Content-Type: application/json).", 415)
        return None

    def _redirect(self, scope: Scope) -> Response | None:
        if _token_in_address(scope) is None:
            return None
        response = RedirectResponse("/", status_code=303)
        response.set_cookie(self._access.cookie, self._access.token, httponly=True, samesite="strict", path="/")
        return response


def _forbidden(reason: str) -> Response:
    return PlainTextResponse(f"{reason}\n", 403)


def _token_in_address(scope: Scope) -> str | None:
    if scope["path"] != "/" or scope["method"] != "GET":
        return None
    given = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True).get("token")
    return None if given is None else given[0]


def _is_same_origin(headers: Headers) -> bool:
    """Return whether the headers that browsers set show that the page itself sent the request; False without them."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is None and site is None:
        return False
    if site is not None and site != "same-origin":
        return False
    return origin in (None, f"http://{headers['host']}", f"https://{headers['host']}")


def _is_ip_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def _read_body(receive: Receive, limit: int) -> bytes | None:
    """Return the whole body; None, without reading on, as soon as it exceeds the limit."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return bytes(body)
        body += message.get("body", b"")
        if len(body) > limit:
            return None
        if not message.get("more_body", False):
            return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    pending = [body]

    async def replayed() -> Message:
        if pending:
            return {"type": "http.request", "body": pending.pop(), "more_body": False}
        return await receive()

    return replayed
