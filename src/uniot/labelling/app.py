"""The labelling page as a web application: what it answers to which request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from uniot.data.text import as_utf8
from uniot.errors import DataError, RunFolderError
from uniot.labelling.actions import Action, Number, PlaceText
from uniot.labelling.desk import Desk, Stale
from uniot.labelling.following import next_commands
from uniot.labelling.formats import Format
from uniot.labelling.geometry import Order
from uniot.labelling.guard import IMPORT, Access, Guard
from uniot.labelling.names import MOST_CHARACTERS
from uniot.labelling.thumbnails import Thumbnails
from uniot.labelling.views import gallery, overview, queue
from uniot.pictures import Collection

_HERE = Path(__file__).parent
_KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
MOST_QUEUED = 30
_A_DAY = "private, max-age=86400, immutable"


class Look(BaseModel):
    """A page of the gallery."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    place: PlaceText
    page: Annotated[int, Field(ge=0, le=1 << 31)] = 0
    order: Order = "typical"


class Write(BaseModel):
    """An action, the last one that the page had seen when it was asked for, and what the page shows then."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seen: Number
    action: Action
    look: Look | None = None


class Export(BaseModel):
    """A format to write what was decided in."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Format = "csv"


class Import(BaseModel):
    """Labels that were made elsewhere, as the text of a file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str


def create_app(desk: Desk, thumbnails: Thumbnails | None, access: Access) -> ASGIApp:
    """The application.

    Args:
        desk: the labels.
        thumbnails: None where the run has no pictures.
        access: what requests must show.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    _show_page(app, desk, thumbnails is not None)
    _show_pictures(app, thumbnails)
    _take_actions(app, desk)
    _explain_errors(app, desk)
    return Guard(app, access)


def _show_page(app: FastAPI, desk: Desk, has_pictures: bool) -> None:
    static = {path.name: path.read_bytes() for path in (_HERE / "static").iterdir() if path.suffix in _KINDS}
    templates = Environment(loader=FileSystemLoader(_HERE / "templates"), autoescape=True, undefined=StrictUndefined)
    page = templates.get_template("page.html")
    modules = sorted(name for name in static if name.endswith(".js"))
    about = {
        "run": as_utf8(desk.target.run.resolve().name),
        "unknown": desk.target.unknown,
        "pictures": has_pictures,
        # Pictures stay in the browser's cache; those of another run must have other addresses.
        "version": desk.target.digest[:12],
        "most_characters": MOST_CHARACTERS,
        "most_queued": MOST_QUEUED,
        "commands": [{"about": about, "command": command} for about, command in next_commands(desk.target.run)],
    }

    @app.get("/")
    def show_page() -> Response:
        return HTMLResponse(page.render(about=about, state=overview(desk), modules=modules))

    @app.get("/static/{name}")
    async def show_static(name: str) -> Response:
        if name not in static:
            return JSONResponse({"message": "There is no such file."}, 404)
        return Response(static[name], media_type=_KINDS[Path(name).suffix])

    @app.get("/state")
    def show_state() -> Response:
        return JSONResponse(overview(desk))

    @app.get("/queue")
    def show_queue(count: Annotated[int, Query(ge=1, le=MOST_QUEUED)] = MOST_QUEUED) -> Response:
        return JSONResponse(queue(desk, count))

    @app.get("/gallery")
    def show_gallery(look: Annotated[Look, Query()]) -> Response:
        return JSONResponse(gallery(desk, look.place, look.page, look.order))


def _show_pictures(app: FastAPI, thumbnails: Thumbnails | None) -> None:
    @app.get("/pictures/{collection}/{row}")
    def show_picture(collection: Collection, row: int) -> Response:
        return _picture(thumbnails.small if thumbnails else None, collection, row)

    @app.get("/pictures/{collection}/{row}/large")
    def show_large_picture(collection: Collection, row: int) -> Response:
        return _picture(thumbnails.large if thumbnails else None, collection, row)


def _take_actions(app: FastAPI, desk: Desk) -> None:
    @app.post("/actions")
    def act(write: Write) -> Response:
        with desk.at_rest():
            outcome = desk.act(write.action, write.seen)
            answer = {"message": outcome.message, "state": overview(desk)}
            # With the images in the same answer, the page waits once and not twice.
            if write.look is not None:
                place = desk.next_place(write.look.place, outcome.show)
                page = write.look.page if place == write.look.place else 0
                answer["view"] = gallery(desk, place, page, write.look.order)
            return JSONResponse(answer)

    @app.post("/export")
    def export(wanted: Export) -> Response:
        return JSONResponse({"message": desk.export(wanted.format).sentence()})

    @app.post(IMPORT)
    def import_labels(given: Import) -> Response:
        outcome = desk.import_labels(given.text)
        return JSONResponse({"message": outcome.message, "state": overview(desk)})


def _explain_errors(app: FastAPI, desk: Desk) -> None:
    """Every error is a sentence, for the page to show."""

    @app.exception_handler(Stale)
    def say_stale(request: Request, error: Exception) -> Response:
        return JSONResponse({"message": str(error), "state": overview(desk)}, 409)

    @app.exception_handler(DataError)
    def say_refused(request: Request, error: Exception) -> Response:
        return JSONResponse({"message": _sentence(error)}, 400)

    @app.exception_handler(RunFolderError)
    def say_not_saved(request: Request, error: Exception) -> Response:
        return JSONResponse({"message": _sentence(error)}, 507)

    @app.exception_handler(RequestValidationError)
    def say_malformed(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first: dict[str, Any] = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return JSONResponse({"message": f"The request is not understood ({where}: {first['msg']})."}, 422)

    @app.exception_handler(HTTPException)
    def say_wrong(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return JSONResponse({"message": f"The request is not understood ({error.detail})."}, error.status_code)


def _picture(draw: Callable[[Collection, int], bytes] | None, collection: Collection, row: int) -> Response:
    if draw is None:
        return JSONResponse({"message": "This run was made from embeddings and has no pictures."}, 404)
    try:
        jpeg = draw(collection, row)
    except DataError as error:
        return JSONResponse({"message": _sentence(error)}, 404)
    return Response(jpeg, media_type="image/jpeg", headers={"Cache-Control": _A_DAY})


def _sentence(error: Exception) -> str:
    text = str(error)
    return text[:1].upper() + text[1:]
