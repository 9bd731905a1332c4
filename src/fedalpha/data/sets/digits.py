"""scikit-learn's digits: small pictures, included in a package that is always installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np

from fedalpha.data.sets.base import DATASETS, Partitioned, Samples


@DATASETS.register(reference="scikit-learn; E. Alpaydin, C. Kaynak, UCI, 1998")
class digits(Partitioned):
    """Handwritten digits of 8×8 pixels. Every fifth sample of the label-sorted set is the test part.

    >>> found = digits().load()
    >>> found.train_x.shape, found.test_x.shape
    ((1438, 1, 8, 8), (359, 1, 8, 8))
    """

    shape = (1, 8, 8)
    class_names = tuple("0123456789")
    samples = (1438, 359)
    scale = 16.0
    megabytes = 0.1

    def origin(self) -> tuple[bool, str]:
        return True, "embedded"

    def fetch(self) -> Path:
        """The file in scikit-learn's package, found without importing it, which takes longer than a round."""
        package = importlib.util.find_spec("sklearn")
        for folder in (package and package.submodule_search_locations) or ():
            if (file := Path(folder) / "datasets" / "data" / "digits.csv.gz").is_file():
                return file
        raise FileNotFoundError("scikit-learn's digits are missing; pip install --force-reinstall scikit-learn")

    def load(self) -> Samples:
        table = np.loadtxt(self.fetch(), delimiter=",", dtype=np.uint8)
        x, y = table[:, :-1].reshape(-1, 1, 8, 8), table[:, -1].astype(np.int64)
        # Fixed and stratified: the split is part of every result on this data set.
        test = np.zeros(len(y), dtype=bool)
        test[np.argsort(y, kind="stable")[2::5]] = True
        return Samples(x[~test], y[~test], x[test], y[test])
