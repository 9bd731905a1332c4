"""The form of the server's models: NumPy arrays for a plain mean, tensors for all other rules.

`NumpyForm` needs no torch. `fedalpha.flower.torch_form.TorchForm` wraps arrays as tensors without copying them, so that
the rules of a simulation are used without changes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

from fedalpha.flower.reports import Model, Report, Reports
from fedalpha.flower.sums import Arrays, Running
from fedalpha.round import ServerState


class Form(Protocol):
    """The form of models between messages and rules."""

    def broadcast(self, arrays: Arrays) -> Any:
        """The first broadcast."""

    def changed(self, broadcast: Any, arrays: Arrays) -> Any:
        """The same broadcast with another model."""

    def arrays(self, parameters: Any) -> Arrays:
        """A model, or extras, as NumPy arrays."""

    def parameters(self, arrays: Arrays) -> Any:
        """NumPy arrays as a model, not copied."""

    def report(self, report: Report) -> Any:
        """A report in the form that the rules use."""

    def reports(self, items: Sequence[Any], running: Running | None) -> Any:
        """All reports of a round."""

    def restore(self, tree: dict[str, Any], start: ServerState) -> ServerState:
        """The state that was saved."""


class NumpyForm:
    """NumPy arrays."""

    def broadcast(self, arrays: Arrays) -> Model:
        return Model(arrays)

    def changed(self, broadcast: Model, arrays: Arrays) -> Model:
        return dataclasses.replace(broadcast, parameters=arrays)

    def arrays(self, parameters: Arrays) -> Arrays:
        return parameters

    def parameters(self, arrays: Arrays) -> Arrays:
        return arrays

    def report(self, report: Report) -> Report:
        return report

    def reports(self, items: Sequence[Report], running: Running | None) -> Reports:
        return Reports(items, None if running is None else running.total())

    def restore(self, tree: dict[str, Any], start: ServerState) -> ServerState:
        sent = tree.pop("broadcast")
        return ServerState(broadcast=Model(sent["parameters"], sent["extras"]), **tree)
