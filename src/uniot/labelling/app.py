"""The web application: requests of the page and their responses. Every error is a sentence for the page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query
from fastapi import Path as PathParameter
from fastapi import Request as HTTPRequest
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from uniot.annotations.selections import MOST_LETTERS
from uniot.errors import DataError, RunFolderError
from uniot.io.text import command
from uniot.labelling.actions import Action, CategoryText, NameText, Number, Request
from uniot.labelling.exporting import Format
from uniot.labelling.gallery import Order
from uniot.labelling.live_report import LiveReport
from uniot.labelling.names import MAX_NAME_LENGTH
from uniot.labelling.reading import MOST_SEARCH_LETTERS
from uniot.labelling.security import IMPORT_PATH, Access, SecurityMiddleware
from uniot.labelling.session import ConflictError, LabellingSession
from uniot.labelling.suspects import SuspectLabels
from uniot.labelling.words import words_for
from uniot.runs.pictures import Collection
from uniot.runs.run import Run
from uniot.runs.thumbnails import ThumbnailCache

MAX_QUEUE_LENGTH = 30

_FOLDER = Path(__file__).parent
_MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_CACHE_FOR_A_DAY = "private, max-age=86400, immutable"


ListText = Annotated[str, Field(max_length=MOST_LETTERS)]


class GalleryRequest(Request):
    """A request for a page of the gallery; `listed` is a selection to show in place of the category."""

    category: CategoryText
    page: Annotated[int, Field(ge=0, le=1 << 31)] = 0
    order: Order = "typical"
    search: Annotated[str, Field(max_length=MOST_SEARCH_LETTERS)] = ""
    everywhere: bool = False
    listed: ListText = ""


class QuestionRequest(Request):
    """A request for a question about a sample of a selection: the next one, or row `at`."""

    listed: ListText
    at: Number | None = None


class SourceLabelRequest(Request):
    """A request to save what a person says about the label of a source sample; no decision withdraws it."""

    row: Number
    decision: Literal["right", "changed", "dropped", ""]
    label: NameText = ""


class ActionRequest(Request):
    """A request to carry out an action.

    Attributes:
        seen: number of the last action that the page shows.
        action: to carry out.
        view: page of the gallery to return.
        questions: whether to return the next question.
        listed: selection that the next question is about; None for the samples whose answers say most.
    """

    seen: Number
    action: Action
    view: GalleryRequest | None = None
    questions: bool = False
    listed: QuestionRequest | None = None


class ExportRequest(Request):
    """A request to export the labels in a format."""

    format: Format = "csv"


class ImportRequest(Request):
    """A request to import the labels in the text of a file."""

    text: str


def create_app(
    session: LabellingSession,
    thumbnails: ThumbnailCache | None,
    access: Access,
    report: LiveReport | None = None,
    suspects: SuspectLabels | None = None,
) -> ASGIApp:
    """Return the web application.

    Args:
        session: labels to show and change.
        thumbnails: None if the run has no images.
        access: credentials that a request needs.
        report: the report of the run, which follows the labels; None to serve none.
        suspects: labels of the source that look wrong; None to serve none.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    n_suspects = 0 if suspects is None else len(suspects)
    _add_page(app, session, thumbnails, has_report=report is not None, n_suspects=n_suspects)
    if suspects is not None:
        _add_source_labels(app, suspects)
    if report is not None:
        _add_report(app, session, report)
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


def _add_page(
    app: FastAPI, session: LabellingSession, thumbnails: ThumbnailCache | None, *, has_report: bool, n_suspects: int
) -> None:
    static = {path.name: path.read_bytes() for path in (_FOLDER / "static").iterdir() if path.suffix in _MEDIA_TYPES}
    templates = Environment(loader=FileSystemLoader(_FOLDER / "templates"), autoescape=True, undefined=StrictUndefined)
    page = templates.get_template("page.html")
    modules = sorted(name for name in static if name.endswith(".js") and name != "drawing.js")
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
        "report": has_report,
        "suspects": n_suspects,
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

    @app.post("/questions")
    def show_listed_question(request: QuestionRequest) -> Response:
        return JSONResponse(session.question_view(request.listed, request.at))

    @app.get("/questions/following")
    def show_following(row: Annotated[int, Query(ge=0, le=1 << 31)]) -> Response:
        return JSONResponse({"rows": session.following_rows(row)})

    @app.get("/gallery")
    def show_gallery(view: Annotated[GalleryRequest, Query()]) -> Response:
        return JSONResponse(_gallery(session, view.category, view.page, view))

    # A selection may be too long for an address.
    @app.post("/gallery")
    def show_listed_gallery(view: GalleryRequest) -> Response:
        return JSONResponse(_gallery(session, view.category, view.page, view))


_DRAWING = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>Report</title>
<script type="module" src="/static/drawing.js"></script>
<link rel="icon" href="/static/icon.svg" type="image/svg+xml"></head>
<body><p>Drawing the report. It appears here as soon as it is ready.</p></body></html>
"""


def _add_report(app: FastAPI, session: LabellingSession, report: LiveReport) -> None:
    @app.get("/report")
    def show_report() -> Response:
        drawn = report.latest()
        if report.problem:
            return PlainTextResponse(f"{report.problem}\n", 503)
        if drawn is None:
            return HTMLResponse(_DRAWING)
        return HTMLResponse(drawn.page, headers={"Content-Security-Policy": drawn.policy})

    @app.get("/report/state")
    def show_report_state() -> Response:
        drawn = report.latest()
        ready = None if drawn is None else drawn.revision
        return JSONResponse({"ready": ready, "latest": session.revision, "problem": report.problem})


def _add_source_labels(app: FastAPI, suspects: SuspectLabels) -> None:
    @app.get("/source-labels")
    def show_source_labels() -> Response:
        return JSONResponse(suspects.view())

    @app.post("/source-labels")
    def decide_source_label(request: SourceLabelRequest) -> Response:
        message = suspects.decide(request.row, request.decision, request.label)
        return JSONResponse({"message": message, **suspects.view()})


def _gallery(session: LabellingSession, category: str, page: int, view: GalleryRequest) -> dict[str, Any]:
    return session.gallery(category, page, view.order, view.search, everywhere=view.everywhere, listed=view.listed)


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
                listed = request.listed
                answer["questions"] = (
                    session.question_view() if listed is None else session.question_view(listed.listed, listed.at)
                )
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
