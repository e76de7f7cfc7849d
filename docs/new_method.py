"""Start a new method: write its file, its page and its test, each of which works and is yours to change.

    make new-method NAME=my-method
    python docs/new_method.py my-method

The method that is written trains a classifier on the source and lowers the entropy of the target. docs/add-a-method.md
explains the parts.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from string import Template

ROOT = Path(__file__).resolve().parents[1]

METHOD = '''"""$title: one sentence on its idea. Add the paper, its venue and its arXiv number."""

from __future__ import annotations

import torch.nn.functional as F
from pydantic import Field

from uniot.losses import normalised_entropy
from uniot.methods.base import Batch, Losses, MethodInfo, MethodOptions
from uniot.methods.head import HeadMethod


class ${cls}Options(MethodOptions):
    """Hyper-parameters that other methods do not have."""

    entropy_weight: float = Field(0.1, ge=0, le=100, description="λ, weight of the target's entropy.")


class $cls(HeadMethod):
    """Networks, score and decision rule are those of `HeadMethod`: a sample is unknown if its entropy is high."""

    options: ${cls}Options

    def step(self, batch: Batch) -> Losses:
        """Return the losses of one step: L = CE(y, C(f_s)) + λ mean(H(C(f_t)) / log C). Paper: Eq. (n)."""
        source, target = self.batch_features(batch)
        classification = F.cross_entropy(self.classifier(source), batch.source_labels)
        entropy = normalised_entropy(self.classifier(target)).mean()
        total = classification + self.options.entropy_weight * entropy
        return Losses(total, {"source": classification, "entropy": entropy})


INFO = MethodInfo(
    name="$name",
    title="$title",
    source="authors, venue and year",
    rule="unknown if the entropy of the prediction exceeds half of log C",
    build=$cls,
    options=${cls}Options,
)
'''

TEST = '''"""$title: its loss, worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from uniot.config import Settings
from uniot.methods import resolved_settings
from uniot.methods.base import Batch
from uniot.methods.registry import create_method


def test_loss_is_that_of_the_equation():
    method = create_method(resolved_settings(Settings.checked(method="$name", feature_size=2), 4), 2, 2)
    with torch.no_grad():
        for layer in (method.bottleneck, method.classifier):
            layer.weight.copy_(torch.eye(2))
            layer.bias.zero_()
    source, target = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.full((2, 2), 9.0)
    loss = method.step(Batch(source, torch.tensor([0, 0]), target, torch.arange(2), 0, torch.Generator())).total
    # -log softmax of the right class: log(1 + exp(-2)) and log(1 + exp(1)). The target's predictions are even: their
    # normalised entropy is 1, and its weight is 0.1.
    expected = (math.log(1 + math.exp(-2)) + math.log(1 + math.exp(1))) / 2 + 0.1
    assert loss.item() == pytest.approx(expected, rel=1e-6)
'''

PAGE = """# $title

`--method $name` · `UniDAClassifier(method="$name")`

**Paper:** authors, title, venue, year, arXiv number.

## Idea

A classifier is trained on the source, and its predictions on the target are made certain.

## When a sample is unknown

A sample is unknown if the entropy of its prediction exceeds half of its maximum, H(p) > log(C) / 2, with C the number
of source classes.

## Hyper-parameters

<!-- options $name -->

| parameter | default | meaning | value from |
|---|---|---|---|
| `entropy_weight` | 0.1 | λ, weight of the target's entropy. | where the value comes from |
| `learning_rate` | 0.01 | Initial learning rate of all layers but the backbone. | where the value comes from |

<!-- end of options -->

## Departures from the paper and its code

What differs, and why.

## Example

```python
from uniot import UniDAClassifier
from uniot.datasets import make_toy_domains

toy = make_toy_domains(n_common=3, n_source_private=2, n_target_private=2, seed=1)
model = UniDAClassifier(method="$name", steps=100, random_state=0)
model.fit(toy.x_source, toy.y_source, toy.x_target)
print((model.labels_ == "unknown").sum(), "of", len(model.labels_), "samples are unknown")
```
"""

NEXT = """Now add the method to the lists that name every method, and change what was written:
  src/uniot/methods/registry.py       import $module; $module.INFO, among METHODS
  tests/methods/test_every_method.py  "$name": Trial(0.5), among TRIALS
  tests/methods/test_options.py       "$name": (0.01, {"entropy_weight": 0.1}), the published values
  mkdocs.yml                          - methods/$name.md
Then: python docs/make_method_tables.py && make quick
"""


def write_method(name: str, root: Path = ROOT) -> list[Path]:
    """Write the three files of a new method and return their paths; nothing that exists is overwritten."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        sys.exit(f"NAME is {name!r}. Use lower-case letters, digits and single hyphens, as in my-method.")
    texts = {
        root / "src" / "uniot" / "methods" / f"{_module(name)}.py": METHOD,
        root / "tests" / "methods" / f"test_{_module(name)}.py": TEST,
        root / "docs" / "methods" / f"{name}.md": PAGE,
    }
    if there := [str(path.relative_to(root)) for path in texts if path.exists()]:
        sys.exit(f"{', '.join(there)} already exists. Choose another NAME.")
    for path, text in texts.items():
        path.write_text(_filled(text, name), encoding="utf-8")
    return list(texts)


def _module(name: str) -> str:
    return name.replace("-", "_")


def _filled(text: str, name: str) -> str:
    words = name.split("-")
    return Template(text).substitute(
        name=name, module=_module(name), cls="".join(map(str.capitalize, words)), title=" ".join(words).capitalize()
    )


def main() -> None:
    """Write the files of the method that the command names, and print what is left to do."""
    if len(sys.argv) != 2:
        sys.exit("Usage: make new-method NAME=my-method")
    for path in write_method(sys.argv[1]):
        sys.stdout.write(f"{path.relative_to(ROOT)}\n")
    sys.stdout.write(_filled(NEXT, sys.argv[1]))


if __name__ == "__main__":
    main()
