"""The page over HTTP: what it answers, and everything that it refuses."""

from __future__ import annotations

import asyncio
import io
import json
import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from PIL import Image
from starlette.responses import PlainTextResponse

from uniot.errors import SettingsError
from uniot.labelling.actions import MAX_ROWS
from uniot.labelling.security import MAX_BODY_BYTES, MAX_IMPORT_BYTES, Access, SecurityMiddleware
from uniot.labelling.server import listen, serve
from uniot.runs.pictures import Pictures
from uniot.runs.thumbnails import ThumbnailCache

PATHS = [
    "/",
    "/state",
    "/queue",
    "/gallery?category=group-0",
    "/static/page.js",
    "/pictures/target/0",
    "/pictures/target/0/large",
]
ACTION = {"seen": 0, "action": {"kind": "name", "group": 0, "name": "kettle"}}


def written(**changes) -> bytes:
    return json.dumps(ACTION | changes).encode()


def test_the_address_with_the_token_leads_to_one_without_and_a_cookie(untouched):
    answer = untouched.ask(f"/?token={untouched.access.token}", Cookie=None)
    assert (answer.status, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"{untouched.access.cookie}={untouched.access.token};")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    assert untouched.ask("/").status == 200


@pytest.mark.parametrize("path", [*PATHS, "/nothing", "/docs", "/openapi.json"])
def test_nothing_is_answered_without_the_token(untouched, path):
    for cookie in (
        None,
        "",
        f"{untouched.access.cookie}=wrong",
        f"{untouched.access.cookie}=",
        f"other={untouched.access.token}",
    ):
        answer = untouched.ask(path, Cookie=cookie)
        assert answer.status == 403
        assert "the address that `uniot label` or `uniot ask` printed" in answer.text


@pytest.mark.parametrize("token", ["", "wrong", "%C3%A9", "%00", "%FF"])
def test_a_wrong_token_in_the_address_is_refused_even_with_the_right_cookie(untouched, token):
    assert untouched.ask(f"/?token={token}").status == 403


@pytest.mark.parametrize("path", ["/state", "/queue", "/pictures/target/0", "/actions"])
def test_a_token_counts_in_the_address_of_the_page_alone(untouched, path):
    assert untouched.ask(f"{path}?token={untouched.access.token}", Cookie=None).status == 403


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "evil.example:80",
        "192.168.1.7",
        "0.0.0.0",
        "localhost.evil",
        "[::2]",
        "",
    ],
)
def test_a_name_that_only_points_here_is_refused(untouched, host):
    answer = untouched.ask("/state", Host=host)
    assert answer.status in (400, 403)
    assert b"groups" not in answer.body


@pytest.mark.parametrize(("hosts", "status"), [(["localhost"], 200), (["localhost", "evil.example"], 403), ([], 403)])
def test_a_request_has_one_name_of_the_host(hosts, status):
    access, answers = Access.new("127.0.0.1", 80), []
    cookie = f"{access.cookie}={access.token}".encode()
    headers = [(b"cookie", cookie), *((b"host", host.encode()) for host in hosts)]
    scope = {"type": "http", "method": "GET", "path": "/state", "query_string": b"", "headers": headers}

    async def send(message):
        answers.append(message)

    request = SecurityMiddleware(PlainTextResponse("the state"), access)(scope, None, send)
    # In a thread of its own: playwright keeps an event loop running in this one after browser tests.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, request).result()
    assert answers[0]["status"] == status


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:9999", "LOCALHOST", "[::1]:8000"])
def test_the_names_of_this_machine_are_right_whatever_port_a_tunnel_gives_them(untouched, host):
    assert untouched.ask("/state", Host=host).status == 200


def test_over_a_network_numbers_and_the_given_name_are_right_and_other_names_are_not():
    access = Access.new("studio.example", 80)
    for right in ("studio.example:80", "192.168.1.7:80", "[fe80::1]:80", "127.0.0.1", socket.gethostname()):
        assert access.is_valid_host(right)
    for wrong in ("evil.example", "studio.example.evil", "", None, "[", "192.168.1.7.evil.example"):
        assert not access.is_valid_host(wrong)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://["},
        {"Origin": "http://[::1"},
        {"Origin": "http://\x80"},
        {"Origin": None},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Origin": None, "Sec_Fetch_Site": "none"},
    ],
)
@pytest.mark.parametrize("path", ["/actions", "/export", "/import"])
def test_only_the_page_itself_may_change_labels(untouched, path, headers):
    assert untouched.ask(path, "POST", written(), **headers).status == 403
    assert untouched.session.revision == 0
    assert not (untouched.session.store.files.folder / "labels.csv").exists()


