"""The page in a browser: that it draws, answers a pointer and a finger, and asks nobody for anything."""

from __future__ import annotations

import csv
import io
from itertools import combinations
from pathlib import Path

import pytest

from uniot.io.csv_tables import dict_reader, escape_formulas
from uniot.report import write_report
from uniot.runs import Run

from report.looking import DIM, OPACITY, POINT, Looking  # isort: skip

pytestmark = pytest.mark.browser

HOSTILE = ("<script>window.broken = 1</script>", "</script><img src=x onerror='window.broken = 1'>", "mug \"',&amp;")
# Middles of the signs, and boxes of the names, in pixels of the screen.
SIGNS_AND_NAMES = """() => {
  const map = document.getElementById("map"), { xaxis, yaxis, _size: { l, t } } = map._fullLayout;
  const { left, top } = map.getBoundingClientRect();
  const place = (x, y) => [left + l + xaxis.d2p(x), top + t + yaxis.d2p(y)];
  const signs = map.data.flatMap((trace) => trace.x.map((x, i) => place(x, trace.y[i])));
  const names = [...document.querySelectorAll("#map-names span")].map((name) => {
    const box = name.getBoundingClientRect();
    return [box.left, box.top, box.right, box.bottom];
  });
  return [signs, names];
}"""


@pytest.fixture(scope="module")
def report(made_model, made_run) -> Path:
    model = made_model(classes=HOSTILE, oracle=True)
    names = [f"{HOSTILE[row % 3]} {row}" for row in range(len(model.target))]
    folder = made_run(model, pictures=True, names=names).folder
    return write_report(Run.open(folder)).page


def opened(page, report: Path) -> None:
    page.goto(report.as_uri())
    page.wait_for_selector("#detection .main-svg")


def test_the_page_draws_every_figure_without_a_request_or_a_complaint(chromium_page, report):
    opened(chromium_page, report)
    drawn = chromium_page.locator(".chart .main-svg").count()
    assert drawn >= 7
    assert chromium_page.locator("#map .points path").count() == 25 + 12
    assert chromium_page.evaluate("window.broken") is None
    shown = chromium_page.locator("#map-names span").all_text_contents()
    assert any(text.startswith("<script>window.broken") for text in shown)
    chromium_page.emulate_media(media="print")
    assert not chromium_page.locator(".bar").is_visible()


def test_pointing_at_a_sample_shows_its_picture_and_a_click_keeps_it(chromium_page, report):
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


def test_a_filter_keeps_the_source_of_its_class_and_the_view(chromium_page, report):
    look = Looking(chromium_page, report)
    chromium_page.get_by_role("button", name="Zoom in").click()
    chromium_page.get_by_label("Class or group").select_option("0")
    assert look.map("layout.xaxis.range") == pytest.approx([-0.756, 0.756])
    opacity = chromium_page.evaluate(OPACITY)
    of_source = {number: point[2] for number, point in enumerate(look.data["points"]) if not point[1]}
    assert {number for number in of_source if opacity[str(number)] > DIM} == {
        number for number, category in of_source.items() if category == 0
    }
    chromium_page.get_by_label("Lowest confidence").fill("0")
    # Samples of the source have no confidence.
    chromium_page.wait_for_function(
        """() => [...document.querySelectorAll("#map .trace.scatter")[1].querySelectorAll(".points path")]
          .every((sign) => sign.style.opacity < 0.1)"""
    )


@pytest.mark.slow
def test_a_link_to_a_gallery_that_a_filter_hides_brings_it_back(chromium_page, report):
    look = Looking(chromium_page, report)
    chromium_page.get_by_label("Class or group").select_option("known")
    assert not chromium_page.locator("#group-000").is_visible()
    chromium_page.locator('.proportions a[href="#group-000"]').click()
    assert chromium_page.locator("#group-000").is_visible()
    assert look.lit() == set(look.target_points)


