"""Every control of the labelling page is driven, and the list of driven controls is complete."""

from __future__ import annotations

import json
import re

import pytest

from uniot.annotations.places import class_place

pytestmark = pytest.mark.browser

# By id; those of lists by the selector of the list. The test that drives each is in this folder.
DRIVEN = {
    "a.skip": "test_the_skip_link_leads_to_the_images",
    "#show-sidebar": "test_nothing_sticks_out",
    "#show-questions": "test_the_view_is_chosen_by_click_and_key_and_a_reload_keeps_it",
    "#show-groups": "test_the_view_is_chosen_by_click_and_key_and_a_reload_keeps_it",
    "#show-doubtful": "test_the_doubtful_are_answered_one_by_one_with_single_keys",
    "#list-all": "test_a_list_is_shown_all_together_and_one_by_one",
    "#list-asks": "test_a_list_is_shown_all_together_and_one_by_one",
    "#list-end": "test_a_list_is_shown_all_together_and_one_by_one",
    "#listed-following": "test_a_sample_is_left_for_later_or_chosen",
    "#pass": "test_a_sample_is_left_for_later_or_chosen",
    "#question-like": "test_more_like_this_from_a_question_a_tile_and_the_viewer",
    "#more-like": "test_more_like_this_from_a_question_a_tile_and_the_viewer",
    "#viewer-like": "test_more_like_this_from_a_question_a_tile_and_the_viewer",
    "#show-source": "test_suspect_labels_are_decided_with_single_keys",
    "#show-report": "test_the_report_follows_what_is_said_on_the_page",
    "#on-map": "test_a_selection_goes_from_the_page_to_the_report_and_back",
    "#nearest": "test_one_of_the_nearest_classes_is_chosen_by_click_and_by_number",
    "#answer-yes": "test_every_answer_can_be_clicked",
    "#answer-class": "test_every_answer_can_be_clicked",
    "#answer-none": "test_every_answer_can_be_clicked",
    "#answer-unsure": "test_every_answer_can_be_clicked",
    "#settled-groups": "test_the_page_says_when_more_answers_will_hardly_change_anything",
    "#settled-finish": "test_the_page_says_when_more_answers_will_hardly_change_anything",
    "#undo": "test_what_was_clicked_is_what_is_exported",
    "#redo": "test_what_was_clicked_is_what_is_exported",
    "#show-queue": "test_the_queue_labels_an_image_and_its_neighbours",
    "#show-finish": "test_what_was_clicked_is_what_is_exported",
    "#show-help": "test_help_opens_and_closes",
    "#groups": "test_what_was_clicked_is_what_is_exported",
    "#classes": "test_an_image_of_a_known_class_can_be_confirmed_discarded_and_put_back",
    "#aside": "test_an_image_of_a_known_class_can_be_confirmed_discarded_and_put_back",
    "#merge": "test_what_was_clicked_is_what_is_exported",
    "#group-class": "test_a_whole_group_is_split_named_a_class_or_discarded",
    "#split": "test_a_whole_group_is_split_named_a_class_or_discarded",
    "#discard-group": "test_a_whole_group_is_split_named_a_class_or_discarded",
    "#name": "test_what_was_clicked_is_what_is_exported",
    "#name-form button[type=submit]": "test_what_was_clicked_is_what_is_exported",
    "#next-unnamed": "test_after_a_name_the_next_group_comes",
    "#go-on": "test_after_a_name_the_next_group_comes",
    "#similar-list": "test_a_suggestion_merges_and_a_link_only_looks",
    "#search": "test_a_search_finds_texts_here_and_everywhere",
    "#everywhere": "test_a_search_finds_texts_here_and_everywhere",
    "#viewer-text": "test_a_text_is_shown_as_it_is_and_whole_if_it_is_opened",
    "#queue-shown": "test_a_text_is_shown_as_it_is_and_whole_if_it_is_opened",
    "#order": "test_order_and_size_of_the_images_can_be_chosen",
    "#size": "test_order_and_size_of_the_images_can_be_chosen",
    "#select-page": "test_pages_turn_and_a_reload_stays",
    "#previous-page": "test_pages_turn_and_a_reload_stays",
    "#next-page": "test_pages_turn_and_a_reload_stays",
    "#gallery": "test_images_are_dragged_to_a_group",
    "#move": "test_what_was_clicked_is_what_is_exported",
    "#selection-class": "test_what_was_clicked_is_what_is_exported",
    "#confirm": "test_an_image_of_a_known_class_can_be_confirmed_discarded_and_put_back",
    "#new-group": "test_selected_images_make_a_group_or_are_looked_at",
    "#put-back": "test_an_image_of_a_known_class_can_be_confirmed_discarded_and_put_back",
    "#discard": "test_what_was_clicked_is_what_is_exported",
    "#look": "test_selected_images_make_a_group_or_are_looked_at",
    "#clear": "test_selected_images_make_a_group_or_are_looked_at",
    "#picker-filter": "test_what_was_clicked_is_what_is_exported",
    "#picker-list": "test_what_was_clicked_is_what_is_exported",
    "#picker button[type=submit]": "test_a_whole_group_is_split_named_a_class_or_discarded",
    "#viewer-previous": "test_selected_images_make_a_group_or_are_looked_at",
    "#viewer-next": "test_selected_images_make_a_group_or_are_looked_at",
    "#viewer-select": "test_selected_images_make_a_group_or_are_looked_at",
    "#viewer button[type=submit]": "test_selected_images_make_a_group_or_are_looked_at",
    "#queue-label": "test_the_queue_labels_an_image_and_its_neighbours",
    "#queue-save": "test_the_queue_labels_an_image_and_its_neighbours",
    "#queue-skip": "test_an_image_of_the_queue_is_skipped_chosen_or_discarded",
    "#queue-discard": "test_an_image_of_the_queue_is_skipped_chosen_or_discarded",
    "#queue-list": "test_an_image_of_the_queue_is_skipped_chosen_or_discarded",
    "#queue-close": "test_an_image_of_the_queue_is_skipped_chosen_or_discarded",
    "#finish-commands": "test_finish_gives_the_next_command_to_copy",
    "#format": "test_labels_are_exported_for_other_tools",
    "#export": "test_labels_are_exported_for_other_tools",
    "#import-file": "test_labels_made_elsewhere_are_imported",
    "#finish-close": "test_finish_gives_the_next_command_to_copy",
    "#keys-on": "test_single_keys_can_be_switched_off",
    "#help button[type=submit]": "test_help_opens_and_closes",
}

