"""Balanced transport: every cluster prototype receives the same mass, every sample gives the same."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from uniot.errors import DataError, SettingsError
from uniot.transport.arrays import Array, as_tensor
from uniot.transport.finite import check_finite
from uniot.transport.threads import one_thread_if_small

# Up to this spread of exponents the scalings stay within float32; beyond it the logarithms are kept.
_SAFE_SPREAD = 80.0


@one_thread_if_small
def balanced_plan(similarity: Array, epsilon: float = 0.05, iterations: int = 3) -> Tensor:
    """Transports samples to clusters with equal masses on both sides.

    Args:
        similarity: (n, k), not divided by the temperature.
        epsilon: weight of the entropy.
        iterations: scaling steps, columns then rows; three as in SwAV, more for an exact plan.

    Returns:
        (n, k), each row sums to 1/n exactly, each column to 1/k in the limit.

    Paper: Eq. (2), (10); ε and the number of iterations as in the authors' code.
    """
    similarity = as_tensor(similarity, "similarity")
    if similarity.ndim != 2 or 0 in similarity.shape:
        raise DataError(
            f"similarity has shape {tuple(similarity.shape)}. Give one row per sample and one column per cluster."
        )
    if not 1e-3 <= epsilon <= 10 or iterations < 1:
        raise SettingsError(
            f"epsilon is {epsilon} and iterations {iterations}; give 0.001 to 10 and at least one iteration."
        )
    check_finite(similarity, "similarity")
    n, k = similarity.shape
    # Half precision cannot hold the kernel.
    similarity = similarity.to(torch.promote_types(similarity.dtype, torch.float32))
    largest = similarity.amax(dim=1)
    exponent = (similarity - largest[:, None]) / epsilon
    # The row's own scaling undoes a shift of the row, but only where it begins with it; few iterations show that.
    log_u = (largest - largest.max()) / epsilon
    if float((exponent.amin(dim=1) + log_u).detach().min()) < -_SAFE_SPREAD:
        return _in_logarithms(exponent.double(), log_u.double(), iterations).to(similarity.dtype)
    kernel = exponent.exp_()
    u = v = log_u.exp()
    for _ in range(iterations):
        v = 1 / (k * torch.mv(kernel.t(), u))
        u = 1 / (n * torch.mv(kernel, v))
    return kernel * u[:, None] * v


def _in_logarithms(exponent: Tensor, log_u: Tensor, iterations: int) -> Tensor:
    n, k = exponent.shape
    log_v = exponent.new_zeros(k)
    for _ in range(iterations):
        log_v = -math.log(k) - torch.logsumexp(exponent + log_u[:, None], dim=0)
        log_u = -math.log(n) - torch.logsumexp(exponent + log_v, dim=1)
    return (exponent + log_u[:, None] + log_v).exp()