@pytest.mark.parametrize(
    "headers", [{}, {"Sec_Fetch_Site": "same-origin"}, {"Origin": None, "Sec_Fetch_Site": "same-origin"}]
)
def test_the_page_itself_may(served, headers):
    assert served.ask("/actions", "POST", written(), **headers).status == 200
    assert served.session.state.names == {0: "kettle"}


@pytest.mark.parametrize("path", PATHS[1:])
def test_another_site_cannot_even_look(untouched, path):
    for site in ("cross-site", "same-site"):
        assert untouched.ask(path, Sec_Fetch_Site=site).status == 403


@pytest.mark.parametrize(
    "kind", ["text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", None]
)
def test_what_a_form_could_send_is_refused(untouched, kind):
    assert untouched.ask("/actions", "POST", written(), Content_Type=kind).status == 415


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE"])
def test_there_are_no_other_methods(untouched, method):
    for path in ("/", "/actions", "/pictures/target/0"):
        answer = untouched.ask(
            path, method, Origin=f"http://127.0.0.1:{untouched.port}", Content_Type="application/json"
        )
        assert answer.status == 405


@pytest.mark.parametrize(
    ("path", "method", "headers"),
    [
        *((path, "GET", {}) for path in PATHS),
        ("/nothing", "GET", {}),
        ("/state", "GET", {"Cookie": None}),
        ("/state", "GET", {"Host": "evil.example"}),
        ("/gallery?category=nowhere", "GET", {}),
        ("/pictures/target/999", "GET", {}),
        ("/actions", "POST", {}),
        ("/actions", "POST", {"Origin": "http://evil.example"}),
        ("/actions", "PUT", {"Origin": None}),
    ],
)
def test_every_answer_says_what_a_browser_may_do_with_it(untouched, path, method, headers):
    answer = untouched.ask(path, method, b"{}" if method != "GET" else None, **headers).headers
    policy = answer["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer["x-content-type-options"] == "nosniff"
    assert answer["referrer-policy"] == "no-referrer"
    assert answer["cross-origin-resource-policy"] == "same-origin"
    assert not [name for name in answer if name.startswith("access-control")]
    assert "server" not in answer
    is_picture = answer.get("content-type") == "image/jpeg"
    assert answer["cache-control"] == ("private, max-age=86400, immutable" if is_picture else "no-store")


@pytest.mark.parametrize(
    "path", ["/docs", "/redoc", "/openapi.json", "/static", "/static/", "/pictures", "/labels.csv"]
)
def test_there_is_nothing_else(untouched, path):
    assert untouched.ask(path).status == 404


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/..%2fserver.py",
        "/static/%2e%2e/server.py",
        "/static/%2e%2e%2fserver.py",
        "/static/..%5cserver.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/page.js%00.css",
        "/../../../../etc/passwd",
        "//etc/passwd",
        "/pictures/target/../../etc/passwd",
        "/pictures/target/..%2f..%2fetc%2fpasswd",
        "/pictures/target/%2fetc%2fpasswd",
        "/pictures/target/-1",
        "/pictures/target/60",
        "/pictures/target/1e3",
        "/pictures/target/0x1",
        "/pictures/target/99999999999999999999999999",
        "/pictures/elsewhere/0",
        "/pictures/%2e%2e/0",
        "/pictures/file:%2f%2f/0",
    ],
)
def test_no_path_leads_to_a_file(untouched, path):
    answer = untouched.ask(path)
    assert answer.status in (400, 404, 422)
    assert b"root:" not in answer.body
    assert b"import" not in answer.body


def test_a_picture_that_became_a_link_is_not_followed(session, serve_session, tmp_path):
    files = [tmp_path / f"{row}.png" for row in range(60)]
    for file in files:
        Image.new("RGB", (8, 8), "red").save(file)
    secret = tmp_path / "secret.png"
    Image.new("RGB", (8, 8), "blue").save(secret)
    files[1].unlink()
    files[1].symlink_to(secret)
    files[2].unlink()
    places = [str(file) for file in files]
    places[3] = "/etc/passwd"
    pictures = Pictures({"source": [], "target": places}, {})
    with (
        closing(ThumbnailCache(pictures, tmp_path / "thumbnails.sqlite", "a run")) as thumbnails,
        serve_session(session, thumbnails) as served,
    ):
        assert served.ask("/pictures/target/0").status == 200
        for size in ("", "/large"):
            assert "has become a link" in served.ask(f"/pictures/target/1{size}").json["message"]
            assert "cannot be read" in served.ask(f"/pictures/target/2{size}").json["message"]
            assert served.ask(f"/pictures/target/3{size}").status == 404


