"""The example of a method of one's own: by hand, saved, in the benchmark, and on its page.

Softmax of (ln 3, 0) is (3/4, 1/4), whose normalised entropy is 2 - 3/4 log₂ 3.
"""

from __future__ import annotations

import importlib.util
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from uniot import UniDAClassifier
from uniot.benchmark.features import read_domain
from uniot.config import Settings
from uniot.datasets import make_toy_domains
from uniot.datasets.catalogue import benchmark_set
from uniot.errors import SettingsError
from uniot.methods import resolved_settings
from uniot.methods.base import Batch, FinalFeatures, MethodInfo
from uniot.methods.registry import METHODS, create_method, method_info, register

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "write_your_own_method.py"
PAGE = (ROOT / "docs" / "add-a-method.md").read_text(encoding="utf-8")
LN2, LN3, LN4 = math.log(2), math.log(3), math.log(4)
HN = 2 - 0.75 * math.log2(3)


@pytest.fixture(scope="module")
def example() -> Iterator[ModuleType]:
    before = dict(METHODS)
    spec = importlib.util.spec_from_file_location("write_your_own_method", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]
    # Other tests of this process must not meet the method.
    METHODS.clear()
    METHODS.update(before)


def scores_in(text: str) -> dict[str, list[float]]:
    """Method to its scores, from lines such as `otsu   82.2   99.4   70.0   98.4`."""
    rows = re.findall(r"^([a-z-]+) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+)$", text, re.MULTILINE)
    return {method: [float(score) for score in scores] for method, *scores in rows}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def build(**options: float):
    settings = resolved_settings(Settings.checked(method="otsu", method_options=options, feature_size=2), 100)
    method = create_method(settings, 2, 2)
    with torch.no_grad():
        for layer in (method.bottleneck, method.classifier):
            layer.weight.copy_(torch.eye(2))
            layer.bias.zero_()
    return method


def test_learnt_threshold_is_better_than_a_fixed_one_and_transport_than_both(example, capsys):
    example.main()
    printed = scores_in(capsys.readouterr().out)
    assert list(printed) == ["source-only", "otsu", "uniot"]
    h, ranked = ({method: scores[place] for method, scores in printed.items()} for place in (0, 3))
    assert h["source-only"] + 20 < h["otsu"] < h["uniot"]
    # Source-only ranks the samples well, too: what it lacks is the threshold.
    assert min(ranked.values()) > 90
    (shown,) = blocks("text")
    for method, scores in scores_in(shown).items():
        assert printed.pop(method) == pytest.approx(scores, abs=4)
    assert not printed


@pytest.mark.parametrize(
    ("counts", "threshold"),
    [
        # Shares 1/4, 1/4, 0, 1/2 at 1/8, 3/8, 5/8, 7/8, mean 9/16. First cut: (1/4 · 9/16 - 1/32)² / (3/16) = 0.064;
        # second and third: (1/2 · 9/16 - 1/8)² / (1/4) = 0.098. Half-way between 2/4 and 3/4:
        ((1, 1, 0, 2), 0.625),
        ((2, 0, 0, 2), 0.5),
        ((0, 0, 5, 1), 0.75),
    ],
)
def test_threshold_between_two_groups_worked_by_hand(example, counts, threshold):
    assert example.otsu_threshold(torch.tensor(counts)) == threshold


@pytest.mark.usefixtures("example")
def test_losses_of_a_step_worked_by_hand():
    batch = Batch(
        source=torch.tensor([[LN3, 0.0], [0.0, 0.0]]),
        source_labels=torch.tensor([0, 1]),
        target=torch.tensor([[0.0, LN3], [0.0, 0.0]]),
        target_ids=torch.arange(2),
        step=0,
        generator=torch.Generator(),
    )
    losses = build(entropy_weight=0.5).step(batch)
    # Scores are 1 - Hn and 0: the threshold lies between them, and the entropy of the second, which is 1, is to grow.
    source, separation = (LN4 - LN3 + LN2) / 2, (HN - 1) / 2
    assert float(losses.parts["source"].detach()) == pytest.approx(source)
    assert float(losses.parts["separation"].detach()) == pytest.approx(separation)
    assert float(losses.total.detach()) == pytest.approx(source + 0.5 * separation)


@pytest.mark.usefixtures("example")
def test_parts_of_the_target_have_the_threshold_of_the_whole():
    features = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    whole, part = build(), build()
    whole.finalize(FinalFeatures.of_target(features))
    part.finalize(FinalFeatures.of_target(features[10:]))
    assert part.threshold != whole.threshold

    class Second:
        """The second of two processes; the first holds the first ten rows."""

        rank, count = 1, 2

        def add(self, values: torch.Tensor) -> torch.Tensor:
            return values + part.score(features[:10]).detach().histc(64, 0, 1)

    part.finalize(FinalFeatures.of_target(features[10:], shards=Second()))
    assert part.threshold == whole.threshold


@pytest.mark.usefixtures("example")
def test_saved_and_loaded_model_decides_the_same(tmp_path):
    toy = make_toy_domains(samples_per_class=10)
    model = UniDAClassifier(method="otsu", random_state=0, steps=20, feature_size=8, n_private_classes=2)
    model.fit(toy.x_source, toy.y_source, toy.x_target)
    model.save(tmp_path / "run")
    loaded = UniDAClassifier.load(tmp_path / "run")
    assert loaded.model_.method.threshold == model.model_.method.threshold != 0.5
    assert np.array_equal(loaded.predict_proba(toy.x_target), model.predict_proba(toy.x_target))


@pytest.mark.usefixtures("example")
def test_name_that_is_taken_is_refused():
    info = method_info("otsu")
    register(info)  # once more is no harm
    other = MethodInfo("otsu", info.title, info.source, info.rule, info.build)
    with pytest.raises(SettingsError, match="there is a method called 'otsu' already"):
        register(other)


def test_page_shows_the_lines_of_the_example():
    written = EXAMPLE.read_text(encoding="utf-8")
    shown = [block for block in blocks("python") if "uniot.benchmark" not in block]
    assert len(shown) >= 3
    for block in shown:
        assert block in written


@pytest.mark.usefixtures("example")
def test_page_runs_the_method_in_the_benchmark(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    split = benchmark_set("office31").split("open-partial")
    names = [*split.source, *split.target_private]
    toy = make_toy_domains(len(names), 0, 0, samples_per_class=4)
    index = {f"common-{place}": place for place in range(len(names))}
    y_source, y_target = ([index[name] for name in y] for y in (toy.y_source, toy.oracle_y_target))
    np.savez("features.npz", classes=names, A_x=toy.x_source, A_y=y_source, W_x=toy.x_target, W_y=y_target)
    assert len(read_domain(Path("features.npz"), "A").classes) == 31
    (block,) = (block for block in blocks("python") if "uniot.benchmark" in block)
    assert "1000" in block
    assert "n_seeds=3" in block
    exec(block.replace("1000", "10").replace("n_seeds=3", "n_seeds=1"), {})
    table = capsys.readouterr().out
    assert "| Otsu |" in table
    assert "| Source only |" in table
