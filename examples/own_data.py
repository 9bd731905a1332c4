"""Three hospitals with data of their own, a model of your own, and a loss of your own."""

import numpy as np
from torch import nn

import fedalpha

random = np.random.default_rng(0)


def patients(number: int, shift: float) -> tuple[np.ndarray, np.ndarray]:
    """Readings with a threshold that differs a little between hospitals."""
    x = random.normal(size=(number, 6)).astype("float32")
    return x, (x[:, 0] + 0.5 * x[:, 1] > shift).astype(int)


hospitals = [patients(300, 0.0), patients(80, 0.3), patients(40, -0.8)]
tests = [patients(100, 0.0), patients(100, 0.3), patients(100, -0.8)]  # one test part for each
task = fedalpha.Task(loss=nn.CrossEntropyLoss(label_smoothing=0.05), scores="balanced_accuracy")
federation = fedalpha.federation(hospitals, test=tests, task=task)
print(federation)

model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
for strategy in ("FedAvg", "FedSoftWorse(T=0.1)"):
    history = fedalpha.run(federation, model, strategy, rounds=20, update="sgd(lr=0.2, batch=16)")
    last = history[-1]
    print(f"{strategy:20} accuracy per hospital {np.round(last['client_accuracy'], 2)}, α {np.round(last['alpha'], 2)}")

model.load_state_dict(history.model)  # the trained parameters, for use outside of fedalpha