def test_a_picture_is_a_jpeg_drawn_anew(untouched):
    answer = untouched.ask("/pictures/target/59")
    assert (answer.status, answer.headers["content-type"]) == (200, "image/jpeg")
    image = Image.open(io.BytesIO(answer.body))
    assert image.format == "JPEG"
    assert max(image.size) <= 160


def test_a_run_without_pictures_has_none(session, serve_session):
    with serve_session(session, None) as served:
        assert "has no images" in served.ask("/pictures/target/0").json["message"]
        assert '"pictures": false' in served.ask("/").text


def test_a_body_that_is_too_large_is_not_read(served):
    large = b" " * (MAX_BODY_BYTES + 1)
    assert served.ask("/actions", "POST", large).status == 413
    chunked = b"".join(b"10000\r\n" + b" " * 0x10000 + b"\r\n" for _ in range(3)) + b"0\r\n\r\n"
    assert served.ask("/actions", "POST", chunked, Transfer_Encoding="chunked").status == 413
    # A table of labels may be larger, and only a table of labels.
    assert served.ask("/import", "POST", large).status == 422
    assert served.ask("/import", "POST", b" " * (MAX_IMPORT_BYTES + 1)).status == 413
    assert served.ask("/import/", "POST", large).status == 413
    assert served.ask("/actions", "POST", written().ljust(MAX_BODY_BYTES)).status == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b'{"seen": 0}',
        written(seen=-1),
        written(seen="0"),
        written(seen=2**60),
        written(more=1),
        written(action={"kind": "format-disk"}),
        written(action={"kind": "name", "group": 0, "name": "x" * 1601}),
        written(action={"kind": "name", "group": 0.5, "name": "x"}),
        written(action={"kind": "name", "group": True, "name": "x"}),
        written(action={"kind": "move", "rows": [], "to": "discarded"}),
        written(action={"kind": "move", "rows": list(range(MAX_ROWS + 1)), "to": "discarded"}),
        written(action={"kind": "move", "rows": [-1], "to": "discarded"}),
        written(action={"kind": "move", "rows": ["0"], "to": "discarded"}),
        written(action={"kind": "move", "rows": "/etc/passwd", "to": "discarded"}),
        written(action={"kind": "move", "rows": [0], "to": "g" * 41}),
        b'{"seen": 0, "action": ' + b"[" * 20000 + b"]" * 20000 + b"}",
    ],
)
def test_what_is_not_understood_is_said_to_be_so(untouched, body):
    answer = untouched.ask("/actions", "POST", body)
    assert answer.status in (400, 422)
    assert answer.json["message"].startswith("The request is not valid")
    assert untouched.session.revision == 0


def test_an_action_answers_with_the_new_state(served):
    answer = served.act(kind="name", group=0, name="kettle").json
    assert answer["message"] == "Group 0 named “kettle”."
    assert answer["state"]["groups"][0]["name"] == "kettle"
    assert answer["state"]["progress"] == {"groups_named": 1, "groups": 3, "images_decided": 10, "images": 30}
    assert answer["state"]["undo"] == {"of": 1, "text": "group 0 named “kettle”"}


def test_a_page_that_is_behind_is_told_and_gets_the_present_state(served):
    served.act(kind="name", group=0, name="kettle")
    answer = served.act(seen=0, kind="name", group=0, name="lamp")
    assert answer.status == 409
    assert "has been changed in another tab" in answer.json["message"]
    assert answer.json["state"]["groups"][0]["name"] == "kettle"
    assert answer.json["state"]["revision"] == 1


