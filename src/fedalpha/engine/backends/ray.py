"""The Ray engine: the blocks of a cohort, computed on the workers of a Ray cluster.

Blocks are those of the embedded engine and are merged in the same order, so the bytes are the same,
wherever a block was computed and however often: when a node dies, Ray computes its blocks again
elsewhere. With a linear combine rule a worker sends back one sum per block, not one model per client.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fedalpha.combine import Reports, Sum
from fedalpha.data.federations import Federation
from fedalpha.engine.backends.embedded import _clone
from fedalpha.engine.backends.pool import WorkerError
from fedalpha.engine.backends.site import ClientSite
from fedalpha.round import Evaluation, Ids, Part, Sample, Train
from fedalpha.strategies import Array
from fedalpha.task import Task
from fedalpha.update import Broadcast, Report, Update

try:
    import ray
except ModuleNotFoundError:
    raise ModuleNotFoundError("--engine ray needs Ray: pip install 'fedalpha[ray]'", name="ray") from None

RETRIES = 10
"""How often a block is computed again when its worker or node has died."""


class Ray:
    """Runs clients on a Ray cluster: the one at ``address`` (``auto`` for this machine's), or a new local one."""

    def __init__(
        self,
        federation: Federation,
        task: Task,
        update: Update,
        seed: int,
        workers: int | None = None,
        device: str = "cpu",
        vectorise: bool | None = None,
        address: str | None = None,
    ) -> None:
        self._owned = connect(address, workers)
        self._work = _work.options(num_gpus=1) if device.startswith("cuda") else _work
        self._site = ClientSite(federation, task, update, seed, device, vectorise)
        self._site_ref = ray.put(self._site)
        self._architecture: Any = None
        self._sent: Broadcast | None = None

    def losses(self, broadcast: Broadcast, ids: Ids, sample: Sample | None = None) -> Array:
        found = self._run(broadcast, "losses", [(query,) for query in self._site.queries(ids, sample)])
        return np.array([loss for part in found for loss in part])

    def update(self, broadcast: Broadcast, job: Train) -> Reports:
        reports: list[Report] = []
        total = None if job.alpha is None else Sum()
        tasks = [(order,) for order in self._site.orders(broadcast, job)]
        for some, sums in self._run(broadcast, "train", tasks):
            reports += some
            if total is not None:
                total.merge(*sums)
        return Reports.of_sum(reports, total, broadcast)

    def evaluate(self, broadcast: Broadcast, part: Part) -> Evaluation:
        tasks = [(part, start) for start in self._site.evaluation_tasks(part)]
        found = list(self._run(broadcast, "evaluate", tasks))
        correct = [c for _, c in found if c is not None]
        loss = math.fsum(loss for loss, _ in found)
        return Evaluation(loss / len(self._site.part(part)), np.concatenate(correct) if correct else None)

    def close(self) -> None:
        if self._owned:
            ray.shutdown()

    def _run(self, broadcast: Broadcast, kind: str, tasks: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        """Results in the order of the tasks. Objects that every worker needs are stored once."""
        if self._architecture is not broadcast.architecture:
            self._architecture = broadcast.architecture
            self._architecture_ref = ray.put(broadcast.architecture)
        if self._sent is not broadcast:
            self._sent = broadcast
            self._broadcast_ref = ray.put((broadcast.parameters, broadcast.extras))
        refs = [self._site_ref, self._architecture_ref, self._broadcast_ref]
        yield from _ordered([self._work.remote(refs, kind, task) for task in tasks])


def connect(address: str | None, workers: int | None = None) -> bool:
    """Connect to a cluster, or start a local one. Returns whether it was started here and must be shut down."""
    if ray.is_initialized():
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray's coming default; unset, Ray 2.55 warns about it.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if "://" not in (address or ""):  # Ray's own client describes itself to its server
        options["job_config"] = _job()
    try:
        if address is None:
            _start_on_loopback(include_dashboard=False, num_cpus=workers, **options)
        else:
            _probe(address)
            ray.init(address=address, **options)
    except LoopbackError:
        raise
    except (OSError, ValueError, RuntimeError) as error:
        raise RuntimeError(
            f"no Ray cluster answers at {address or 'this machine'}: {error}; start one with `ray start --head` and "
            "give its address (host:6379), or leave --ray-address out for a local one"
        ) from None
    return True


def _job() -> Any:
    """Ray's description of this process for its workers, which import from the same folders as this process does.

    Ray would add the working directory, where a file ``numpy.py`` of another user would then be run.
    """
    job = ray.job_config.JobConfig()
    if not {"", os.getcwd()} & set(sys.path):
        job._runtime_env_has_working_dir = lambda: True  # type: ignore[method-assign]
    return job


class LoopbackError(RuntimeError):
    """A local cluster would listen on other interfaces than loopback."""


def _start_on_loopback(**options: Any) -> None:
    """Start a cluster that listens on 127.0.0.1 alone: whoever can reach a Ray cluster can run code in it.

    Ray replaces a loopback address by that of the network, except where it was told (as on macOS and Windows, by
    default) that there is no cluster of several machines.
    """
    from ray._private import ray_constants

    variable = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    before, clustered = os.environ.get(variable), ray_constants.ENABLE_RAY_CLUSTER
    os.environ[variable], ray_constants.ENABLE_RAY_CLUSTER = "0", False  # for Ray's processes, and for this one
    try:
        ray.init(address="local", _node_ip_address="127.0.0.1", **options)
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = clustered
        os.environ.pop(variable) if before is None else os.environ.update({variable: before})
    address = ray.nodes()[0]["NodeManagerAddress"]  # type: ignore[no-untyped-call]
    if address != "127.0.0.1":
        ray.shutdown()
        raise LoopbackError(
            f"this version of Ray would listen on {address}, where others could run code; start a cluster of your own "
            "with `ray start --head --node-ip-address=127.0.0.1` and give its address with --ray-address"
        )


def _probe(address: str) -> None:
    """Raise an error if nothing listens at host:port; Ray itself would try for minutes."""
    if "://" not in address and ":" in address:
        host, port = address.rsplit(":", 1)
        with socket.create_connection((host.strip("[]"), int(port)), timeout=10):
            pass


def _ordered(waiting: list[Any]) -> Iterator[Any]:
    """Results in order.

    Tasks that still run when the caller stops early are not cancelled: Ray 2.55 aborts this process if a task ends
    while it is cancelled. Ray ends them when this process leaves the cluster.
    """
    for place, reference in enumerate(waiting):
        try:
            yield ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            raise WorkerError(str(error)) from None
        except ray.exceptions.RayError as error:
            raise WorkerError(
                f"a task was lost {RETRIES} times on the Ray cluster (nodes killed, or out of memory?): {error}"
            ) from None
        waiting[place] = None  # free the memory of results that were taken


_here: dict[str, tuple[str, Any]] = {}
"""In a worker: what was fetched last, by kind, so that it is unpacked once."""


def _fetched(kind: str, reference: Any) -> Any:
    key = reference.hex()
    if kind not in _here or _here[kind][0] != key:
        _here[kind] = (key, ray.get(reference))
    return _here[kind][1]


@ray.remote(num_cpus=1, max_retries=RETRIES)
def _work(refs: list[Any], kind: str, task: tuple[Any, ...]) -> Any:
    import torch

    torch.set_num_threads(1)
    site: ClientSite = _fetched("site", refs[0])
    parameters, extras = _fetched("broadcast", refs[2])
    broadcast = Broadcast(_fetched("architecture", refs[1]), parameters, extras)
    match kind:
        case "losses":
            return site.losses(broadcast, *task)
        case "evaluate":
            return site.evaluate(broadcast, *task)
        case _:
            return site.fulfil(broadcast, task[0], _clone)
