from __future__ import annotations

from uniot.report.confusion import read_confusion


def test_private_classes_come_last_and_unknown_is_right_for_them():
    counts = {"ant": {"ant": 9, "bee": 1}, "bee": {"unknown": 4}, "elk": {"unknown": 6, "cow": 2}}
    table = read_confusion({"confusion": counts}, ["ant", "bee", "cow"], "unknown")
    assert table.columns == ["ant", "bee", "cow", "unknown"]
    assert [[cell.count for cell in row.cells] for row in table.rows] == [[9, 1, 0, 0], [0, 0, 0, 4], [0, 0, 2, 6]]
    assert [(row.name, row.is_common, row.count) for row in table.rows] == [
        ("ant", True, 10),
        ("bee", True, 4),
        ("elk", False, 8),
    ]
    assert [[cell.right for cell in row.cells].index(True) for row in table.rows] == [0, 1, 3]
    assert table.rows[2].cells[3].share == 0.75


def test_the_largest_classes_are_shown_and_no_sample_is_lost_from_their_rows():
    names = [f"class {index:02d}" for index in range(60)]
    counts = {name: {name: index + 1, names[index - 1]: 1, "unknown": 2} for index, name in enumerate(names)}
    table = read_confusion({"confusion": counts}, names, "unknown")
    assert [row.name for row in table.rows] == names[20:]
    assert table.rows_left_out == 20
    assert table.columns[-2:] == ["others", "unknown"]
    assert table.columns_left_out == 1
    assert all(sum(cell.count for cell in row.cells) == row.count for row in table.rows)
    assert all(len(row.cells) == len(table.columns) for row in table.rows)


def test_a_number_for_unknown_is_shown_as_the_word():
    table = read_confusion({"confusion": {"0": {"0": 1, "-1": 2}}}, ["0"], "-1")
    assert table.columns == ["0", "unknown"]
    assert [cell.count for cell in table.rows[0].cells] == [1, 2]


def test_scores_of_an_earlier_version_have_no_matrix():
    assert read_confusion({"h_score": 0.5}, ["ant"], "unknown") is None
    assert read_confusion(None, ["ant"], "unknown") is None
