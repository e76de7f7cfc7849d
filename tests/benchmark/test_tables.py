from __future__ import annotations

from statistics import stdev

import pytest

from uniot.benchmark.reported_scores import AVERAGE
from uniot.benchmark.results import Result
from uniot.benchmark.tables import MethodRow, Table, make_table, make_tables
from uniot.errors import DataError

OFFICE = ("A2D", "A2W", "D2A", "D2W", "W2A", "W2D")


def result(method: str, task: str, h: float | None, seed: int = 0, **others) -> Result:
    about = {"setting": "open-partial", "backbone": "resnet50", "steps": 1000, "seconds": 1.0} | others
    return Result(method=method, task=task, seed=seed, h=h, failure="" if h is not None else "killed", **about)


def scored(method: str, by_task: dict[str, list[float]], **others) -> list[Result]:
    return [
        result(method, task, h, seed, **others) for task, of_task in by_task.items() for seed, h in enumerate(of_task)
    ]


def row(table: Table, method: str) -> MethodRow:
    return next(row for row in table.rows if row.method == method)


def means(table: Table, method: str) -> list[str]:
    return [cell.mean_text for cell in row(table, method).cells]


@pytest.fixture
def office() -> list[Result]:
    """UniOT is better everywhere, by more or less, in three seeds."""
    uniot = {task: [0.80 + 0.01 * place, 0.82, 0.84] for place, task in enumerate(OFFICE)}
    baseline = {task: [0.60, 0.70 + 0.01 * place, 0.65] for place, task in enumerate(OFFICE)}
    return [*scored("source-only", baseline), *scored("uniot", uniot)]


def test_a_cell_is_mean_and_deviation_over_seeds_in_per_cent(office):
    cell = row(make_table(office, dataset="office31"), "uniot").cells[1]
    assert cell.mean == pytest.approx((81 + 82 + 84) / 3)
    assert cell.deviation == pytest.approx(stdev([81, 82, 84]))
    assert (cell.n_seeds, cell.n_failed) == (3, 0)


def test_the_paper_stands_beside_each_cell_and_the_average(office):
    table = make_table(office, dataset="office31")
    assert table.columns == (*OFFICE, AVERAGE)
    assert [cell.reported for cell in row(table, "uniot").cells] == [86.97, 88.48, 88.35, 98.83, 87.60, 96.57, 91.13]
    assert row(table, "source-only").cells[0].reported == 49.78


@pytest.mark.parametrize(
    ("score", "expected"), [("h3_oracle", 85.28), ("h3_honest", None), ("common_accuracy", None), ("auroc", None)]
)
def test_only_scores_of_the_paper_have_its_numbers(score, expected):
    results = [result("uniot", "A2W", 0.5, **{score: 0.25})]
    cell = make_table(results, score, dataset="office31").rows[0].cells[0]
    assert (cell.mean_text, cell.reported) == ("25.00", expected)


def test_other_settings_and_sets_have_none_of_its_numbers():
    for setting, dataset in (("open", "office31"), ("open-partial", "my photographs")):
        table = make_table([result("uniot", "A2W", 0.5, setting=setting)], dataset=dataset)
        assert table.rows[0].cells[0].reported is None
        assert "the paper" not in table.caption


def test_tasks_of_two_sets_with_one_name_are_told_apart():
    reported = {
        name: make_table([result("uniot", "S2R", 0.5)], dataset=name).rows[0].cells[0].reported
        for name in ("visda", "VisDA-2017", "domainnet")
    }
    assert reported == {"visda": 57.32, "VisDA-2017": 57.32, "domainnet": 58.25}


def test_the_average_of_some_tasks_is_not_beside_that_of_all(office):
    table = make_table(office, dataset="office31", tasks=("D2A", "A2D"))
    assert table.columns == ("D2A", "A2D", AVERAGE)
    assert [cell.reported for cell in row(table, "uniot").cells] == [88.35, 86.97, None]


