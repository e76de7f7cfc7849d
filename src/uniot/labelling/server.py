"""The server that runs the labelling page until Ctrl-C."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from uniot.annotations import FILE
from uniot.errors import RunFolderError, SettingsError
from uniot.labelling.app import create_app
from uniot.labelling.desk import Desk
from uniot.labelling.guard import Access, is_loopback
from uniot.labelling.publishing import Publisher
from uniot.labelling.store import Store, only_one_page
from uniot.labelling.target import Target
from uniot.labelling.thumbnails import FILE as THUMBNAILS
from uniot.labelling.thumbnails import Thumbnails
from uniot.model_files import load_model
from uniot.pictures import Pictures
from uniot.words import counted

_SECONDS_TO_END = 2


def serve(run: Path, *, host: str, port: int, allow_network: bool, on_ready: Callable[[str], None]) -> None:
    """Serves the labelling page of a run until the process is interrupted.

    Args:
        run: folder of a finished run.
        host: address to listen on.
        port: 0 for any that is free.
        allow_network: whether other machines may reach the page.
        on_ready: told the address, token and all, once a browser can open it.

    Raises:
        RunFolderError: the run cannot be labelled, or another page has it open.
        SettingsError: nothing can listen there, or other machines could reach it and may not.
    """
    if not is_loopback(host) and not allow_network:
        raise SettingsError(
            f"--host {host} would let other machines reach the page, with every picture on it. Add --allow-network if "
            "that is meant, or leave --host out; over ssh, `ssh -L` brings the page to you without it."
        )
    with ExitStack() as stack:
        model = load_model(run)
        target = Target.open(run)
        stack.enter_context(only_one_page(run))
        store = stack.enter_context(closing(Store(run / FILE, target.digest)))
        thumbnails = _thumbnails(run, target)
        if thumbnails is not None:
            stack.enter_context(closing(thumbnails))
        listening = stack.enter_context(listen(host, port))
        port = listening.getsockname()[1]
        access = Access.new(host, port)
        desk = Desk(target, store)
        stack.enter_context(Publisher(desk, model))
        app = create_app(desk, thumbnails, access)
        server = make_server(app)
        on_ready(f"http://{_in_address(host)}:{port}/?token={access.token}")
        # Ctrl-C ends the server first and arrives here when that is done.
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listening])


def make_server(app: ASGIApp) -> uvicorn.Server:
    """A server that says nothing unless something goes wrong, and takes no time to end."""
    settings = uvicorn.Config(
        app,
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_SECONDS_TO_END,
    )
    return uvicorn.Server(settings)


def _thumbnails(run: Path, target: Target) -> Thumbnails | None:
    pictures = Pictures.open(run)
    if pictures is None:
        return None
    if pictures.count("target") != len(target.names):
        raise RunFolderError(
            f"{run} has {counted(pictures.count('target'), 'picture')} for {counted(len(target.names), 'sample')}: "
            "it mixes files of two "
            "runs. Make the run again."
        )
    return Thumbnails(pictures, run / THUMBNAILS, target.digest)


def listen(host: str, port: int) -> socket.socket:
    """A socket that browsers can reach from now on; they wait until the server runs."""
    with ExitStack() as stack:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            listening = stack.enter_context(socket.socket(family, kind, protocol))
            if os.name == "posix":  # elsewhere it would let two servers listen on one port
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(128)
        except OSError as error:
            raise SettingsError(
                f"nothing can listen on {host}, port {port} ({error.strerror or error}). Give another --port or "
                "--host; without --port, one that is free is found."
            ) from None
        stack.pop_all()
    return listening


def _in_address(host: str) -> str:
    """How a browser calls what listens on a host; "every address" is no place to go to."""
    with suppress(ValueError):
        if ipaddress.ip_address(host).is_unspecified:
            return socket.gethostname()
    return f"[{host}]" if ":" in host else host
