from __future__ import annotations

import pytest
import torch
from torch import nn

from uniot.errors import SettingsError

FAMILIES = [
    "test_efficientnet",
    "tf_efficientnet_lite0",
    "mobilenetv2_035",
    "mobilenetv3_small_050",
    "test_resnet",
    "resnet18",
    "test_convnext",
    "test_vit",
    "test_vit2",  # register tokens, pooled average
    "test_vit3",  # pooled by attention
]


def images(of, number=2):
    return torch.randn(number, 3, of.preparation.crop, of.preparation.crop, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("name", FAMILIES)
def test_tail_after_trunk_is_the_network(backbone, name):
    whole = backbone(name)
    batch = images(whole)
    expected = whole.network(batch)
    assert expected.shape == (2, whole.width)
    for cut in ("none", "last", "all"):
        split = whole.split(cut)
        # Torch may add in another order, by processor and threads; a layer that is missing changes far more.
        torch.testing.assert_close(
            split.tail(split.trunk(batch)), expected, rtol=0, atol=1e-5 * float(expected.abs().max()), msg=cut
        )


@pytest.mark.parametrize("name", FAMILIES)
def test_trunk_is_frozen_and_the_tail_is_trained(backbone, name):
    split = backbone(name).split("last")
    trunk, tail = dict(split.trunk.named_parameters()), dict(split.tail.named_parameters())
    assert trunk
    assert tail
    assert not any(parameter.requires_grad for parameter in trunk.values())
    assert all(parameter.requires_grad for parameter in tail.values())
    everything = sum(parameter.numel() for parameter in backbone(name).network.parameters())
    assert sum(value.numel() for value in [*trunk.values(), *tail.values()]) == everything


def test_parts_share_nothing_with_each_other_or_the_backbone(small):
    split = small.split("last")
    before = small.network(images(small))
    addresses = [
        {value.data_ptr() for value in module.state_dict().values()}
        for module in (split.trunk, split.tail, small.network)
    ]
    assert len(set.union(*addresses)) == sum(map(len, addresses))
    with torch.no_grad():
        for parameter in split.tail.parameters():
            parameter.add_(1)
    assert torch.equal(small.network(images(small)), before)


@pytest.mark.parametrize("name", ["test_efficientnet", "test_vit"])
def test_parts_are_saved_and_loaded_one_by_one(backbone, name):
    trained, fresh = backbone(name).split("last"), backbone(name).split("last")
    with torch.no_grad():
        for parameter in trained.tail.parameters():
            parameter.add_(0.1)
    batch = images(backbone(name))
    expected = trained.tail(trained.trunk(batch))
    fresh.trunk.load_state_dict(trained.trunk.state_dict())
    assert not torch.equal(fresh.tail(fresh.trunk(batch)), expected)
    fresh.tail.load_state_dict(trained.tail.state_dict())
    assert torch.equal(fresh.tail(fresh.trunk(batch)), expected)


def test_statistics_of_the_pretraining_stay_whatever_a_trainer_sets(small):
    split = small.split("all")
    trainer = nn.Sequential(split.trunk, split.tail).train()
    batch = images(small, 4)
    before = {name: value.clone() for name, value in split.tail.state_dict().items()}
    outputs = trainer(batch)
    torch.testing.assert_close(outputs[:1], trainer(batch[:1]))
    assert all(torch.equal(value, before[name]) for name, value in split.tail.state_dict().items())


def test_gradients_reach_the_tail_and_end_there(small):
    split = small.split("last")
    split.tail(split.trunk(images(small))).sum().backward()
    assert all(parameter.grad is not None for parameter in split.tail.parameters())
    assert all(parameter.grad is None for parameter in split.trunk.parameters())


def test_last_quarter_of_a_transformer_is_its_tail(backbone):
    network = backbone("test_vit").network
    split = backbone("test_vit").split("last")
    blocks = len(network.blocks)
    assert len(split.tail.blocks) == max(1, blocks // 4)
    assert len(split.trunk.blocks) + len(split.tail.blocks) == blocks


def test_network_of_unknown_stages_names_those_that_are_known(backbone):
    with pytest.raises(SettingsError, match=r"last stage of test_byobnet .* ByobNet, and the known ones are Eff"):
        backbone("test_byobnet").split("last")
    split = backbone("test_byobnet").split("all")
    batch = images(backbone("test_byobnet"))
    assert torch.equal(split.tail(split.trunk(batch)), backbone("test_byobnet").network(batch))


@pytest.mark.parametrize("name", ["test_efficientnet", "test_vit"])
def test_flip_averages_an_image_with_its_mirror_image(backbone, name):
    whole = backbone(name)
    batch = images(whole)
    split = whole.split("none", flip=True)
    straight, mirrored = whole.network(batch), whole.network(batch.flip(3))
    assert not torch.allclose(straight, mirrored)
    assert torch.equal(split.tail(split.trunk(batch)), (straight + mirrored) / 2)
    assert torch.equal(split.trunk(batch.flip(3)), split.trunk(batch))


@pytest.mark.parametrize("cut", ["last", "all"])
def test_flip_is_refused_where_the_network_is_trained(small, cut):
    with pytest.raises(SettingsError, match=f"flip averages .*fine_tune is '{cut}': .*fine_tune to 'none', or flip to"):
        small.split(cut, flip=True)


def test_flip_has_the_same_weights_under_the_same_names_and_another_name_in_the_store(small):
    plain, flipped = small.split("none"), small.split("none", flip=True)
    assert flipped.digest == plain.digest
    assert flipped.made_by != plain.made_by
    assert flipped.made_by.endswith("averaged with their mirror images")


def test_what_a_trunk_makes_is_named_by_its_weights_and_its_cut(small, backbone):
    none, last = small.split("none"), small.split("last")
    assert len({none.made_by, last.made_by, backbone("test_resnet").split("none").made_by}) == 3
    assert none.made_by == small.split("none").made_by
    with torch.no_grad():
        next(last.tail.parameters()).add_(1)
    assert last.made_by == small.split("last").made_by
    with torch.no_grad():
        next(last.trunk.parameters()).add_(1)
    assert last.made_by != small.split("last").made_by
