"""The web application: requests of the page and their responses. Every error is a sentence for the page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query
from fastapi import Path as PathParameter
from fastapi import Request as HTTPRequest
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from uniot.errors import DataError, RunFolderError
from uniot.io.text import command
from uniot.labelling.actions import Action, CategoryText, Number, Request
from uniot.labelling.exporting import Format
from uniot.labelling.gallery import Order
from uniot.labelling.names import MAX_NAME_LENGTH
from uniot.labelling.reading import MOST_SEARCH_LETTERS
from uniot.labelling.security import IMPORT_PATH, Access, SecurityMiddleware
from uniot.labelling.session import ConflictError, LabellingSession
from uniot.labelling.words import words_for
from uniot.runs.pictures import Collection
from uniot.runs.run import Run
from uniot.runs.thumbnails import ThumbnailCache

MAX_QUEUE_LENGTH = 30

_FOLDER = Path(__file__).parent
_MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_CACHE_FOR_A_DAY = "private, max-age=86400, immutable"


class GalleryRequest(Request):
    """A request for a page of the gallery."""

    category: CategoryText
    page: Annotated[int, Field(ge=0, le=1 << 31)] = 0
    order: Order = "typical"
    search: Annotated[str, Field(max_length=MOST_SEARCH_LETTERS)] = ""
    everywhere: bool = False


class ActionRequest(Request):
    """A request to carry out an action.

    Attributes:
        seen: number of the last action that the page shows.
        action: to carry out.
        view: page of the gallery to return.
        questions: whether to return the next question.
    """

    seen: Number
    action: Action
    view: GalleryRequest | None = None
    questions: bool = False


class ExportRequest(Request):
    """A request to export the labels in a format."""

    format: Format = "csv"


class ImportRequest(Request):
    """A request to import the labels in the text of a file."""

    text: str


def create_app(session: LabellingSession, thumbnails: ThumbnailCache | None, access: Access) -> ASGIApp:
    """Return the web application.

    Args:
        session: labels to show and change.
        thumbnails: None if the run has no images.
        access: credentials that a request needs.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    _add_page(app, session, thumbnails)
    _add_pictures(app, thumbnails)
    _add_texts(app, session)
    _add_actions(app, session)
    _add_error_handlers(app, session)
    return SecurityMiddleware(app, access)


def next_commands(run: Path) -> list[tuple[str, str]]:
    """Return what can be done after labelling: pairs of a description and a command."""
    again = ("Adapt again, with the named groups as new classes", command("adapt", "--continue", run))
    report = ("Write the report, with the names of the groups", command("report", run))
    return [again, report] if Run.has_source(run) else [report]


def _add_page(app: FastAPI, session: LabellingSession, thumbnails: ThumbnailCache | None) -> None:
    static = {path.name: path.read_bytes() for path in (_FOLDER / "static").iterdir() if path.suffix in _MEDIA_TYPES}
    templates = Environment(loader=FileSystemLoader(_FOLDER / "templates"), autoescape=True, undefined=StrictUndefined)
    page = templates.get_template("page.html")
    modules = sorted(name for name in static if name.endswith(".js"))
    can_ask, texts = session.target.model is not None, session.target.texts
    about = {
        "run": session.store.files.title,
        "unknown": session.target.unknown,
        "pictures": thumbnails is not None,
        "source_pictures": thumbnails is not None and thumbnails.has_source,
        "texts": texts is not None,
        "links": texts is not None and texts.are_links,
        "words": asdict(words_for(session.target.noun)),
        "terms": session.kind_of_terms,
        "asks": can_ask,
        # Browsers cache pictures; the version gives those of another run other addresses.
        "version": session.target.digest[:12],
        "max_name_length": MAX_NAME_LENGTH,
        "max_queue_length": MAX_QUEUE_LENGTH,
        "max_search_length": MOST_SEARCH_LETTERS,
        "commands": [
            {"about": about, "command": command} for about, command in next_commands(session.store.files.folder)
        ],
    }

    @app.get("/")
    def show_page() -> Response:
        # Without an answer the share of unknown samples is a guess of the rule: the questions come first.
        opens_at = "questions" if can_ask and not session.has_answers else "groups"
        return HTMLResponse(
            page.render(about=about | {"opens_at": opens_at}, state=session.overview(), modules=modules)
        )

    @app.get("/static/{name}")
    async def show_static(name: str) -> Response:
        if name not in static:
            return JSONResponse({"message": "There is no such file. Reload the page."}, 404)
        return Response(static[name], media_type=_MEDIA_TYPES[Path(name).suffix])

    @app.get("/state")
    def show_state() -> Response:
        return JSONResponse(session.overview())

    @app.get("/queue")
    def show_queue(count: Annotated[int, Query(ge=1, le=MAX_QUEUE_LENGTH)] = MAX_QUEUE_LENGTH) -> Response:
        return JSONResponse(session.queue(count))

    @app.get("/questions")
    def show_question() -> Response:
        return JSONResponse(session.question_view())

    @app.get("/questions/following")
    def show_following(row: Annotated[int, Query(ge=0, le=1 << 31)]) -> Response:
        return JSONResponse({"rows": session.following_rows(row)})

    @app.get("/gallery")
    def show_gallery(view: Annotated[GalleryRequest, Query()]) -> Response:
        return JSONResponse(_gallery(session, view.category, view.page, view))


