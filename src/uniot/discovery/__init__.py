"""Discover the target's private classes: their number, the groups of unknown samples, and absent source classes."""
