"""The page in a browser: that it draws, answers a pointer and a finger, and asks nobody for anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from uniot.report import write_report

pytestmark = pytest.mark.browser

HOSTILE = ("<script>window.broken = 1</script>", "</script><img src=x onerror='window.broken = 1'>", "mug \"'&amp;")
# Where on the screen the loneliest point of a kind is, and which one that is.
POINT = """
(kind) => {
  const map = document.getElementById("map"), layout = map._fullLayout;
  map.scrollIntoView({ block: "center", behavior: "instant" });
  const box = map.getBoundingClientRect();
  const signs = map.data.filter((trace) => trace.mode === "markers");
  const points = signs.flatMap((trace) => trace.customdata.map((point, i) => ({
    kind: trace.meta,
    point,
    x: box.left + layout._size.l + layout.xaxis.d2p(trace.x[i]),
    y: box.top + layout._size.t + layout.yaxis.d2p(trace.y[i]),
  })));
  const apart = (one, other) => (one === other ? Infinity : Math.hypot(one.x - other.x, one.y - other.y));
  const room = (one) => Math.min(...points.map((other) => apart(one, other)));
  return points.filter((one) => one.kind === kind).reduce((best, one) => (room(one) > room(best) ? one : best));
}
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory, made_model, made_run, saved_run) -> Path:
    model = made_model(classes=HOSTILE, oracle=True)
    names = [f"{HOSTILE[row % 3]} {row}" for row in range(len(model.target))]
    folder = saved_run(tmp_path_factory.mktemp("runs") / "run", made_run(model, pictures=True, names=names))
    return write_report(folder).page


@pytest.fixture
def complaints(chromium_page, report) -> list[str]:
    """What the browser has to complain of, and every request but the page's own."""
    found: list[str] = []
    chromium_page.on("console", lambda message: found.append(f"{message.type}: {message.text}"))
    chromium_page.on("pageerror", lambda error: found.append(f"error: {error}"))
    chromium_page.on(
        "request",
        lambda request: (
            None
            if request.url == report.as_uri() or request.url.startswith(("data:", "blob:"))
            else found.append(f"request: {request.url}")
        ),
    )
    return found


def opened(page, report: Path) -> None:
    page.goto(report.as_uri())
    page.wait_for_selector("#detection .main-svg")


def test_the_page_draws_every_figure_without_a_request_or_a_complaint(chromium_page, report, complaints):
    opened(chromium_page, report)
    drawn = chromium_page.locator(".chart .main-svg").count()
    assert drawn >= 7
    assert chromium_page.locator("#map .points path").count() == 25 + 12
    assert chromium_page.evaluate("window.broken") is None
    shown = chromium_page.locator("#map .textpoint").all_text_contents()
    assert any(text.startswith("<script>window.broken") for text in shown)
    chromium_page.emulate_media(media="print")
    assert not chromium_page.locator(".bar").is_visible()
    assert complaints == []


def test_pointing_at_a_sample_shows_its_picture_and_a_click_keeps_it(chromium_page, report, complaints):
    opened(chromium_page, report)
    place = chromium_page.evaluate(POINT, "unknown")
    about = chromium_page.locator("#about")
    assert not about.is_visible()
    chromium_page.mouse.move(place["x"] - 40, place["y"] - 40)
    chromium_page.mouse.move(place["x"], place["y"], steps=4)
    about.get_by_text(f"{HOSTILE[place['point'] % 3]} {place['point']}", exact=True).wait_for(state="visible")
    assert about.inner_text().startswith("Group")
    grey = chromium_page.evaluate(
        "[...document.querySelector('#about canvas').getContext('2d').getImageData(72, 72, 1, 1).data]"
    )
    assert grey[3] == 255
    assert 30 < grey[0] < 230
    chromium_page.mouse.click(place["x"], place["y"])
    link = about.locator("a")
    link.wait_for(state="visible")
    assert link.get_attribute("href").startswith("#group-")
    chromium_page.keyboard.press("Escape")
    assert not about.is_visible()
    assert complaints == []


def test_controls_of_the_map_pick_out_a_class_and_a_kind(chromium_page, report, complaints):
    opened(chromium_page, report)
    opacity = "document.getElementById('map').data.find((one) => one.meta === 'known').marker.opacity"
    chromium_page.get_by_label("Show", exact=True).select_option("0")
    assert sorted(set(chromium_page.evaluate(opacity))) == [0.07, 1]
    chromium_page.get_by_role("button", name="Whole map").click()
    assert chromium_page.evaluate(opacity) == 0.95
    chromium_page.get_by_role("button", name="Zoom in").click()
    chromium_page.get_by_label("Colour by").select_option("confidence")
    view = "document.getElementById('map').layout.xaxis.range"
    assert chromium_page.evaluate(view) == pytest.approx([-0.756, 0.756])  # colours do not move the map
    chromium_page.get_by_role("button", name="Whole map").click()
    assert chromium_page.evaluate(view) == [-1.08, 1.08]
    colours = chromium_page.evaluate(opacity.replace("opacity", "color"))
    assert all(0.5 <= colour <= 1 for colour in colours)
    chromium_page.get_by_label("target, unknown").uncheck()
    assert chromium_page.locator("#map .points path").count() == 14 + 12
    assert complaints == []


def test_the_page_fits_a_phone_and_a_tap_shows_a_sample(chromium, report):
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    with chromium.new_context(**phone) as context:
        page = context.new_page()
        opened(page, report)
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        place = page.evaluate(POINT, "unknown")
        page.touchscreen.tap(place["x"], place["y"])
        about = page.locator("#about")
        about.wait_for(state="visible")
        assert "Group" in about.inner_text()
        about.get_by_role("button", name="Close").tap()
        assert not about.is_visible()


def test_light_and_dark_follow_the_system_and_the_button(chromium_page, report):
    chromium_page.emulate_media(color_scheme="dark")
    opened(chromium_page, report)
    colour = "getComputedStyle(document.body).backgroundColor"
    ink = "document.getElementById('losses').layout.font.color"
    assert chromium_page.evaluate(colour) == "rgb(18, 22, 26)"
    assert chromium_page.evaluate(ink) == "#e6eaed"
    chromium_page.get_by_role("button", name="Switch between light and dark").click()
    assert chromium_page.evaluate(colour) == "rgb(255, 255, 255)"
    assert chromium_page.evaluate(ink) == "#1c2329"