def _gallery(session: LabellingSession, category: str, page: int, view: GalleryRequest) -> dict[str, Any]:
    return session.gallery(category, page, view.order, view.search, everywhere=view.everywhere)


def _add_texts(app: FastAPI, session: LabellingSession) -> None:
    @app.get("/texts/{collection}/{row}")
    def show_text(collection: Collection, row: Annotated[int, PathParameter(ge=0, le=1 << 31)]) -> Response:
        return JSONResponse(session.whole_text(collection, row))


def _add_pictures(app: FastAPI, thumbnails: ThumbnailCache | None) -> None:
    @app.get("/pictures/{collection}/{row}")
    def show_thumbnail(collection: Collection, row: int) -> Response:
        return _picture(thumbnails.small if thumbnails else None, collection, row)

    @app.get("/pictures/{collection}/{row}/large")
    def show_large_picture(collection: Collection, row: int) -> Response:
        return _picture(thumbnails.large if thumbnails else None, collection, row)


def _picture(draw: Callable[[Collection, int], bytes] | None, collection: Collection, row: int) -> Response:
    if draw is None:
        return JSONResponse({"message": "This run was made from embeddings and has no images."}, 404)
    try:
        jpeg = draw(collection, row)
    except DataError as error:
        return JSONResponse({"message": _sentence(error)}, 404)
    return Response(jpeg, media_type="image/jpeg", headers={"Cache-Control": _CACHE_FOR_A_DAY})


def _add_actions(app: FastAPI, session: LabellingSession) -> None:
    @app.post("/actions")
    def act(request: ActionRequest) -> Response:
        with session.locked():
            outcome = session.act(request.action, request.seen)
            answer = {"message": outcome.message, "state": session.overview()}
            if request.questions:
                answer["questions"] = session.question_view()
            # With the gallery in the same response the page waits for one request instead of two.
            if request.view is not None:
                category = session.category_to_show(request.view.category, outcome.show)
                page = request.view.page if category == request.view.category else 0
                answer["view"] = _gallery(session, category, page, request.view)
            return JSONResponse(answer)

    @app.post("/export")
    def export(request: ExportRequest) -> Response:
        return JSONResponse({"message": session.export(request.format).sentence()})

    @app.post(IMPORT_PATH)
    def import_labels(request: ImportRequest) -> Response:
        outcome = session.import_labels(request.text)
        return JSONResponse({"message": outcome.message, "state": session.overview()})


def _add_error_handlers(app: FastAPI, session: LabellingSession) -> None:
    @app.exception_handler(ConflictError)
    def report_conflict(_: HTTPRequest, error: Exception) -> Response:
        return JSONResponse({"message": str(error), "state": session.overview()}, 409)

    @app.exception_handler(DataError)
    def report_invalid(_: HTTPRequest, error: Exception) -> Response:
        return JSONResponse({"message": _sentence(error)}, 400)

    @app.exception_handler(RunFolderError)
    def report_not_saved(_: HTTPRequest, error: Exception) -> Response:
        return JSONResponse({"message": _sentence(error)}, 507)

    @app.exception_handler(RequestValidationError)
    def report_malformed(_: HTTPRequest, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        return JSONResponse({"message": f"The request is not valid ({field}: {first['msg']}). Reload the page."}, 422)

    @app.exception_handler(HTTPException)
    def report_http_error(_: HTTPRequest, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        message = f"The request is not valid ({error.detail}). Reload the page."
        return JSONResponse({"message": message}, error.status_code)


def _sentence(error: Exception) -> str:
    text = str(error)
    return text[:1].upper() + text[1:]
