"""Toy domains for first steps, the digits of the demo, and the benchmark data sets with their splits."""

from uniot.datasets.toy import ToyDomains, make_toy_domains

__all__ = ["ToyDomains", "make_toy_domains"]
