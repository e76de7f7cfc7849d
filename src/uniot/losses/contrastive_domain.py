"""Samples of a class come closer across the domains, samples of different classes go apart."""

from __future__ import annotations

from torch import Tensor

from uniot.losses.discrepancy import gaussian_kernels


def contrastive_domain_discrepancy(source: Tensor, target: Tensor, n_kernels: int = 5, factor: float = 2.0) -> Tensor:
    """Mean discrepancy of a class with itself, less that of different classes; with one class the former alone.

    The discrepancy of source class c and target class c' is the squared maximum mean discrepancy

        mean k(s, s') + mean k(t, t') - 2 mean k(s, t),   k(x, y) = sum_i exp(-||x - y||² / (γ factor^i)),

    with s, s' of class c, t, t' of class c', the exponents i centred on zero, and γ the mean squared distance of two
    different samples among them, which carries no gradient.

    Args:
        source: (c, m, d), m samples of each class.
        target: (c, n, d), of the same classes in the same order.
        n_kernels: how many widths are added up.
        factor: between a width and the next.

    Paper: Kang et al., Contrastive Adaptation Network, CVPR 2019, Eq. (3)-(5).
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
    """(..., m, d) and (..., n, d) to (..., m, n)."""
    return (x.unsqueeze(-2) - y.unsqueeze(-3)).square().sum(dim=-1)
