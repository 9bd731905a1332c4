"""Reports: what a study found, as a page, tables and figures."""

from fedalpha.report.findings import Findings, gather
from fedalpha.report.tables import console_tables

__all__ = ["Findings", "console_tables", "gather"]