def test_the_average_varies_as_the_means_of_seeds_do():
    table = make_table(scored("uniot", {"A2D": [0.2, 0.4], "A2W": [0.6, 0.4]}), dataset="office31")
    average = table.rows[0].cells[-1]
    # Every task varies, and the mean of the tasks does not.
    assert (average.mean_text, average.deviation) == ("40.00", pytest.approx(0))
    assert table.rows[0].cells[0].deviation == pytest.approx(stdev([20, 40]))


def test_an_average_of_unequal_seeds_is_that_of_the_cells_without_deviation():
    table = make_table(scored("uniot", {"A2D": [0.2, 0.4], "A2W": [0.6]}), dataset="office31")
    average = table.rows[0].cells[-1]
    assert (average.mean_text, average.deviation, average.n_seeds) == ("45.00", None, 1)


def test_one_task_needs_no_average():
    table = make_table([result("uniot", "S2R", 0.5), result("dann", "S2R", 0.6)], dataset="visda")
    assert table.columns == ("S2R",)
    assert table.best == "dann"


def test_missing_and_failed_cells_say_so_and_leave_no_average():
    results = [
        *scored("uniot", {"A2D": [0.5], "A2W": [0.6]}),
        result("dann", "A2D", 0.4),
        result("dcc", "A2D", 0.9),
        result("dcc", "A2W", None),
    ]
    table = make_table(results, dataset="office31", methods=("uniot", "dann", "dcc", "tnt"))
    assert means(table, "uniot") == ["50.00", "60.00", "55.00"]
    assert means(table, "dann") == ["40.00", "–", "–"]
    assert means(table, "dcc") == ["90.00", "failed", "failed"]
    assert means(table, "tnt") == ["–", "–", "–"]
    assert row(table, "tnt").cells[0].reported == 85.70


def test_a_score_without_a_value_is_missing_and_not_failed():
    table = make_table([result("uniot", "A2D", 0.5, unknown_recall=None)], "unknown_recall", dataset="office31")
    assert means(table, "uniot") == ["–"]


def test_a_mean_that_failed_jobs_are_missing_from_is_never_best():
    results = [result("uniot", "A2D", 0.9), result("uniot", "A2D", None, seed=1), result("dann", "A2D", 0.5)]
    table = make_table(results, dataset="office31")
    assert (means(table, "uniot"), row(table, "uniot").cells[0].n_failed) == (["90.00"], 1)
    assert [row.cells[0].is_best for row in table.rows] == [False, True]
    assert table.best == "dann"
    assert "If jobs failed, the mean is over the others and never bold." in table.caption


def test_a_task_that_was_not_run_is_not_called_failed_for_another():
    results = [
        result("uniot", "A2D", 0.9),
        result("uniot", "A2D", None, seed=1),
        *scored("dann", {"A2D": [0.5], "A2W": [0.5]}),
    ]
    assert means(make_table(results, dataset="office31"), "uniot") == ["90.00", "–", "–"]


def test_best_is_marked_in_every_column_and_alike_where_it_looks_alike():
    results = [
        *scored("uniot", {"A2D": [0.5], "A2W": [0.60001]}),
        *scored("dann", {"A2D": [0.4], "A2W": [0.6]}),
    ]
    table = make_table(results, dataset="office31")
    assert [cell.is_best for cell in row(table, "uniot").cells] == [True, True, True]
    assert [cell.is_best for cell in row(table, "dann").cells] == [False, True, False]


def test_a_method_alone_is_not_the_best():
    table = make_table(scored("uniot", {"A2D": [0.5], "A2W": [0.6]}), dataset="office31")
    assert table.best is None
    assert not any(cell.is_best for cell in table.rows[0].cells)


def test_the_best_is_tested_against_each_other_method(office):
    noise = {task: [0.8 + 0.02 * (-1) ** (place + seed) for seed in range(3)] for place, task in enumerate(OFFICE)}
    table = make_table([*office, *scored("dann", noise)], dataset="office31")
    assert table.best == "uniot"
    assert row(table, "uniot").comparison is None
    # UniOT wins all 18 pairs; two methods were tested.
    assert row(table, "source-only").comparison.n_pairs == 18
    assert row(table, "source-only").comparison.p_value == 2 * 2 / 2**18
    assert row(table, "dann").comparison.p_value > 2 * 2 / 2**18


