"""Fashion-MNIST: pictures of clothes, in MNIST's format."""

from __future__ import annotations

from pathlib import Path

from fedalpha.data.fetching import Files
from fedalpha.data.idx import FILES, IdxPictures
from fedalpha.data.routes import Apt, Folder, Mirror
from fedalpha.data.sets.base import DATASETS

_DIGESTS = (
    "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
)
_INSTALLED = Path("/usr/share/datasets/fashion-mnist")


@DATASETS.register(reference="Xiao, Rasul, Vollgraf, 2017, 1708.07747")
class fashion_mnist(IdxPictures, name="fashion-mnist"):
    """Clothes and shoes of 28×28 pixels."""

    class_names = (
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    )
    files = Files(
        "fashion-mnist",
        dict(zip(FILES, _DIGESTS, strict=True)),
        (
            Folder("installed Debian package", _INSTALLED, ".gz"),
            Mirror("https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"),
            Mirror("https://storage.googleapis.com/tensorflow/tf-keras-datasets/"),
            # This mirror has no https. Files are trusted by their digests only, whatever the route.
            Mirror("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"),
            Apt("dataset-fashion-mnist", _INSTALLED),
        ),
    )