def test_two_tabs_at_once_do_not_lose_an_action(served):
    """Each tries until it is not stale; every image that a tab moved is where it put it."""

    def work(rows):
        for row in rows:
            seen = served.ask("/state").json["revision"]
            while (answer := served.act(seen=seen, kind="move", rows=[row], to="group-1")).status == 409:
                seen = answer.json["state"]["revision"]
            assert answer.status == 200

    threads = [threading.Thread(target=work, args=(rows,)) for rows in (range(30, 38), range(50, 58))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert served.session.revision == 16
    assert served.session.state.members(1).tolist() == [*range(30, 38), *range(40, 50), *range(50, 58)]


def test_what_cannot_be_done_is_a_sentence(untouched):
    answer = untouched.act(kind="name", group=0, name="unknown")
    assert answer.status == 400
    assert answer.json["message"].startswith("“unknown” is the word of this run for images of no known class")
    assert untouched.ask("/gallery?category=group-9").json["message"].startswith("There is no group 9")


def test_what_cannot_be_saved_is_told(served, monkeypatch):
    monkeypatch.setattr(type(served.session.store), "check_unchanged", lambda self: (_ for _ in ()).throw(full_disk()))
    answer = served.act(kind="name", group=0, name="kettle")
    assert (answer.status, answer.json["message"]) == (507, "The disk is full.")
    assert served.session.state.names == {}


def full_disk():
    from uniot.errors import RunFolderError

    return RunFolderError("the disk is full.")


def test_a_gallery_comes_in_pages(new_target, open_session, serve_session, tmp_path):
    session = open_session(new_target(n_groups=1, each=130))
    with serve_session(session, None) as served:
        pages = [served.ask(f"/gallery?category=group-0&page={page}").json for page in (0, 1, 2, 9)]
        assert [len(page["samples"]) for page in pages] == [60, 60, 10, 10]
        rows = [sample["row"] for page in pages[:3] for sample in page["samples"]]
        assert sorted(rows) == list(range(390, 520))
        assert (pages[3]["page"], pages[3]["pages"], pages[3]["total"]) == (2, 3, 130)
        last = served.ask("/gallery?category=group-0&order=doubtful").json["samples"][0]
        assert last["row"] == rows[-1]
        for wrong in ("page=-1", "page=x", "order=random", "page=99999999999999"):
            assert served.ask(f"/gallery?category=group-0&{wrong}").status == 422


def test_the_gallery_tells_what_the_run_thought_and_what_is_similar(served):
    served.act(kind="move", rows=[0], to="group-0")
    page = served.ask("/gallery?category=group-0").json
    moved = next(sample for sample in page["samples"] if sample["row"] == 0)
    assert moved == {
        "row": 0,
        "name": "photos/000 é.jpg",
        "by_hand": True,
        "nearest": "mug",
        "known": True,
        "confidence": 0.9,
        "start": "mug",
    }
    assert {one["category"] for one in page["similar"]} == {"group-1", "group-2", "class-0", "class-1", "class-2"}


def test_names_cannot_break_out_of_the_page(new_target, open_session, serve_session, tmp_path):
    wicked = "</script><script>alert(1)</script><img src=x onerror=alert(1)>'\"&"
    run = tmp_path / "<b>run"
    run.mkdir()
    session = open_session(new_target(classes=[wicked, "pen"], n_groups=1), run)
    with serve_session(session, None) as served:
        assert served.act(kind="name", group=0, name=wicked + "2").status == 200
        page = served.ask("/").text
    assert "alert(1)" in page
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert "<b>run" not in page
    (state,) = re.findall(r'<script type="application/json" id="state">(.*?)</script>', page, re.DOTALL)
    assert json.loads(state)["groups"][0]["name"] == wicked + "2"


def test_export_writes_the_table_and_says_where(served):
    served.act(kind="name", group=1, name="kettle")
    answer = served.ask("/export", "POST", b"{}")
    assert answer.json["message"].endswith("labels.csv is written: 10 in new classes, 0 in known classes, 0 discarded.")
    assert len((served.session.store.files.folder / "labels.csv").read_text(encoding="utf-8").splitlines()) == 11


def test_other_machines_are_let_in_only_when_asked(tmp_path):
    for host in ("0.0.0.0", "192.168.1.7", "studio.example", "::"):
        with pytest.raises(
            SettingsError, match="would let other machines reach the page, with every picture on it. Add --allow"
        ):
            serve(tmp_path, host=host, port=0, allow_network=False, on_ready=lambda address: None)


def test_a_port_that_is_taken_is_told():
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=f"nothing can listen on 127.0.0.1, port {port}"):
            listen("127.0.0.1", port)


def test_the_images_to_show_come_with_the_answer(served):
    def looked_at(action, **look):
        body = json.dumps({"seen": served.session.revision, "action": action, "view": look}).encode()
        return served.ask("/actions", "POST", body).json["view"]

    moved = looked_at({"kind": "move", "rows": [30], "to": "discarded"}, category="group-0", order="doubtful")
    assert moved == served.ask("/gallery?category=group-0&order=doubtful").json
    assert (moved["total"], moved["revision"]) == (9, 1)
    assert (
        looked_at({"kind": "merge", "group": 0, "to": "group-1"}, category="group-0", page=3)["category"] == "group-1"
    )
    assert looked_at({"kind": "merge", "group": 1, "to": "discarded"}, category="group-1")["category"] == "group-2"
    assert looked_at({"kind": "merge", "group": 2, "to": "class-0"}, category="group-2")["category"] == "class-0"
    assert looked_at({"kind": "undo", "of": 4}, category="nowhere")["category"] == "group-2"
