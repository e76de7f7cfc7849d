from __future__ import annotations

import pytest
import torch

from uniot.losses import Prototypes
from uniot.methods.networks import ProjectionHead, WeightNormLinear


def test_projection_is_linear_relu_linear_unit_norm():
    head = ProjectionHead(5, hidden_size=7, feature_size=3)
    x = torch.randn(4, 5)
    hidden = (x @ head.hidden.weight.t() + head.hidden.bias).clamp(min=0)
    out = hidden @ head.out.weight.t() + head.out.bias
    expected = out / out.norm(dim=1, keepdim=True)
    assert head(x).detach().numpy() == pytest.approx(expected.detach().numpy(), abs=1e-6)


def test_projection_has_the_widths_of_the_paper():
    head = ProjectionHead(10)
    assert (head.hidden.out_features, head.out.in_features, head.out.out_features) == (2048, 2048, 256)


def test_prototypes_begin_as_unit_rows_without_bias():
    prototypes = Prototypes(6, 9)
    assert prototypes.weight.norm(dim=1).tolist() == pytest.approx([1] * 6, abs=1e-6)
    assert [name for name, _ in prototypes.named_parameters()] == ["weight"]


def test_prototypes_answer_with_cosines_not_divided_by_the_temperature():
    prototypes = Prototypes(3, 4)
    assert prototypes(prototypes.weight).diagonal().tolist() == pytest.approx([1] * 3, abs=1e-6)


def test_renormalised_prototypes_keep_their_direction():
    prototypes = Prototypes(3, 4)
    before = prototypes.weight.detach().clone()
    with torch.no_grad():
        prototypes.weight.mul_(torch.tensor([[0.5], [3.0], [7.0]]))
    prototypes.renormalise()
    assert prototypes.weight.detach().numpy() == pytest.approx(before.numpy(), abs=1e-6)
    assert prototypes.weight.requires_grad


def test_weight_normalised_row_has_its_length_whatever_the_norm_of_its_direction():
    layer = WeightNormLinear(2, 2)
    with torch.no_grad():
        layer.direction.copy_(torch.tensor([[3.0, 4.0], [0.0, 0.1]]))
        layer.length.copy_(torch.tensor([10.0, 2.0]))
        layer.bias.copy_(torch.tensor([1.0, 0.0]))
    assert layer.weight.detach().numpy() == pytest.approx(torch.tensor([[6.0, 8.0], [0.0, 2.0]]).numpy(), abs=1e-6)
    # 6 · 1 + 8 · 2 + 1 = 23 and 2 · 2 = 4.
    assert layer(torch.tensor([[1.0, 2.0]])).tolist()[0] == pytest.approx([23, 4], abs=1e-5)


def test_weight_normalised_layer_begins_with_the_length_of_its_directions():
    layer = WeightNormLinear(5, 3)
    assert layer.weight.detach().numpy() == pytest.approx(layer.direction.detach().numpy(), abs=1e-6)