def test_few_pairs_are_not_tested():
    results = [result(method, task, h) for method, h in (("uniot", 0.8), ("dann", 0.5)) for task in OFFICE[:5]]
    table = make_table(results, dataset="office31")
    assert table.best == "uniot"
    assert row(table, "dann").comparison.p_value is None
    assert not table.has_p_values
    assert "p:" not in table.caption


def test_runs_that_repeat_exactly_are_no_further_evidence():
    same = [
        result(method, task, h, seed)
        for method, h in (("ati", 0.8), ("dann", 0.5))
        for task in OFFICE
        for seed in range(3)
    ]
    comparison = row(make_table(same, dataset="office31"), "dann").comparison
    assert (comparison.n_pairs, comparison.p_value) == (6, 2 / 2**6)


def test_the_caption_says_how_the_numbers_came_about(office):
    assert make_table(office, dataset="office31").caption == (
        "H-score (%) on Office-31, open-partial. Backbone: resnet50; 1000 steps. "
        "Mean ± standard deviation over 3 seeds. Bold: best of its column. "
        "In brackets: as the paper reports (ResNet-50, fine-tuned; UniOT with 10000 steps). "
        "p: UniOT against each other method, two-sided sign-flip test over 18 pairs of task and seed, corrected after "
        "Holm for the number of methods, not for the choice of the best."
    )


def test_the_caption_says_where_seeds_and_steps_differ():
    results = [result("uniot", "a2b", 0.5, steps=1), result("uniot", "b2a", 0.5), result("uniot", "b2a", 0.6, seed=4)]
    caption = make_table(results, "h", dataset="mine").caption
    assert caption == (
        "H-score (%) on mine, open-partial. Backbone: resnet50; 1 to 1000 steps. "
        "Mean ± standard deviation over 1 to 2 seeds."
    )
    assert "From 1 seed." in make_table(results[:1], dataset="mine").caption


def test_rows_and_columns_come_in_the_order_of_the_results_and_of_the_set():
    results = [result(method, task, 0.5) for task in ("W2D", "C2A", "A2D") for method in ("uan", "dann")]
    table = make_table(results, dataset="office31")
    assert [row.method for row in table.rows] == ["uan", "dann"]
    assert table.columns == ("A2D", "W2D", "C2A", AVERAGE)


def test_methods_are_called_by_their_titles():
    table = make_table([result(name, "A2W", 0.5) for name in ("uniot", "source-only", "mine")], dataset="office31")
    assert [row.title for row in table.rows] == ["UniOT", "Source only", "mine"]
    ablation = make_table([result("uniot-without-pcd", "A2W", 0.5)], dataset="office31").rows[0]
    assert (ablation.title, ablation.cells[0].reported) == ("UniOT without L_PCD", 77.98)


def test_numbers_that_cannot_be_compared_do_not_share_a_table():
    results = [result("uniot", "A2W", 0.5), result("uniot", "A2W", 0.6, backbone="vit"), result("dann", "A2W", 0.4)]
    with pytest.raises(
        DataError, match="more than one backbone: resnet50, vit. Give those of one, or call `make_tables`"
    ):
        make_table(results, dataset="office31")
    with pytest.raises(DataError, match="more than one setting: open-partial, open"):
        make_table([results[0], result("dann", "A2W", 0.4, setting="open")], dataset="office31")
    first, second = make_tables(results, dataset="office31")
    assert [row.method for row in first.rows] == ["uniot", "dann"]
    assert "vit" in second.caption
    assert means(second, "uniot") == ["60.00"]


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda one: make_table([one, one], dataset="x"), "two results of uniot on A2W .* with seed 0. Give one."),
        (lambda one: make_table([], dataset="x"), "no result to make a table of"),
        (lambda one: make_table([one], dataset="x", methods=["dann"]), "no result to make a table of"),
        (
            lambda one: make_table([one], "accuracy", dataset="x"),
            "no score called 'accuracy'. Take one of: h, h3_oracle",
        ),
    ],
)
def test_a_table_that_cannot_be_made_is_refused(ask, words):
    with pytest.raises(DataError, match=words):
        ask(result("uniot", "A2W", 0.5))