# Their items are alike; one of them is driven.
LISTS = (
    "#nearest", "#groups", "#classes", "#aside", "#similar-list", "#gallery", "#picker-list", "#queue-list",
    "#finish-commands", "#listed-following",
)  # fmt: skip
UNDRIVEN = """([driven, lists]) => {
  const found = document.querySelectorAll(
    "a[href], button, input, select, textarea, summary, [tabindex='0'], [role=option], [role=button], " +
    "[contenteditable], [draggable=true]");
  return [...found]
    .filter((one) => !driven.some((selector) => one.matches(selector)))
    .filter((one) => !lists.some((selector) => one.closest(selector)))
    .map((one) => one.outerHTML.slice(0, 120));
}"""


@pytest.fixture
def expect():
    from playwright.sync_api import expect

    return expect


@pytest.fixture
def page(served, browsing, expect):
    page = browsing.page(permissions=["clipboard-read", "clipboard-write"])
    page.goto(served.address)
    expect(page.locator(".tile")).to_have_count(10)
    return page


def test_every_interactive_element_is_driven_by_a_test(page, expect):
    page.locator("#sample-30").click()
    page.keyboard.press("m")
    page.keyboard.press("Escape")
    page.keyboard.press("l")
    expect(page.locator("#queue-list li").first).to_be_visible()
    assert page.evaluate(UNDRIVEN, [list(DRIVEN), LISTS]) == []
    assert set(LISTS) <= set(DRIVEN)
    assert [selector for selector in DRIVEN if page.locator(selector).count() == 0] == []


def test_every_test_that_the_list_names_drives_its_control():
    from pathlib import Path

    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    assert [name for name in DRIVEN.values() if f"def {name}(" not in tests] == []


@pytest.mark.slow
def test_the_skip_link_leads_to_the_images(page, expect):
    page.locator("a.skip").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".tile:focus")).to_have_count(1)


@pytest.mark.slow
def test_help_opens_and_closes(page, expect):
    page.locator("#show-help").click()
    expect(page.locator("#help")).to_be_visible()
    page.locator("#help").get_by_role("button", name="Close").click()
    expect(page.locator("#help")).to_be_hidden()


