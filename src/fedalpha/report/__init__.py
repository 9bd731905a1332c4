"""Reports: the results of a study as a page, tables and figures."""

from fedalpha.report.console import console_tables
from fedalpha.report.findings import Findings, gather
from fedalpha.report.live import live_server
from fedalpha.report.pages import fill_page
from fedalpha.report.write import write_report

__all__ = ["Findings", "console_tables", "fill_page", "gather", "live_server", "write_report"]
