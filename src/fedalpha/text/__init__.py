"""Objects as text (`Registry`, `Spelled`), and texts for people (`shown`, `quoted`, `nearest` …)."""

from fedalpha.text.registry import LONGEST, Entry, Registry, import_all
from fedalpha.text.shown import cleaned, counted, nearest, plain, quoted, shown, whole
from fedalpha.text.spelled import Spelled, call

__all__ = [
    "LONGEST",
    "Entry",
    "Registry",
    "Spelled",
    "call",
    "cleaned",
    "counted",
    "import_all",
    "nearest",
    "plain",
    "quoted",
    "shown",
    "whole",
]