@pytest.mark.slow
def test_a_whole_group_is_split_named_a_class_or_discarded(page, served, expect):
    message = page.locator("#message")
    page.locator("#split").click()
    expect(message).to_contain_text("Group 0 split: ")
    page.locator("#group-class").click()
    page.locator("#picker").get_by_role("button", name="Cancel").click()
    expect(page.locator("#picker")).to_be_hidden()
    page.locator("#group-class").click()
    page.get_by_role("option", name=re.compile("stapler")).click()
    expect(message).to_contain_text("marked as class “stapler”")
    page.locator("#groups").get_by_role("link", name="Group 1").click()
    expect(page.locator("#title")).to_have_text("Group 1")
    page.locator("#discard-group").click()
    expect(message).to_have_text("Group 1 with its 10 images discarded.")
    assert served.session.state.sizes()[-1] == 10


@pytest.mark.slow
def test_selected_images_make_a_group_or_are_looked_at(page, served, expect):
    first, second = (page.locator(".tile").nth(number) for number in (0, 1))
    first.click()
    page.locator("#look").click()
    expect(page.locator("#viewer-select")).to_have_text("Unselect")
    page.locator("#viewer-next").click()
    page.locator("#viewer-select").click()
    expect(page.locator("#viewer-select")).to_have_text("Unselect")
    page.locator("#viewer-previous").click()
    expect(page.locator("#viewer-title")).to_have_text(first.get_attribute("title"))
    page.locator("#viewer").get_by_role("button", name="Close").click()
    expect(page.locator("#selected-text")).to_have_text("2 selected")
    page.locator("#clear").click()
    expect(page.locator("#selection")).to_be_hidden()
    first.click()
    second.click()
    page.locator("#new-group").click()
    expect(page.locator("#message")).to_have_text("2 images moved to new group 3.")
    assert len(served.session.state.members(3)) == 2


@pytest.mark.slow
def test_order_and_size_of_the_images_can_be_chosen(page, expect):
    order = [tile.get_attribute("id") for tile in page.locator(".tile").all()]
    page.locator("#order").select_option("doubtful")
    expect(page.locator(".tile").first).to_have_id(order[-1])
    widths = {}
    for size in ("small", "medium", "large"):
        page.locator("#size").select_option(size)
        widths[size] = page.locator(".tile").first.bounding_box()["width"]
    assert widths["small"] < widths["medium"] < widths["large"]
    page.reload()
    expect(page.locator("#size")).to_have_value("large")
    assert page.locator(".tile").first.bounding_box()["width"] == pytest.approx(widths["large"], abs=1)


@pytest.mark.slow
def test_after_a_name_the_next_group_comes(page, expect):
    page.get_by_label("Name of this group").fill("kettle")
    page.get_by_role("button", name="Save name").click()
    expect(page.locator("#title")).to_have_text("Group 1")
    expect(page.locator("#message")).to_have_text("Group 0 named “kettle”.")
    expect(page.locator("#name")).to_be_focused()
    page.locator("#next-unnamed").click()
    expect(page.locator("#title")).to_have_text("Group 2")
    page.locator("#go-on").uncheck()
    page.get_by_label("Name of this group").fill("lamp")
    page.keyboard.press("Enter")
    expect(page.locator("#title")).to_have_text("Group 2: lamp")
    page.locator("#go-on").check()
    page.locator("#next-unnamed").click()
    expect(page.locator("#title")).to_have_text("Group 1")
    page.keyboard.type("ruler")
    page.keyboard.press("Enter")
    expect(page.locator("#message")).to_have_text(
        "Group 1 named “ruler”. Every group has a name. Choose Finish to see the next steps."
    )
    expect(page.locator("#show-finish")).to_be_focused()


@pytest.mark.slow
def test_images_are_dragged_to_a_group(page, served, expect):
    target = page.locator("#groups").get_by_role("link", name="Group 2")
    page.locator("#sample-31").drag_to(target)
    expect(page.locator("#message")).to_have_text("1 image moved to group 2.")
    page.locator("#sample-32").click()
    page.locator("#sample-33").click()
    page.locator("#sample-33").drag_to(page.locator("#classes").get_by_role("link", name="pen"))
    expect(page.locator("#message")).to_have_text("2 images marked as class “pen”.")
    # An image that is not selected is dragged alone.
    page.locator("#sample-34").click()
    page.locator("#sample-35").drag_to(page.locator("#aside").get_by_role("link", name="Discarded"))
    expect(page.locator("#message")).to_have_text("1 image discarded.")
    labels = served.session.state
    assert labels.category[[31, 32, 33, 34, 35]].tolist() == [2, class_place(1), class_place(1), 0, -1]


