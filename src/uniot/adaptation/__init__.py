"""A run from two collections on disk: find the samples, make domains of them, fit a method, write the run folder."""
