"""Every control of a report, with the function that uses it and checks what it does.

Each function leaves the page as it found it. `CONTROLS` is the list: an element that people can operate and that
matches none of its selectors is a control that no test drives.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from uniot.annotations.selections import rows_text

from report.looking import POINT, Looking  # isort: skip

# Where on the screen the highest value of a figure's largest line or bars is.
HIGHEST = """(chart) => {
  const { xaxis, yaxis, _size: { l, t } } = chart._fullLayout, box = chart.getBoundingClientRect();
  const points = chart.data.flatMap(({ x, y }) => y.map((value, i) => [x[i], value]));
  const [x, y] = points.reduce((best, point) => (point[1] > best[1] ? point : best));
  return [box.left + l + xaxis.d2p(x), box.top + t + yaxis.d2p(y)];
}"""


def skip_link(look: Looking) -> None:
    """The first stop of the Tab key leads past the navigation."""
    look.page.locator("a.skip").focus()
    look.page.keyboard.press("Enter")
    assert look.page.evaluate("location.hash") == "#summary"


def navigation(look: Looking) -> None:
    """Each entry leads to its section."""
    links = look.page.locator(".bar nav a")
    assert links.count() >= 5
    for link in links.all():
        look.follows(link)


def theme(look: Looking) -> None:
    """The button turns page and figures dark, and light again."""
    button, ink = look.page.locator("#theme"), "document.getElementById('similarity').layout.font.color"
    before = look.page.evaluate(ink)
    button.click()
    assert look.page.evaluate(ink) != before
    assert look.page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert look.map("layout.font.color") == look.page.evaluate(ink)
    button.click()
    assert look.page.evaluate(ink) == before


def proportions(look: Looking) -> None:
    """A piece of the bar leads to its gallery."""
    look.follows(look.page.locator(".proportions a[href]").last)


def filter_category(look: Looking) -> None:
    """One class or group, or all known, is what map and galleries show."""
    choice = look.page.locator("#filter-category")
    values = choice.locator("option").evaluate_all("(options) => options.map((option) => option.value)")
    assert len(values) >= 2
    for value in {values[1]: None, values[2 % len(values)]: None, values[-1]: None}:
        if value == "":
            continue
        choice.select_option(value)
        if value in ("known", "unknown"):
            wanted = {i for i, (_, _, known, _, _) in enumerate(look.data["categories"]) if known == (value == "known")}
        else:
            wanted = {int(value)}
        expected = {point for point, sample in look.target_points.items() if sample.category in wanted}
        assert look.lit() == expected
        shown = look.in_galleries()
        assert {look.samples[row].category for row in shown} == wanted
        assert look.counts() == (len(expected), len(shown))
    choice.select_option("")
    assert look.lit() == set(look.target_points)


def filter_confidence(look: Looking) -> None:
    """Only samples within the range are shown, those at its ends too."""
    ordered = sorted(sample.confidence for sample in look.target_points.values())
    low, high = round(ordered[len(ordered) // 4] - 0.005, 2), round(ordered[3 * len(ordered) // 4] - 0.005, 2)
    expected = set(look.target_points)
    for field, limit, keeps in (
        ("#filter-low", low, lambda confidence: confidence >= low),
        ("#filter-high", high, lambda confidence: confidence <= high),
    ):
        look.page.locator(field).fill(str(max(limit, 0)))
        expected = {point for point in expected if keeps(look.target_points[point].confidence)}
        look.expect_count(len(expected))
        assert look.lit() == expected
        assert all(keeps(look.samples[row].confidence) for row in look.in_galleries())
    look.page.locator("#filter-clear").click()
    assert look.page.locator("#filter-low").input_value() == ""


def filter_words(look: Looking) -> None:
    """A part of a file name, in capitals or not, and what matches nothing."""
    words = look.page.locator("#filter-words")
    sought = look.samples[look.in_galleries()[0]].name
    words.fill(sought.upper())
    expected = {point for point, sample in look.target_points.items() if sought in sample.name}
    look.expect_count(len(expected))
    assert look.lit() == expected
    assert {look.samples[row].name for row in look.in_galleries()} == {sought}
    words.fill("no such name")
    look.expect_count(0)
    assert look.in_galleries() == []
    assert look.page.locator(".nothing").first.is_visible()
    words.fill("")
    look.expect_count(len(look.target_points))


def filter_clear(look: Looking) -> None:
    """One click, and everything is shown again."""
    button = look.page.locator("#filter-clear")
    assert button.is_disabled()
    everything = len(look.in_galleries())
    look.page.locator("#filter-words").fill("no such name")
    look.expect_count(0)
    button.click()
    assert look.counts() == (len(look.target_points), everything)
    assert button.is_disabled()


def colour_by(look: Looking) -> None:
    """Confidence, or classes and groups."""
    choice, colours = look.page.locator("#map-colour"), "data.at(-1).marker.color"
    before = look.map(colours)
    choice.select_option("confidence")
    points = look.map("data.at(-1).customdata")
    # Amber for unknown, teal for known, the stronger the surer.
    samples = [look.target_points[point] for point in points]
    is_known = [look.data["categories"][sample.category][2] for sample in samples]
    pairs = zip(samples, is_known, strict=True)
    expected = [sample.confidence if known else 1 - sample.confidence for sample, known in pairs]
    assert look.map(colours) == pytest.approx(expected)
    choice.select_option("category")
    assert look.map(colours) == before


def colour_by_truth(look: Looking) -> None:
    """Wrong labels stand out, and every true class has one colour, which the key names."""
    choice, key = look.page.locator("#map-colour"), look.page.locator("#map-key li")
    if not choice.locator("option[value=truth]").count():
        return
    names = look.data["truth"]["names"]
    choice.select_option("truth")
    shown = look.page.evaluate(COLOURS)
    for point, sample in look.target_points.items():
        assert shown[str(point)] == look.data["truth"]["colours"][look.data["samples"][str(sample.row)][5]]
    assert [text.removesuffix(" *") for text in key.all_inner_texts()[: len(names)]] == names
    choice.select_option("right")
    shown = look.page.evaluate(COLOURS)
    for point, sample in look.target_points.items():
        true = names[look.data["samples"][str(sample.row)][5]]
        called = look.data["classes"][sample.nearest] if look.data["categories"][sample.category][2] else "unknown"
        is_right = called == (true if true in look.data["classes"] else "unknown")
        assert (shown[str(point)] == "#d1495b") == (not is_right)
    choice.select_option("category")
    assert not look.page.locator("#map-key").is_visible()


# Colour of each point of the map, by its number.
COLOURS = """() => Object.fromEntries(document.getElementById("map").data.flatMap(({ customdata, marker: { color } }) =>
  customdata.map((point, i) => [point, Array.isArray(color) ? color[i] : color])))"""


def colour_by_domain(look: Looking) -> None:
    """Source and target have one colour each."""
    choice = look.page.locator("#map-colour")
    choice.select_option("domain")
    shown = look.page.evaluate(COLOURS)
    of_target = {shown[str(point)] for point in look.target_points}
    others = {shade for point, shade in shown.items() if int(point) not in look.target_points}
    assert (len(of_target), of_target & others) == (1, set())
    assert look.page.locator("#map-key li").all_inner_texts() == ["source", "target"]
    choice.select_option("category")


def map_keys(look: Looking) -> None:
    """With the focus on the map, arrow keys move it, plus and minus zoom, and 0 shows all of it."""
    look.page.locator("#map-frame").focus()
    whole = look.map("layout.xaxis.range")
    look.page.keyboard.press("+")
    assert look.map("layout.xaxis.range")[1] < whole[1]
    look.page.keyboard.press("0")
    look.page.keyboard.press("ArrowRight")
    assert look.map("layout.xaxis.range")[0] > whole[0]
    look.page.keyboard.press("0")
    assert look.map("layout.xaxis.range") == pytest.approx(whole)


def first_links(look: Looking) -> None:
    """The largest and the least sure classes, and steps within the page, lead to where they are."""
    for link in look.page.locator(".panel a, #accuracy a").all():
        look.follows(link)


def commands(look: Looking) -> None:
    """The commands of the next steps can be copied."""
    look.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    button = look.page.locator(".copy").first
    button.click()
    look.page.locator(".copy", has_text="Copied").wait_for()
    copied = look.page.evaluate("navigator.clipboard.readText()")
    assert copied == look.page.locator(".command code").first.inner_text()
    assert copied.startswith("uniot ")


def zoom(look: Looking) -> None:
    """In, out, and back to the whole map."""
    view = "layout.xaxis.range"
    whole = look.map(view)
    look.page.locator("#map-in").click()
    assert look.map(view) == pytest.approx([0.7 * end for end in whole])
    look.page.locator("#map-out").click()
    look.page.locator("#map-out").click()
    assert look.map(view) == pytest.approx([end / 0.7 for end in whole])
    look.page.locator("#map-reset").click()
    assert look.map(view) == whole


def lasso(look: Looking) -> None:
    """Drawn around the whole map, it selects every sample of the target and none of the source."""
    button = look.page.locator("#map-lasso")
    button.click()
    assert look.map("_fullLayout.dragmode") == "lasso"
    look.page.locator("#map").scroll_into_view_if_needed()
    box = look.page.locator("#map .nsewdrag").first.bounding_box()
    left, top, right, bottom = box["x"] + 3, box["y"] + 3, box["x"] + box["width"] - 3, box["y"] + box["height"] - 3
    look.page.mouse.move(left, top)
    look.page.mouse.down()
    for x, y in ((right, top), (right, bottom), (left, bottom), (left, top + 2)):
        look.page.mouse.move(x, y, steps=4)
    look.page.mouse.up()
    count = f"{len(look.target_points)} selected"
    look.page.locator("#map-selected").get_by_text(count).wait_for()
    look.page.locator("#map-deselect").click()
    button.click()
    assert look.map("_fullLayout.dragmode") == "pan"


def select_and_download(look: Looking) -> None:
    """What is selected is the list, as predictions.csv has it; nothing stays selected once it is cleared."""
    download, clear = look.page.locator("#map-download"), look.page.locator("#map-deselect")
    assert download.is_disabled()
    assert clear.is_disabled()
    look.page.locator("#map-select-all").click()
    with look.page.expect_download() as waiting:
        download.click()
    assert waiting.value.suggested_filename == "selected.csv"
    with Path(waiting.value.path()).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["path", "label", "group", "confidence"]
    assert [row["path"] for row in rows] == [sample.name for sample in look.target_points.values()]
    for row, sample in zip(rows, look.target_points.values(), strict=True):
        _, _, known, index, _ = look.data["categories"][sample.category]
        assert row["label"] == (look.data["classes"][sample.nearest] if known else "unknown")
        assert row["group"] == ("" if known or index < 0 else str(index))
        assert float(row["confidence"]) == sample.confidence
    clear.click()
    assert look.page.locator("#map-selected").inner_text() == ""
    assert download.is_disabled()


def opened_command(look: Looking) -> str:
    """The command of the dialog, which is closed again."""
    look.page.locator("#acting-command").wait_for()
    command = look.page.locator("#acting-command").inner_text()
    look.page.locator("#acting-close").click()
    assert not look.page.locator("#acting").is_visible()
    return command


def label_selection(look: Looking) -> None:
    """What is selected on the map opens in the labelling page by a command, which is copied."""
    button, acting = look.page.locator("#map-label"), look.data["acting"]
    assert button.is_disabled()
    look.page.locator("#map-select-all").click()
    button.click()
    rows = rows_text(sample.row for sample in look.target_points.values())
    command = look.page.locator("#acting-command").inner_text()
    assert command == f"uniot label {acting['folder']} --open --select rows-{acting['digest']}:{rows}"
    look.page.locator("#acting-copy").click()
    said = look.page.locator("#acting-said")
    look.page.wait_for_function("() => document.getElementById('acting-said').value !== ''")
    # A page that was opened as a file may not use the clipboard; then the command is selected.
    selected = look.page.evaluate("getSelection().toString()").strip()
    assert said.inner_text().startswith("Copied") or selected == command
    assert not look.page.locator("#acting-open").is_visible()
    with look.page.expect_download() as waiting:
        look.page.locator("#acting-download").click()
    assert waiting.value.suggested_filename == "selected.csv"
    look.page.locator("#acting-close").click()
    look.page.locator("#map-deselect").click()


def label_lists(look: Looking) -> None:
    """A class, a group, the doubtful and the suspect labels open in the labelling page."""
    for button in look.page.locator(".act:not(.cell)").all():
        selection = button.get_attribute("data-selection")
        button.click()
        assert opened_command(look).endswith(f" --open --select {selection}")


def confusion_cells(look: Looking) -> None:
    """A number of the confusion matrix is so many samples, which are selected on the map."""
    for cell in look.page.locator(".cell").all():
        cell.click()
        look.page.locator("#acting-map").click()
        selected = look.page.evaluate("page.selectedRows()")
        assert len(selected) == int(cell.inner_text())
        assert rows_text(selected) == cell.get_attribute("data-rows")
        look.page.locator("#map-deselect").click()
        cell.click()
        assert opened_command(look).endswith(f":{cell.get_attribute('data-rows')}")


def one_sample(look: Looking) -> None:
    """A sample of the map opens in the labelling page, alone or with what is like it."""
    place = look.page.evaluate(POINT, look.map("data.at(-1).meta"))
    for button, wanted in (("#about-label", "rows-{digest}:{row}"), ("#about-like", "like-{row}")):
        look.page.mouse.click(place["x"], place["y"])
        look.page.locator("#about.pinned").wait_for(state="visible")
        name = look.page.locator("#about .name").inner_text()
        (row,) = [row for row, sample in look.samples.items() if sample.name == name]
        look.page.locator(button).click()
        assert opened_command(look).endswith(f" {wanted.format(digest=look.data['acting']['digest'], row=row)}")
        look.page.keyboard.press("Escape")
        place = look.page.evaluate(POINT, look.map("data.at(-1).meta"))


def map_legend(look: Looking) -> None:
    """Each kind of sign, and the names, can be taken from the map."""
    for box in look.page.locator("#map-kinds input").all():
        kind = box.get_attribute("value")
        box.uncheck()
        if kind == "names":
            assert look.page.locator("#map-names span").count() == 0
        else:
            assert look.map(f"data.find((one) => one.meta === '{kind}').visible") is False
        assert look.counts()[0] == len(look.lit())
        box.check()
    assert look.page.locator("#map-names span").count() >= 2
    assert look.lit() == set(look.target_points)


def map_points(look: Looking) -> None:
    """A point says what it is when it is pointed at; a click keeps that, with a link to the gallery."""
    about = look.page.locator("#about")
    for kind in look.map("data.map((one) => one.meta)"):
        place = look.page.evaluate(POINT, kind)
        look.page.mouse.move(place["x"] - 40, place["y"] - 40)
        look.page.mouse.move(place["x"], place["y"], steps=4)
        about.wait_for(state="visible")
        look.page.mouse.move(1, 1)
        about.wait_for(state="hidden")
        place = look.page.evaluate(POINT, kind)
        look.page.mouse.click(place["x"], place["y"])
        look.page.locator("#about.pinned").wait_for(state="visible")
        assert about.locator("strong").inner_text() in {look.name_of_point(point) for point in place["near"]}
        if about.locator("a").is_visible():
            look.follows(about.locator("a"))
            assert not about.is_visible()
            place = look.page.evaluate(POINT, kind)
            look.page.mouse.click(place["x"], place["y"])
        else:
            assert any(look.data["points"][point][2] < 0 for point in place["near"])  # an absent class has no gallery
        look.page.locator("#about-close").click()
        assert not about.is_visible()


def gallery_index(look: Looking) -> None:
    """Each name above the galleries leads to its own."""
    for link in look.page.locator("[data-index] a").all():
        look.follows(link)


def thumbnails(look: Looking) -> None:
    """They enlarge by mouse and key, show the file name, go on to their neighbours, and Escape closes."""
    dialog, name = look.page.locator("#large"), look.page.locator("#large-name")
    large = dialog.locator("img")
    of_samples = look.page.locator("li .enlarge")
    first, second = of_samples.nth(0), of_samples.nth(1)
    for button in (look.page.locator(".enlarge").first, first):
        button.click()
        assert dialog.is_visible()
        assert name.inner_text() == button.get_attribute("title")
        look.page.locator("#large-close").click()
        assert not dialog.is_visible()
    first.focus()
    look.page.keyboard.press("Enter")
    assert large.get_attribute("src") == first.locator("img").get_attribute("src")
    assert large.bounding_box()["width"] > 2 * first.bounding_box()["width"]
    look.page.locator("#large-next").click()
    assert name.inner_text() == second.get_attribute("title")
    look.page.locator("#large-previous").click()
    look.page.keyboard.press("ArrowRight")
    assert name.inner_text() == second.get_attribute("title")
    look.page.keyboard.press("Escape")
    assert not dialog.is_visible()
    assert second.evaluate("(button) => document.activeElement === button")
    second.click()
    look.page.locator("#large-like").click()
    row = second.locator("xpath=ancestor::li").get_attribute("data-row")
    assert opened_command(look).endswith(f" --select like-{row}")


def figure_legends(look: Looking) -> None:
    """An entry of a figure's legend takes its lines away, and brings them back."""
    for chart in look.page.locator(".chart:has(.legendtoggle)").all():
        hidden = "(chart) => chart.data.filter((trace) => trace.visible === 'legendonly').length"
        entry = chart.locator(".legendtoggle").first
        entry.click()
        look.page.wait_for_function(f"() => ({hidden})(document.getElementById('{chart.get_attribute('id')}')) > 0")
        entry.click()
        look.page.wait_for_function(f"() => ({hidden})(document.getElementById('{chart.get_attribute('id')}')) === 0")