@pytest.mark.slow
def test_the_queue_labels_an_image_and_its_neighbours(page, served, expect):
    page.locator("#show-queue").click()
    gain = page.locator("#queue-gain")
    expect(gain).to_have_text(re.compile(r"Its label will probably fit about \d+ other images?\."))
    expect(page.locator("#queue-guess")).to_have_text(
        re.compile(r"Guess: unknown \(group \d\), confidence 0\.80; most similar known class: mug\.")
    )
    expect(page.locator("#queue-label")).to_be_focused()
    asked = page.locator("#queue-name").inner_text()
    row = served.session.target.names.index(asked)
    assert served.session.target.start[row] >= 0  # a group without a name is what is most open
    page.locator("#queue-label").fill("kettle")
    page.locator("#queue-save").click()
    expect(page.locator("#queue-text")).to_have_text(
        re.compile(r"1 image labelled “kettle”; \d+ similar images moved with it\.")
    )
    named = next(group for group, name in served.session.state.names.items() if name == "kettle")
    group = int(served.session.target.start[row])
    same = served.session.target.start == group
    assert (served.session.state.category[same] == named).all()
    assert not (served.session.state.category[~same] == named).any()
    assert served.session.state.by_hand.sum() == 1
    expect(page.locator("#queue-name")).not_to_have_text(asked)
    page.keyboard.press("Enter")  # nothing typed
    expect(page.locator("#queue-text")).to_have_text("Type a label, or skip it.")


@pytest.mark.slow
def test_an_image_of_the_queue_is_skipped_chosen_or_discarded(page, served, expect):
    page.locator("#show-queue").click()
    name = page.locator("#queue-name")
    expect(name).not_to_be_empty()
    first = name.inner_text()
    page.locator("#queue-skip").click()
    expect(name).not_to_have_text(first)
    third = page.locator("#queue-list button").nth(2)
    third.click()
    expect(third).to_have_attribute("aria-pressed", "true")
    chosen = name.inner_text()
    page.locator("#queue-discard").click()
    expect(page.locator("#queue-text")).to_have_text("1 image discarded.")
    assert served.session.state.members(-1).tolist() == [served.session.target.names.index(chosen)]
    page.locator("#queue-close").click()
    expect(page.locator("#queue")).to_be_hidden()


def test_finish_gives_the_next_command_to_copy(page, served, expect):
    page.get_by_label("Name of this group").fill("kettle")
    page.keyboard.press("Enter")
    expect(page.locator("#message")).to_have_text("Group 0 named “kettle”.")
    page.locator("#show-finish").click()
    expect(page.locator("#finish-text")).to_contain_text("labels.csv is written: 10 in new classes")
    page.locator("#finish-commands button").first.click()
    expect(page.locator("#finish-text")).to_have_text("Copied. Paste it into your terminal.")
    command = page.evaluate("navigator.clipboard.readText()")
    assert command == f"uniot adapt --continue {served.session.store.files.folder}"
    page.locator("#finish-close").click()
    expect(page.locator("#finish")).to_be_hidden()


@pytest.mark.slow
def test_labels_are_exported_for_other_tools(page, served, expect):
    page.get_by_label("Name of this group").fill("kettle")
    page.keyboard.press("Enter")
    expect(page.locator("#message")).to_have_text("Group 0 named “kettle”.")
    page.locator("#show-finish").click()
    page.locator("#format").select_option("label-studio")
    page.locator("#export").click()
    expect(page.locator("#finish-text")).to_contain_text("labels-label-studio.json is written: 10 in new classes")
    assert (
        len(json.loads((served.session.store.files.folder / "labels-label-studio.json").read_text(encoding="utf-8")))
        == 10
    )


@pytest.mark.slow
def test_labels_made_elsewhere_are_imported(page, served, browsing, tmp_path, expect):
    names = served.session.target.names
    table = tmp_path / "made elsewhere.csv"
    table.write_text(f"sample,label\n{names[30]},kettle\n{names[31]},mug\n", encoding="utf-8")
    page.locator("#show-finish").click()
    expect(page.locator("#finish")).to_be_visible()
    page.locator("#import-file").set_input_files(table)
    expect(page.locator("#finish-text")).to_have_text("2 images imported with 2 labels.")
    assert served.session.state.category[31] == class_place(0)
    assert served.session.state.names[int(served.session.state.category[30])] == "kettle"
    browsing.allow("response 400: ")
    table.write_text("sample,label\nnowhere.jpg,kettle\n", encoding="utf-8")
    page.locator("#import-file").set_input_files(table)
    expect(page.locator("#finish-text")).to_contain_text("for example 'nowhere.jpg'. Use the names of predictions.csv.")
