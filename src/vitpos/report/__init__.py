"""One self-contained HTML page of stored runs: tables, figures, definitions, and how to make it again."""

from vitpos.report.page import write_report

__all__ = ["write_report"]