def matrix_cells(look: Looking) -> None:
    """A cell says which class and sample it stands for."""
    about = look.page.locator("#about")
    for matrix in look.page.locator(".chart.wide").all():
        matrix.scroll_into_view_if_needed()
        box = matrix.locator(".nsewdrag").bounding_box()
        look.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 3, steps=3)
        about.wait_for(state="visible")
        heading, value = about.locator("strong").inner_text().rsplit(": ", 1)
        assert heading in look.data["classes"]
        assert float(value) >= -1
        look.page.mouse.move(1, 1)
        about.wait_for(state="hidden")


def curves(look: Looking) -> None:
    """Bars and lines say their value."""
    for chart in look.page.locator(".chart:not(.wide):not(#map)").all():
        chart.scroll_into_view_if_needed()
        x, y = chart.evaluate(HIGHEST)
        look.page.mouse.move(x - 30, y + 3)
        look.page.mouse.move(x, y + 3, steps=4)
        chart.locator(".hoverlayer text").first.wait_for(state="visible")
        look.page.mouse.move(1, 1)


def details(look: Looking) -> None:
    """They open and close."""
    for summary in look.page.locator("summary").all():
        box = summary.locator("..")
        summary.click()
        assert box.get_attribute("open") is not None
        summary.click()
        assert box.get_attribute("open") is None


