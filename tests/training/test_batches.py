from __future__ import annotations

import pytest
import torch

from uniot.training.samples import PairedBatches, TensorSamples, generator_for

# 100 samples of class 0, 10 of class 1, 1 of class 2, in no order.
CLASSES = torch.tensor([0] * 100 + [1] * 10 + [2])[torch.randperm(111, generator=torch.Generator().manual_seed(0))]


def batches(n_target: int = 50, batch_size: int = 12, seed: int = 0) -> PairedBatches:
    return PairedBatches(CLASSES, n_target, batch_size, seed)


def test_source_batches_hold_every_class_equally_often():
    made = batches(batch_size=30)
    seen = torch.cat([CLASSES[made.source(step)] for step in range(100)])
    # 3000 draws, 1000 per class expected, standard deviation √(3000·⅓·⅔) ≈ 26.
    assert torch.bincount(seen).tolist() == pytest.approx([1000] * 3, abs=110)


def test_within_a_class_every_sample_is_as_likely_as_another():
    made = batches(batch_size=60)
    ids = torch.cat([made.source(step) for step in range(100)])
    of_class_1 = torch.bincount(ids, minlength=111)[CLASSES == 1]
    # 2000 draws on ten samples, standard deviation about 13.
    assert of_class_1.tolist() == pytest.approx([200] * 10, abs=60)
    assert set(ids.tolist()) == set(range(111))


def test_target_round_shows_every_sample_once():
    made = batches(n_target=48, batch_size=12)
    for in_round in range(3):
        ids = torch.cat([made.target(in_round * 4 + i) for i in range(4)])
        assert sorted(ids.tolist()) == list(range(48))


def test_target_round_leaves_out_what_does_not_fill_a_batch_and_never_repeats():
    made = batches(n_target=50, batch_size=12)
    rounds = [torch.cat([made.target(in_round * 4 + i) for i in range(4)]).tolist() for in_round in range(30)]
    for ids in rounds:
        assert len(set(ids)) == 48
    # What one round leaves out, others show.
    assert len({i for ids in rounds for i in ids}) == 50


def test_rounds_are_shuffled_differently():
    made = batches(n_target=48)
    assert made.target(0).tolist() != made.target(4).tolist()


def test_small_target_is_one_batch():
    made = batches(n_target=5, batch_size=12)
    assert all(sorted(made.target(step).tolist()) == list(range(5)) for step in range(4))
    assert batches(n_target=1).target(17).tolist() == [0]


def test_batches_are_a_pure_function_of_seed_and_step():
    forwards, backwards = batches(seed=3), batches(seed=3)
    steps = list(range(25))
    made = {step: (forwards.source(step), forwards.target(step)) for step in steps}
    for step in reversed(steps):
        assert torch.equal(backwards.target(step), made[step][1])
        assert torch.equal(backwards.source(step), made[step][0])
        one, two = forwards.generator(step), backwards.generator(step)
        assert torch.equal(torch.rand(5, generator=one), torch.rand(5, generator=two))


def test_batches_do_not_touch_the_global_generator():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    made = batches()
    made.source(0), made.target(0), made.generator(0)
    assert torch.equal(torch.rand(3), expected)


def test_other_seeds_steps_and_purposes_draw_other_numbers():
    keys = [(seed, purpose, step) for seed in (0, 1, 2**62) for purpose in range(3) for step in range(20)]
    draws = {tuple(torch.rand(2, generator=generator_for(*key)).tolist()) for key in keys}
    assert len(draws) == len(keys)


def test_samples_are_augmented_only_where_a_generator_is_given():
    def shift(values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return values + torch.rand(len(values), 1, generator=generator)

    samples = TensorSamples(torch.arange(6.0).reshape(3, 2), augment=shift)
    ids = torch.tensor([2, 0])
    assert samples.batch(ids).tolist() == [[4, 5], [0, 1]]
    first, second = (samples.batch(ids, torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, samples.batch(ids))
    assert len(samples) == 3
