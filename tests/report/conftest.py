"""A finished study, small but with everything a report can show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedalpha.study import run_study, study

VALUES: dict[str, Any] = {
    "name": "shown",
    "title": "Which <rule> is first & best?",
    "strategies": ["FedAvg", "FedSoftBetter(T=1)", "FedSoftBetterAvg(T=1, at=20)", "FedWorse"],
    "seeds": 3,
    "measures": ["R_60", "accuracy", "accuracy@2", "auc", "bytes_to_60", "worst_client_accuracy"],
    "zoom": [{"rounds": [2, 5]}],
    "published": [{"strategy": "FedAvg", "measure": "R_60", "mean": 3.5, "half": 0.5}],
    "settings": {
        "dataset": "digits",
        "clients": 6,
        "model": "softmax",
        "rounds": 6,
        "lr": 0.5,
        "batch": 32,
        "ratio": 0.8,
    },
}


@pytest.fixture(scope="session")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from fedalpha.report import write_report

    folder = tmp_path_factory.mktemp("report") / "shown"
    run_study(study(VALUES), folder)
    write_report(folder)
    return folder