def scrollers(look: Looking) -> None:
    """Tables and matrices that are too wide scroll by key."""
    size = look.page.viewport_size
    look.page.set_viewport_size({"width": 390, "height": 800})
    matrix = look.page.locator(".scroller:has(#similarity)")
    matrix.focus()
    look.page.keyboard.press("ArrowRight")
    look.page.wait_for_function("(box) => box.dataset.more.includes('left')", arg=matrix.element_handle())
    assert matrix.evaluate("(box) => box.scrollLeft") > 0
    look.page.set_viewport_size(size)


CONTROLS: dict[str, Callable[[Looking], object]] = {
    "a.skip": skip_link,
    ".bar nav a": navigation,
    "#theme": theme,
    ".proportions a": proportions,
    "#filter-category": filter_category,
    "#filter-low, #filter-high": filter_confidence,
    "#filter-words": filter_words,
    "#filter-clear": filter_clear,
    ".panel a, #accuracy a": first_links,
    ".copy, .command code": commands,
    "#map-colour": lambda look: [colour(look) for colour in (colour_by, colour_by_domain, colour_by_truth)],
    "#map-frame": map_keys,
    "#map-in, #map-out, #map-reset": zoom,
    "#map-lasso": lasso,
    "#map-select-all, #map-download, #map-deselect": select_and_download,
    "#map-kinds input": map_legend,
    "#map, #map .points path, #about-close, #about a": map_points,
    "[data-index] a": gallery_index,
    ".enlarge, #large-close, #large-previous, #large-next, #large-like": thumbnails,
    "#map-label, #acting-title, #acting-command, #acting-copy, #acting-open, #acting-download, #acting-close": (
        label_selection
    ),
    ".act:not(.cell)": label_lists,
    ".cell, #acting-map": confusion_cells,
    "#about-label, #about-like": one_sample,
    ".legendtoggle": figure_legends,
    ".chart.wide": matrix_cells,
    ".chart:not(.wide):not(#map)": curves,
    "summary": details,
    ".scroller[tabindex]": scrollers,
}
