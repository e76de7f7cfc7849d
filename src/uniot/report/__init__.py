"""A finished run for people to look at: a page, and figures for papers."""

from uniot.report.writing import Written, write_report

__all__ = ["Written", "write_report"]