@pytest.mark.slow
def test_a_lasso_selects_what_lies_in_it_and_is_shown(chromium_page, report):
    look = Looking(chromium_page, report)
    chromium_page.get_by_role("button", name="Lasso").click()
    place = chromium_page.evaluate(POINT, "unknown")
    chromium_page.mouse.move(place["x"] - 9, place["y"] - 9)
    chromium_page.mouse.down()
    for dx, dy in ((9, -9), (9, 9), (-9, 9), (-9, -8)):
        chromium_page.mouse.move(place["x"] + dx, place["y"] + dy, steps=5)
    chromium_page.mouse.up()
    selected = chromium_page.locator("#map-selected")
    selected.get_by_text("selected").wait_for()
    inside = [point for point in place["near"] if point in look.target_points]
    assert selected.inner_text() == f"{len(inside)} selected"
    with chromium_page.expect_download() as waiting:
        chromium_page.get_by_role("button", name="Download list").click()
    with Path(waiting.value.path()).open(encoding="utf-8", newline="") as file:
        listed = [row["path"] for row in csv.DictReader(file)]
    assert listed == [look.target_points[point].name for point in sorted(inside)]
    chromium_page.get_by_label("Class or group").select_option("known")
    assert selected.inner_text() == ""  # what a filter takes away is selected no more


def test_a_downloaded_list_has_no_formula_and_is_read_back(chromium_page, tmp_path, made_model, made_run):
    # Begins of formulas, texts that look like escaped ones, numbers, and control characters.
    begins = (
        "=HYPERLINK(1)",
        "+x",
        "-1",
        "-x",
        "@x",
        "'=x",
        "''-1.5",
        "\t=x",
        "a;=x",
        "\r",
        " =x",
        "＝x",
        "\x1b]0;t\x07=",
    )
    model = made_model(classes=("=cmd|x", "-1", "\u202e@x"))
    names = [f"{begins[row % len(begins)]}{'' if row < len(begins) else row}" for row in range(len(model.target))]
    folder = made_run(model, tmp_path / "run", names=names).folder
    Looking(chromium_page, write_report(Run.open(folder)).page)
    chromium_page.locator("#map-select-all").click()
    with chromium_page.expect_download() as waiting:
        chromium_page.get_by_role("button", name="Download list").click()
    text = Path(waiting.value.path()).read_bytes().decode("utf-8")
    rows = list(csv.reader(io.StringIO(text, newline="")))[1:]
    assert [row[0] for row in rows] == [escape_formulas(name) for name in names]
    assert {row[1] for row in rows} == {"'=cmd|x", "-1", "unknown"}
    assert [row["path"] for row in dict_reader(io.StringIO(text, newline=""))] == names
    assert (folder / "predictions.csv").read_text(encoding="utf-8").count("'=cmd|x") >= 9


@pytest.mark.slow
@pytest.mark.parametrize("width", [800, 1400])
def test_names_on_the_map_cover_no_point_and_no_other_name(real_reports, browsing, width):
    page = browsing.page(viewport={"width": width, "height": 900})
    Looking(page, real_reports.page("uniot"))
    for zoomed in (False, True):
        if zoomed:
            page.get_by_role("button", name="Zoom in").click()
        signs, names = page.evaluate(SIGNS_AND_NAMES)
        assert len(names) >= 3
        for left, top, right, bottom in names:
            assert not [1 for x, y in signs if left - 2 < x < right + 2 and top - 2 < y < bottom + 2]
        for (left, top, right, bottom), (start, above, end, below) in combinations(names, 2):
            assert right <= start or end <= left or bottom <= above or below <= top


@pytest.mark.slow
def test_the_page_fits_a_phone_and_a_tap_shows_a_sample(browsing, report):
    page = browsing.page(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    opened(page, report)
    place = page.evaluate(POINT, "unknown")
    page.touchscreen.tap(place["x"], place["y"])
    about = page.locator("#about")
    about.wait_for(state="visible")
    assert "Group" in about.inner_text()
    about.get_by_role("button", name="Close").tap()
    assert not about.is_visible()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["images", "source-only"])
def test_on_a_phone_nothing_sticks_out_and_what_scrolls_says_so(real_reports, browsing, name):
    page = browsing.page(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    Looking(page, real_reports.page(name))
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    for selector in (".bar nav", ".scroller:has(#similarity)"):
        box = page.locator(selector)
        assert box.get_attribute("data-more") == "right"
        assert box.evaluate("(one) => getComputedStyle(one).getPropertyValue('--right')") == "2.5rem"
        box.evaluate("(one) => one.scrollTo({ left: one.scrollWidth, behavior: 'instant' })")
        page.wait_for_function("(one) => one.dataset.more === 'left'", arg=box.element_handle())


@pytest.mark.slow
def test_paper_is_white(chromium_page, report):
    chromium_page.emulate_media(color_scheme="dark")
    opened(chromium_page, report)
    ink = "document.getElementById('map').layout.font.color"
    chromium_page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert chromium_page.evaluate(ink) == "#1c2329"
    chromium_page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert chromium_page.evaluate(ink) == "#e6eaed"


@pytest.mark.slow
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
