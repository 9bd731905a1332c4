"""Flower: its simulation runtime on Ray, two client actors of one thread each, samples mapped from disk."""

from __future__ import annotations

import time
import warnings

import contestant
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch_models import build, with_parameters

options = contestant.arguments()
client_app, server_app = ClientApp(), ServerApp()
folder, rounds, checked = options.work, options.rounds, options.model


@client_app.train()
def train(message, context):
    from torch.nn.functional import cross_entropy

    torch.set_num_threads(1)
    work = contestant.kept_work(folder, mapped=True)
    part = work.part(int(context.node_config["partition-id"]))
    x, y = torch.from_numpy(work.x[part]), torch.from_numpy(work.y[part])
    model = build(work.model)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=work.lr)
    for batch in torch.randperm(len(x)).split(work.batch):
        optimizer.zero_grad()
        cross_entropy(model(x[batch]), y[batch]).backward()
        optimizer.step()
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": len(x)})}
    return Message(content=RecordDict(content), reply_to=message)


class Timed(FedAvg):
    """A round lasts from its configuration to the end of its aggregation."""

    def configure_train(self, *args, **kwargs):
        self.started = time.perf_counter()
        return super().configure_train(*args, **kwargs)

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        failed = [reply for reply in replies if reply.has_error()]
        if failed:
            raise RuntimeError(f"{len(failed)} of {len(replies)} clients failed: {failed[0].error.reason}")
        found = super().aggregate_train(server_round, replies)
        clock.stop(time.perf_counter() - self.started)
        clock.keep({name: value.numpy() for name, value in found[0].to_torch_state_dict().items()})
        return found


@server_app.main()
def serve(grid, context):
    clients = work.clients
    strategy = Timed(fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)
    initial = ArrayRecord(with_parameters(build(work.model), work.initial).state_dict())
    strategy.start(grid=grid, initial_arrays=initial, num_rounds=rounds)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    contestant.versions("flwr", "ray", "torch", "numpy")
    work = contestant.read(folder, mapped=True)
    clock = contestant.Clock(checked)
    run_simulation(
        server_app,
        client_app,
        num_supernodes=work.clients,
        backend_config={
            "init_args": {"num_cpus": 2, "include_dashboard": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
