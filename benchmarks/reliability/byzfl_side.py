"""Runs in ByzFL's own environment: its aggregators on vectors from a file. Not imported by fedalpha.

``python byzfl_side.py vectors.npz results.npz f``: for every array of the first file and every aggregator
a vector is written as ``<array>/<aggregator>``; an aggregator that fails writes nothing.
"""

import sys
import types


def stub(name: str) -> None:
    """An empty module: ByzFL imports it for its data sets and plots, which are not used here."""

    class Anything(types.ModuleType):
        def __getattr__(self, attribute: str) -> object:
            if attribute.startswith("__"):
                raise AttributeError(attribute)
            return Anything(attribute)

        def __call__(self, *_: object, **__: object) -> object:
            return self

    for part in (name, f"{name}.datasets", f"{name}.transforms"):
        sys.modules[part] = Anything(part)


for missing in ("torchvision", "seaborn"):
    stub(missing)

import byzfl  # type: ignore[import-not-found]  # noqa: E402
import numpy as np  # noqa: E402


def aggregators(f: int) -> dict[str, object]:
    """New aggregators for every array, because ByzFL's centred clipping starts from its last result."""
    return {
        "average": byzfl.Average(),
        "median": byzfl.Median(),
        "trimmed": byzfl.TrMean(f),
        "geomed": byzfl.GeometricMedian(nu=1e-6, T=1000),
        "krum": byzfl.Krum(f),
        "multi-krum": byzfl.MultiKrum(f),
        "centred": byzfl.CenteredClipping(L=1, tau=1.0),
        "nnm + trimmed": lambda vectors: byzfl.TrMean(f)(byzfl.NNM(f)(vectors)),
    }


def main(source: str, target: str, f: int) -> None:
    results = {}
    for name, vectors in np.load(source).items():
        for rule, aggregator in aggregators(f).items():
            try:
                results[f"{name}/{rule}"] = np.asarray(aggregator(vectors))  # type: ignore[operator]
            except Exception as error:
                print(f"{name}/{rule}: {type(error).__name__}: {error}", file=sys.stderr)
    np.savez(target, **results)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
