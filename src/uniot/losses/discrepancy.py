"""How far apart two samples of features are, as distributions: the maximum mean discrepancy."""

from __future__ import annotations

import torch
from torch import Tensor


def fused_distances(*layers: Tensor) -> Tensor:
    """Squared distances between the outer products z_i = a_i ⊗ b_i ⊗ … of several layers, (n, n).

    The outer products are never formed: <a ⊗ b, a' ⊗ b'> = <a, a'> <b, b'>, so their inner products are products of
    those of the layers.

    Args:
        layers: (n, d_1), (n, d_2), …, rows of the same samples; a single layer gives its own squared distances.

    Paper: Long et al., Unsupervised Domain Adaptation with Residual Transfer Networks, NeurIPS 2016, section 3.1.
    """
    inner = torch.stack([layer @ layer.t() for layer in layers]).prod(dim=0)
    squares = inner.diagonal()
    # Rounding may leave a tiny negative distance between equal rows.
    return (squares[:, None] + squares - 2 * inner).clamp_min(0)


def mean_discrepancy(distances: Tensor, n_source: int, n_kernels: int = 5, factor: float = 2.0) -> Tensor:
    """Squared maximum mean discrepancy between the first `n_source` rows and the others.

    mean k(s, s') + mean k(t, t') - 2 mean k(s, t), the means over all pairs, with k the sum of Gaussian kernels
    exp(-d / h): the middle h is the mean distance between two different rows of both domains together, a constant for
    the gradient, and each other h is `factor` times its neighbour.

    Args:
        distances: squared, (n, n), of both domains together.
        n_source: how many rows are of the source.
        n_kernels: how many kernels are summed.
        factor: between two bandwidths.

    Paper: Gretton et al., A Kernel Two-Sample Test, JMLR 2012, the biased estimate; the kernels are those of
    Long et al., Learning Transferable Features with Deep Adaptation Networks, ICML 2015.
    """
    n = len(distances)
    bandwidth = distances.detach().sum() / (n * n - n)
    # Batches of one and the same point have no scale of their own; any will do.
    bandwidth = torch.where(bandwidth > 0, bandwidth, 1)
    kernel = gaussian_kernels(distances, bandwidth, n_kernels, factor)
    source, target = kernel[:n_source], kernel[n_source:]
    return source[:, :n_source].mean() + target[:, n_source:].mean() - 2 * source[:, n_source:].mean()


def gaussian_kernels(distances: Tensor, bandwidth: Tensor, n_kernels: int, factor: float) -> Tensor:
    """Σ_i exp(-d / (h factor^i)), the exponents i centred on zero, of squared distances d and their bandwidth h."""
    scales = [factor ** (i - n_kernels // 2) for i in range(n_kernels)]
    return torch.stack([torch.exp(-distances / (bandwidth * scale)) for scale in scales]).sum(dim=0)
