"""Three rings in the plane."""

import numpy as np

from fedalpha.data.sets import DATASETS, Partitioned, Samples
from fedalpha.rng import generator


@DATASETS.register(formula="x = r·(cos φ, sin φ), r = label + 1 ± noise", reference="docs/extending.md")
class rings(Partitioned):
    """Points in the plane; their label is the ring that they lie on. The points are the same in every run."""

    shape = (2,)
    class_names = ("inner", "middle", "outer")
    samples = (480, 120)

    noise: float = 0.2

    def load(self) -> Samples:
        random = generator(0, "rings")
        y = random.integers(3, size=600)
        angle = random.uniform(0, 2 * np.pi, size=600)
        radius = y + 1 + self.noise * random.standard_normal(600)
        x = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).astype(np.float32)
        return Samples(x[:480], y[:480], x[480:], y[480:])
