"""The report: one page of a run, its figures with their data, and the browser of its dialogues."""

from triagesim.report.page import Sources, write_report

__all__ = ["Sources", "write_report"]
