"""FedLab: the standalone pipeline with a serial trainer. Batches are slices of tensors, not collated samples."""

from __future__ import annotations

import logging
import random
import sys
from unittest.mock import MagicMock

import contestant
import torch

# FedLab imports torchvision for data sets that are not used here; the real one would install another torch.
sys.modules["torchvision"] = MagicMock()
from fedlab.contrib.algorithm.fedavg import FedAvgSerialClientTrainer, FedAvgServerHandler  # noqa: E402
from fedlab.core.standalone import StandalonePipeline  # noqa: E402
from fedlab.utils import Logger  # noqa: E402
from torch_models import arrays, build, with_parameters  # noqa: E402


class Parts:
    """The methods of a data set that the trainer needs."""

    def get_dataloader(self, client, batch_size):
        part = work.part(client)
        here, labels = x[part], y[part]
        return [(here[batch], labels[batch]) for batch in torch.randperm(len(here)).split(batch_size)]


class Timed(StandalonePipeline):
    def evaluate(self):
        """FedLab calls this after each round."""
        clock.stop()
        clock.keep(arrays(self.handler.model))


options = contestant.arguments()
work = contestant.read(options.work)
contestant.versions("fedlab", "torch", "numpy")
torch.set_num_threads(2)
torch.manual_seed(work.seed)
random.seed(work.seed)
x, y = torch.from_numpy(work.x), torch.from_numpy(work.y)
model = with_parameters(build(work.model), work.initial)
quiet = Logger(log_name="fedlab")
logging.getLogger("fedlab").setLevel(logging.WARNING)
handler = FedAvgServerHandler(model, options.rounds, sample_ratio=1.0, logger=quiet)
trainer = FedAvgSerialClientTrainer(model, work.clients, logger=quiet)
trainer.setup_dataset(Parts())
trainer.setup_optim(epochs=1, batch_size=work.batch, lr=work.lr)
clock = contestant.Clock(options.model)
clock.start()
Timed(handler, trainer).main()
