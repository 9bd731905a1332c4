"""Studies: strategies × seeds × settings, paired, resumable, in one folder of plain files."""

from fedalpha.study.cells import Cell
from fedalpha.study.entries import Published
from fedalpha.study.plan import Study, study
from fedalpha.study.reading import read_study
from fedalpha.study.runner import CellError, run_study
from fedalpha.study.seeds import parse_seeds
from fedalpha.study.status import Status, load_study, status
from fedalpha.study.store import Store
from fedalpha.study.tables import Result
from fedalpha.study.tuning.answer import Answer, Verdict
from fedalpha.study.tuning.journal import read_tuning
from fedalpha.study.tuning.runner import tune

__all__ = [
    "Answer",
    "Cell",
    "CellError",
    "Published",
    "Result",
    "Status",
    "Store",
    "Study",
    "Verdict",
    "load_study",
    "parse_seeds",
    "read_study",
    "read_tuning",
    "run_study",
    "status",
    "study",
    "tune",
]
