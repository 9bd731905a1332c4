"""pfl-research: simulated federated averaging. As in its examples, a user's batches keep their order."""

from __future__ import annotations

import contestant
import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch.nn.functional import cross_entropy
from torch_models import arrays, build, with_parameters


class Laps(TrainingProcessCallback):
    """Stops the clock after each round. pfl evaluates in its first round, which is not compared."""

    def on_train_begin(self, *, model):
        clock.start()
        return Metrics()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        clock.stop()
        clock.keep(arrays(module))
        return False, Metrics()


options = contestant.arguments()
work = contestant.read(options.work)
contestant.versions("pfl", "torch", "numpy")
torch.set_num_threads(2)
torch.manual_seed(work.seed)
np.random.seed(work.seed)
x, y = torch.from_numpy(work.x), torch.from_numpy(work.y)
module = with_parameters(build(work.model), work.initial)
module.loss = lambda inputs, targets: cross_entropy(module(inputs), targets)
module.metrics = lambda inputs, targets: {
    "loss": Weighted(float(module.loss(inputs, targets)) * len(inputs), len(inputs))
}
users = [Dataset((x[work.part(i)], y[work.part(i)]), user_id=str(i)) for i in range(work.clients)]
sampler = get_user_sampler("minimize_reuse", list(range(work.clients)))
federation = FederatedDataset(users.__getitem__, sampler)
model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
clock = contestant.Clock(options.model)
FederatedAveraging().run(
    NNAlgorithmParams(options.rounds, evaluation_frequency=10**9, train_cohort_size=work.clients, val_cohort_size=0),
    SimulatedBackend(federation, federation),
    model,
    NNTrainHyperParams(work.batch, local_num_epochs=1, local_learning_rate=work.lr),
    NNEvalHyperParams(work.batch),
    [Laps()],
    send_metrics_to_platform=False,
)
