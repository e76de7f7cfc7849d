from __future__ import annotations

import pytest
import torch

from uniot.errors import DataError, UndefinedScoreWarning
from uniot.metrics.accuracy import common_recall, specificity

BATCH = {
    "y_true": [0, 0, 1, 1, 7, 8, 9],
    "detected": [True, True, True, False, False, True, False],
}
ASSIGNED = [0, 1, 1, 1, 0, 0, 0]


def test_a_batch_worked_by_hand():
    # Detected and right: rows 0 and 2 of four common rows. Rows 4 and 6 of three private rows stay out.
    assert common_recall(**BATCH, assigned=ASSIGNED, source_classes=[0, 1]) == pytest.approx(2 / 4)
    assert specificity(**BATCH, source_classes=[0, 1]) == pytest.approx(2 / 3)


def test_tensors_from_a_training_step_are_read():
    tensors = {name: torch.tensor(values) for name, values in BATCH.items()}
    assert common_recall(**tensors, assigned=torch.tensor(ASSIGNED), source_classes=torch.arange(2)) == 0.5


def test_detecting_nothing_has_full_specificity_and_no_recall():
    nothing = BATCH | {"detected": [False] * 7}
    assert common_recall(**nothing, assigned=ASSIGNED, source_classes=[0, 1]) == 0.0
    assert specificity(**nothing, source_classes=[0, 1]) == 1.0


def test_the_class_of_a_row_that_was_not_detected_is_not_read():
    assigned = [0, 1, 1, -1, -1, 0, 55]
    assert common_recall(**BATCH, assigned=assigned, source_classes=[0, 1]) == pytest.approx(2 / 4)


def test_a_batch_without_common_or_private_rows_warns():
    with pytest.warns(UndefinedScoreWarning, match="common recall is undefined; 0 is returned: no true label is a"):
        assert common_recall([7], [True], [0], source_classes=[0]) == 0.0
    with pytest.warns(UndefinedScoreWarning, match="specificity is undefined; 0 is returned: no row is private"):
        assert specificity([0], [True], source_classes=[0]) == 0.0


def test_unusable_detections_are_told_why():
    with pytest.raises(DataError, match="y_true has 7 rows, detected has 1"):
        specificity(BATCH["y_true"], [True], source_classes=[0, 1])
    with pytest.raises(DataError, match="assigned holds 5, neither a source class nor -1"):
        common_recall(**BATCH, assigned=[5] * 7, source_classes=[0, 1])
    with pytest.raises(DataError, match="detected must be true or false"):
        specificity([0, 1], [0.3, 0.7])
