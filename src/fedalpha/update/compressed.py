"""A client update whose result is sent through an upload: what the server reads is then the client's model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedalpha.data.federations import Examples
from fedalpha.models import Parameters
from fedalpha.rng import Draws
from fedalpha.update.base import Broadcast, Report, Site, Update
from fedalpha.upload import Packed, Upload, Vector, added, difference

_LOST = "upload"
"""In a client's state: what its uploads have lost so far, as a vector."""


@dataclass(frozen=True, eq=False)
class Written:
    """A report as a client sends it: ``packed`` stands for the parameters that are not ``whole``."""

    report: Report
    packed: Packed
    whole: Parameters

    @property
    def nbytes(self) -> int:
        return sum(v.nbytes for v in self.packed.values()) + sum(v.nbytes for v in self.whole.values())


class Compressed(Update):
    """The inner update, then the upload. It is what engines are given; it has no text."""

    of: Update
    upload: Upload

    def update(
        self,
        site: Site,
        broadcast: Broadcast,
        data: Examples,
        state: Mapping[str, Any],
        draws: Draws,
        wanted: frozenset[str] = frozenset(),
    ) -> Report:
        return self.read(broadcast, self.written(site, broadcast, data, state, draws, wanted))

    def written(
        self,
        site: Site,
        broadcast: Broadcast,
        data: Examples,
        state: Mapping[str, Any],
        draws: Draws,
        wanted: frozenset[str] = frozenset(),
    ) -> Written:
        """Train, and write the update."""
        inner = {name: value for name, value in state.items() if name != _LOST}
        report = self.of.update(site, broadcast, data, inner, draws, wanted)
        return self.write(site, broadcast, report, state, draws)

    def write(
        self, site: Site, broadcast: Broadcast, report: Report, state: Mapping[str, Any], draws: Draws
    ) -> Written:
        """A report of the inner update as it is sent; ``state`` is the one with which the client began the round.

        A model that is not finite is sent whole, so that the server refuses it as it does without an upload.
        """
        model, upload = report.parameters, self.upload
        assert model is not None
        trained = {name for name in site.trained(broadcast) if model[name].is_floating_point()}
        x = difference(_arrays(model, trained), _arrays(broadcast.parameters, trained))
        if upload.remembers:
            x += _fitting(state.get(_LOST), x)
        if not np.isfinite(x).all():
            trained, x = set(), x[:0]
        packed = upload.encode(x, draws("upload"))
        if upload.remembers:
            report = dataclasses.replace(report, state={**report.state, _LOST: x - upload.decode(packed, len(x))})
        return Written(report, packed, {name: value for name, value in model.items() if name not in trained})

    def read(self, broadcast: Broadcast, written: Written) -> Report:
        """The report with the model that a server reads, and with the bytes in which it was sent."""
        sent = broadcast.parameters
        packed = _arrays(sent, sent.keys() - written.whole.keys())
        values = self.upload.decode(written.packed, sum(value.size for value in packed.values()))
        moved = {name: torch.from_numpy(value).to(sent[name].dtype) for name, value in added(values, packed).items()}
        model = {name: moved[name] if name in moved else written.whole[name] for name in sent}
        return dataclasses.replace(written.report, parameters=model, uploaded=written.nbytes)


def _arrays(parameters: Parameters, names: Any) -> dict[str, NDArray[Any]]:
    return {name: _array(parameters[name]) for name in names}


def _array(value: Tensor) -> NDArray[Any]:
    """A tensor as an array; NumPy has no bfloat16, whose values float32 holds."""
    found = value.detach().cpu()
    array: NDArray[Any] = (found.float() if found.dtype is torch.bfloat16 else found).numpy()
    return array


def _fitting(lost: object, like: Vector) -> Vector | float:
    """What uploads have lost; nothing if that is of a model of another size."""
    fits = isinstance(lost, np.ndarray) and lost.shape == like.shape and lost.dtype == like.dtype
    return lost if fits else 0.0  # type: ignore[return-value]
