"""Writes a self-contained HTML page of stored runs: tables, figures, definitions and the command that repeats the run."""

from vitpos.report.page import write_report

__all__ = ["write_report"]
