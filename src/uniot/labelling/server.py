"""Run the web server of the labelling page until Ctrl-C."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from uniot.errors import SettingsError
from uniot.labelling.app import create_app
from uniot.labelling.live_report import LiveReport
from uniot.labelling.publishing import Publisher
from uniot.labelling.samples import TargetSamples
from uniot.labelling.security import Access, is_loopback
from uniot.labelling.session import LabellingSession
from uniot.labelling.store import LabelStore, label_lock
from uniot.labelling.suspects import SuspectLabels
from uniot.runs.run import Run
from uniot.runs.thumbnails import ThumbnailCache

_SECONDS_TO_END = 2


def serve(run: Path, *, host: str, port: int, allow_network: bool, on_ready: Callable[[str], None]) -> None:
    """Serve the labelling page of a run until the process is interrupted.

    Args:
        run: folder of a finished run.
        host: address to listen on.
        port: port to listen on; 0 for any free port.
        allow_network: whether other machines may reach the page.
        on_ready: called with the address, including the token, when a browser can open it.

    Raises:
        RunFolderError: the run cannot be labelled, or another page has it open.
        SettingsError: the address cannot be used, or other machines could reach it without `allow_network`.
    """
    if not is_loopback(host) and not allow_network:
        raise SettingsError(
            f"--host {host} would let other machines reach the page, with every picture on it. Add --allow-network if "
            "you want that, or leave --host out; over ssh, `ssh -L` forwards the page without it."
        )
    with ExitStack() as stack:
        opened = Run.open(run)
        target = TargetSamples.of_run(opened)
        stack.enter_context(label_lock(run))
        store = stack.enter_context(closing(LabelStore.of_run(opened, target.digest)))
        thumbnails = None
        if opened.pictures is not None:
            thumbnails = ThumbnailCache(opened.pictures, opened.files.thumbnails, target.digest)
            stack.enter_context(closing(thumbnails))
        listening = stack.enter_context(listen(host, port))
        port = listening.getsockname()[1]
        access = Access.new(host, port)
        session = LabellingSession(target, store)
        stack.enter_context(Publisher(session, opened.saved_model))
        app = create_app(session, thumbnails, access, LiveReport(opened, session), SuspectLabels(opened, target))
        server = make_server(app)
        on_ready(f"http://{_in_address(host)}:{port}/?token={access.token}")
        # Ctrl-C ends the server first, and is raised again here.
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listening])


def make_server(app: ASGIApp) -> uvicorn.Server:
    """Return a server that logs nothing but errors and shuts down quickly."""
    settings = uvicorn.Config(
        app,
        ws="none",
        log_level="warning",
        use_colors=False,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_SECONDS_TO_END,
    )
    return uvicorn.Server(settings)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; browsers that connect wait until the server runs.

    Raises:
        SettingsError: the address or port cannot be used.
    """
    with ExitStack() as stack:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            listening = stack.enter_context(socket.socket(family, kind, protocol))
            if os.name == "posix":  # on Windows it would let two servers listen on one port
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(128)
        except OSError as error:
            raise SettingsError(
                f"nothing can listen on {host}, port {port} ({error.strerror or error}). Give another --port or "
                "--host; without --port, a free one is chosen."
            ) from None
        stack.pop_all()
    return listening


def _in_address(host: str) -> str:
    """Return the host as it is written in a URL; the host name if the server listens on every address."""
    with suppress(ValueError):
        if ipaddress.ip_address(host).is_unspecified:
            return socket.gethostname()
    return f"[{host}]" if ":" in host else host
