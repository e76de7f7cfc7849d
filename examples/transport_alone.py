"""Use the transport solver on its own, for example in your own training loop.

python examples/transport_alone.py
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from uniot.transport import FeatureRows, unbalanced_plan, unbalanced_potential


def main() -> None:
    """Solve a problem in which half of the samples lie near a prototype and half of them near none."""
    generator = torch.Generator().manual_seed(0)
    prototypes = F.normalize(torch.randn(5, 64, generator=generator), dim=1)
    near = prototypes[torch.randint(5, (200,), generator=generator)] + 0.1 * torch.randn(200, 64, generator=generator)
    far = torch.randn(200, 64, generator=generator)
    features = F.normalize(torch.cat([near, far]), dim=1)

    plan = unbalanced_plan(features @ prototypes.t())
    known = plan.sample_confidence >= 1 / len(features)
    print(f"{plan.passes} passes over the rows, converged: {plan.converged}, value {float(plan.value):.3f}")
    print(f"known among the near: {int(known[:200].sum())} of 200, among the far: {int(known[200:].sum())} of 200")

    # The same solution without the 400 × 5 matrix in memory, and the decision rule for new samples.
    potential = unbalanced_potential(FeatureRows(features, prototypes))
    new = F.normalize(prototypes[:1] + 0.1 * torch.randn(1, 64, generator=generator), dim=1)
    answer = potential.assign(new @ prototypes.t())
    print(f"a new sample near prototype 0: class {int(answer.nearest)}, known: {bool(answer.known)}")


if __name__ == "__main__":
    main()
