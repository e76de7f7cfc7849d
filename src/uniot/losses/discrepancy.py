"""Kernel discrepancies between two domains: maximum mean discrepancy (MMD) and contrastive domain discrepancy (CDD).

References:
    Gretton et al., A Kernel Two-Sample Test, JMLR 2012.
    Kang et al., Contrastive Adaptation Network for Unsupervised Domain Adaptation, CVPR 2019, arXiv:1901.00976.
"""

from __future__ import annotations

import torch
from torch import Tensor


def fused_distances(*layers: Tensor) -> Tensor:
    """Compute squared distances between the outer products z_i = a_i ⊗ b_i ⊗ … of several layers.

    The outer products are never formed: <a ⊗ b, a' ⊗ b'> = <a, a'> <b, b'>, so their inner products are products of
    the inner products of the layers.

    Args:
        layers: (n, d_1), (n, d_2), …, rows of the same samples; a single layer gives its own squared distances.

    Returns:
        Squared distances, (n, n).

    References:
        Long et al., Unsupervised Domain Adaptation with Residual Transfer Networks, NeurIPS 2016, arXiv:1602.04433,
        section 3.1.

    Example:
        >>> fused_distances(torch.tensor([[0.0], [3.0]]))
        tensor([[0., 9.],
                [9., 0.]])
    """
    inner = torch.stack([layer @ layer.t() for layer in layers]).prod(dim=0)
    squares = inner.diagonal()
    # Rounding may give a tiny negative distance between equal rows.
    return (squares[:, None] + squares - 2 * inner).clamp_min(0)


def maximum_mean_discrepancy(distances: Tensor, n_source: int, n_kernels: int = 5, factor: float = 2.0) -> Tensor:
    """Compute the squared maximum mean discrepancy (MMD²) between the first `n_source` rows and the others.

    mean k(s, s') + mean k(t, t') - 2 mean k(s, t), the means over all pairs, with k the sum of Gaussian kernels
    exp(-d / h). The middle h is the mean distance between two different rows of both domains together and carries no
    gradient; each other h is `factor` times its neighbour.

    Args:
        distances: squared distances of both domains together, (n, n).
        n_source: number of source rows.
        n_kernels: number of kernels in the sum.
        factor: ratio of two neighbouring bandwidths.

    Returns:
        The biased estimate of MMD², a scalar.

    References:
        Gretton et al., A Kernel Two-Sample Test, JMLR 2012 (the biased estimate).
        Long et al., Learning Transferable Features with Deep Adaptation Networks, ICML 2015, arXiv:1502.02791 (the
        kernels).

    Example:
        >>> rows = torch.tensor([[0.0], [1.0], [0.0], [1.0]])  # two source rows, then two target rows
        >>> float(maximum_mean_discrepancy(fused_distances(rows), n_source=2))
        0.0
    """
    n = len(distances)
    bandwidth = distances.detach().sum() / (n * n - n)
    # Identical rows have a mean distance of zero; any positive bandwidth avoids 0 / 0.
    bandwidth = torch.where(bandwidth > 0, bandwidth, 1)
    kernel = gaussian_kernels(distances, bandwidth, n_kernels, factor)
    source, target = kernel[:n_source], kernel[n_source:]
    return source[:, :n_source].mean() + target[:, n_source:].mean() - 2 * source[:, n_source:].mean()


def gaussian_kernels(distances: Tensor, bandwidth: Tensor, n_kernels: int, factor: float) -> Tensor:
    """Return Σ_i exp(-d / (h factor^i)), of the shape of `distances`; the exponents i are centred on zero.

    Args:
        distances: squared distances d, of any shape.
        bandwidth: h, broadcast to `distances`.
        n_kernels: number of kernels in the sum.
        factor: ratio of two neighbouring bandwidths.

    Example:
        >>> gaussian_kernels(torch.zeros(2), torch.ones(()), n_kernels=3, factor=2.0)
        tensor([3., 3.])
    """
    scales = [factor ** (i - n_kernels // 2) for i in range(n_kernels)]
    return torch.stack([torch.exp(-distances / (bandwidth * scale)) for scale in scales]).sum(dim=0)


def contrastive_domain_discrepancy(source: Tensor, target: Tensor, n_kernels: int = 5, factor: float = 2.0) -> Tensor:
    """Compute the mean discrepancy within classes minus that between classes; with one class the former alone.

    The discrepancy of source class c and target class c' is the squared maximum mean discrepancy

        mean k(s, s') + mean k(t, t') - 2 mean k(s, t),   k(x, y) = sum_i exp(-||x - y||² / (γ factor^i)),

    with s, s' of class c, t, t' of class c', the exponents i centred on zero, and γ the mean squared distance of two
    different samples among them, which carries no gradient.

    Args:
        source: m samples of each class, (c, m, d).
        target: n samples of the same classes in the same order, (c, n, d).
        n_kernels: number of kernels in the sum.
        factor: ratio of two neighbouring bandwidths.

    Returns:
        The discrepancy, a scalar.

    Paper: Kang et al., Contrastive Adaptation Network, CVPR 2019, Eq. (3)-(5).

    Example:
        >>> classes = torch.tensor([[[0.0], [0.1]], [[5.0], [5.1]]])  # two classes of two samples, far apart
        >>> bool(contrastive_domain_discrepancy(classes, classes) < 0)  # small within, large between
        True
    """
    n_classes, m, n = len(source), source.shape[1], target.shape[1]
    # Axes: source class, target class, two samples.
    within_source = _squared_distances(source, source)[:, None].expand(n_classes, n_classes, m, m)
    within_target = _squared_distances(target, target)[None].expand(n_classes, n_classes, n, n)
    between = _squared_distances(source[:, None], target[None])
    total = within_source.sum(dim=(2, 3)) + within_target.sum(dim=(2, 3)) + 2 * between.sum(dim=(2, 3))
    width = (total.detach() / ((m + n) ** 2 - m - n)).clamp_min(1e-5)[:, :, None, None]

    def mean_kernel(distances: Tensor) -> Tensor:
        return gaussian_kernels(distances, width, n_kernels, factor).mean(dim=(2, 3))

    discrepancy = mean_kernel(within_source) + mean_kernel(within_target) - 2 * mean_kernel(between)
    intra = discrepancy.diagonal().mean()
    if n_classes == 1:
        return intra
    inter = (discrepancy.sum() - discrepancy.diagonal().sum()) / (n_classes * (n_classes - 1))
    return intra - inter


def _squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """Return squared distances, (..., m, n), of rows (..., m, d) and (..., n, d)."""
    return (x.unsqueeze(-2) - y.unsqueeze(-3)).square().sum(dim=-1)
