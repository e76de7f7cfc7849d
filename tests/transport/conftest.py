from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Problem:
    """Target features around common prototypes and around directions that the source does not know."""

    features: Tensor
    prototypes: Tensor

    @property
    def similarity(self) -> Tensor:
        return self.features @ self.prototypes.t()


@pytest.fixture(scope="session")
def make_problem() -> Callable[..., Problem]:
    def make(n: int, c: int, seed: int = 0, d: int = 12, dtype: torch.dtype = torch.float64) -> Problem:
        generator = torch.Generator().manual_seed(seed)
        prototypes = F.normalize(torch.randn(c, d, generator=generator, dtype=torch.float64), dim=1)
        private = F.normalize(torch.randn(c, d, generator=generator, dtype=torch.float64), dim=1)
        centres = torch.cat([prototypes, private])[torch.randint(2 * c, (n,), generator=generator)]
        noise = torch.randn(n, d, generator=generator, dtype=torch.float64)
        return Problem(F.normalize(centres + 0.2 * noise, dim=1).to(dtype), prototypes.to(dtype))

    return make


@pytest.fixture(scope="session")
def uneven_mass() -> Callable[[int], Tensor]:
    """Class mass that doubles every other class, (c,), sums to one."""

    def make(c: int) -> Tensor:
        mass = 2.0 ** (torch.arange(c, dtype=torch.float64) / 2)
        return mass / mass.sum()

    return make


@pytest.fixture(scope="session")
def pot_plan() -> Callable[..., np.ndarray]:
    """POT's plan, not divided by its total."""
    import ot

    def solve(
        similarity: Tensor,
        class_mass: Tensor | None = None,
        epsilon: float = 0.01,
        marginal_penalty: float = 0.5,
        iterations: int = 1500,
    ) -> np.ndarray:
        n, c = similarity.shape
        beta = np.full(c, 1 / c) if class_mass is None else class_mass.numpy()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "If reg_type = entropy", UserWarning)
            # POT's stop rule is absolute and its scalings are far below one: only a fixed number of iterations
            # is sure to converge. Each shrinks the error by f² = (κ/(κ+ε))².
            return ot.unbalanced.sinkhorn_knopp_unbalanced(
                np.full(n, 1 / n),
                beta,
                -similarity.numpy(),
                reg=epsilon,
                reg_m=marginal_penalty,
                reg_type="entropy",
                numItermax=iterations,
                stopThr=0,
            )

    return solve


@pytest.fixture(scope="session")
def log_sinkhorn() -> Callable[..., Tensor]:
    """Plain Sinkhorn in logarithms and float64, for exponents that POT's kernel cannot hold; not normalised."""

    def solve(
        similarity: Tensor, class_mass: Tensor, epsilon: float, marginal_penalty: float = 0.5, iterations: int = 20000
    ) -> Tensor:
        f = marginal_penalty / (marginal_penalty + epsilon)
        logits = similarity.double() / epsilon
        log_u = logits.new_zeros(len(logits))
        log_v = logits.new_zeros(logits.shape[1])
        for _ in range(iterations):
            before = log_v
            log_u = -f * (math.log(len(logits)) + torch.logsumexp(logits + log_v, dim=1))
            log_v = f * (class_mass.log() - torch.logsumexp(logits + log_u[:, None], dim=0))
            if float((log_v - before).abs().max()) < 1e-13:
                break
        log_u = -f * (math.log(len(logits)) + torch.logsumexp(logits + log_v, dim=1))
        return (logits + log_u[:, None] + log_v).exp()

    return solve
