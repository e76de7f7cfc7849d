from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from uniot.errors import SettingsError
from uniot.losses import SampleBank


def rows(*values: float) -> torch.Tensor:
    return torch.tensor(values)[:, None].expand(-1, 2)


def held(bank: SampleBank) -> dict[int, tuple[float, int]]:
    places = bank.filled()
    return {int(bank.ids[p]): (float(bank.rows[p, 0]), int(bank.labels[p])) for p in places}


def test_sample_seen_again_takes_its_old_place_and_keeps_its_label():
    bank = SampleBank(4, 2)
    places = bank.put(rows(1, 2), torch.tensor([5, 6]))
    bank.labels[places] = torch.tensor([0, 1])
    bank.put(rows(3, 4), torch.tensor([6, 7]))
    assert held(bank) == {5: (1, 0), 6: (3, 1), 7: (4, -1)}


def test_new_samples_take_the_place_of_the_first_and_have_no_label_of_theirs():
    bank = SampleBank(2, 2)
    bank.put(rows(1, 2), torch.tensor([0, 1]), torch.tensor([8, 9]))
    bank.put(rows(3), torch.tensor([2]))
    assert held(bank) == {1: (2, 9), 2: (3, -1)}


def test_new_sample_does_not_take_the_place_of_one_in_the_same_batch():
    bank = SampleBank(2, 2)
    bank.put(rows(1, 2), torch.tensor([0, 1]))
    # The cursor stands at sample 0, which is in the batch as well.
    bank.put(rows(3, 4), torch.tensor([0, 2]))
    assert held(bank) == {0: (3, -1), 2: (4, -1)}


def test_places_are_where_the_rows_are():
    bank = SampleBank(3, 2)
    bank.put(rows(1, 2), torch.tensor([4, 9]))
    places = bank.put(rows(5, 6), torch.tensor([9, 1]))
    assert bank.ids[places].tolist() == [9, 1]
    assert bank.rows[places, 0].tolist() == [5, 6]


@given(batches=st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=4, unique=True), max_size=8))
def test_bank_holds_each_sample_once_and_always_the_batch_with_its_newest_rows(batches):
    bank = SampleBank(5, 2)
    newest: dict[int, float] = {}
    for number, ids in enumerate(batches):
        values = [float(10 * number + i) for i in range(len(ids))]
        newest |= dict(zip(ids, values, strict=True))
        bank.put(rows(*values), torch.tensor(ids))
        known = held(bank)
        assert len(known) == len(bank.filled()) == min(5, len(known))
        assert set(ids) <= set(known)
        assert all(newest[sample] == value for sample, (value, _) in known.items())


def test_bank_takes_no_space_before_its_first_row_nor_after_it_is_cleared():
    bank = SampleBank(100, 2)
    assert bank.rows.shape == (0, 2)
    bank.put(rows(1), torch.tensor([0]))
    assert bank.rows.shape == (100, 2)
    bank.clear()
    assert bank.rows.shape == (0, 2)
    assert held(bank) == {}


def test_saved_bank_is_loaded_in_the_size_it_had():
    bank, other = SampleBank(3, 2), SampleBank(3, 2)
    bank.put(rows(1, 2), torch.tensor([4, 9]), torch.tensor([0, 1]))
    other.load_state_dict(bank.state_dict())
    assert held(other) == held(bank)
    for each in (bank, other):
        each.put(rows(7, 8), torch.tensor([1, 2]))
    assert held(other) == held(bank) == {9: (2, 1), 1: (7, -1), 2: (8, -1)}
    other.load_state_dict(SampleBank(3, 2).state_dict())
    assert held(other) == {}


def test_bank_without_room_is_refused():
    with pytest.raises(SettingsError, match="give room for at least 1"):
        SampleBank(0, 2)
