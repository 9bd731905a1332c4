"""The state of a run as Prometheus metrics: a text file, or an endpoint on this machine."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedalpha.analysis.history import History, Row
from fedalpha.loopback import LOOPBACK, asked_here
from fedalpha.round import ServerState
from fedalpha.runs.callbacks import Callback
from fedalpha.runs.loggers.base import LOGGERS
from fedalpha.store import write_atomically

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_GAUGES = {
    "accuracy": ("test_accuracy", "Test accuracy when the model was last tested, between 0 and 1"),
    "loss": ("test_loss", "Test loss when the model was last tested"),
    "validation_accuracy": ("validation_accuracy", "Accuracy on the validation part, where it is looked at"),
    "validation_loss": ("validation_loss", "Loss on the validation part, where it is looked at"),
    "heaviest": ("alpha_max", "The largest weight of a client in the last round"),
    "effective_clients": ("effective_clients", "1 / sum of squared weights in the last round"),
    "best_round": ("best_round", "The round of the best model so far, where it is kept"),
    "seconds": ("round_seconds", "Seconds that the last round took"),
}
_TOTALS = {
    "bytes_down": ("sent_bytes", "Bytes that the server sent to clients"),
    "bytes_up": ("received_bytes", "Bytes that clients sent to the server"),
    "steps": ("local_steps", "Local steps of all clients"),
    "seconds": ("seconds", "Seconds of all rounds"),
}


@LOGGERS.register(name="prometheus", examples=("prometheus(fedalpha.prom)",))
class Prometheus(Callback):
    """Metrics of the run for Prometheus, updated after every round.

    ``path`` is a text file that is replaced atomically, for the textfile collector of node_exporter. ``port`` serves
    the same text on 127.0.0.1 while the run lasts (0: any free port), never on another address or for pages of other
    sites. Give one of them, or
    both. A resumed run counts on from its saved rows. Needs ``pip install "fedalpha[prometheus]"``.
    """

    def __init__(self, path: str | None = None, port: int | None = None) -> None:
        if path is None and port is None:
            raise ValueError(
                "prometheus needs a path or a port, as in prometheus(fedalpha.prom), prometheus(port=9100)"
            )
        if port is not None and (isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535):
            raise ValueError(f"prometheus: port = {port!r}; give a number between 0 and 65535")
        _client()  # says what to install, before anything is trained
        self.path = None if path is None else Path(path)
        self.port = port
        self._server: Any = None
        self._metrics: list[Metric] = []

    def on_start(self, rounds: int) -> None:
        self._rounds = rounds
        self._rows = self._refusals = self._kept = 0
        self._sums: dict[str, float] = dict.fromkeys(_TOTALS, 0)
        self._last: dict[str, Any] = {}
        self._publish(running=True)
        if self.port is not None:
            self._serve(self.port)

    def on_resume(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._count(row)
        self._publish(running=True)

    def on_round(self, row: Row, state: ServerState) -> bool | None:
        self._count(row)
        self._publish(running=True)
        return None

    def on_end(self, history: History) -> None:
        self._publish(running=False)
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def collect(self) -> Iterable[Metric]:
        """What a scrape gets: the metrics after the last round, as one list that is replaced as a whole."""
        return self._metrics

    def _count(self, row: Row) -> None:
        self._rows += 1
        self._refusals += len(row.get("refused") or ())
        self._kept += row.get("kept") is not None
        for name in self._sums:
            self._sums[name] += row.get(name) or 0
        # A round that was not tested leaves the figures of the last test.
        self._last |= {name: value for name, value in row.items() if value is not None}

    def _publish(self, running: bool) -> None:
        self._metrics = self._families(running)
        if self.path is not None:
            registry = _client().CollectorRegistry()
            registry.register(self)
            write_atomically(self.path, _client().generate_latest(registry))

    def _families(self, running: bool) -> list[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        def gauge(name: str, text: str, value: float) -> Metric:
            return GaugeMetricFamily(f"fedalpha_{name}", text, value=value)

        found: list[Metric] = [
            gauge("running", "1 while the run lasts, else 0", float(running)),
            gauge("rounds_planned", "Number of rounds of the whole run", self._rounds),
            gauge("last_change_timestamp_seconds", "When these numbers were written", time.time()),
            CounterMetricFamily("fedalpha_rounds", "Finished rounds", value=max(0, self._rows - 1)),
            CounterMetricFamily("fedalpha_refusals", "Answers and reports that were refused", value=self._refusals),
            CounterMetricFamily("fedalpha_kept_rounds", "Rounds in which the model was kept", value=self._kept),
        ]
        found += [gauge(name, text, self._last[key]) for key, (name, text) in _GAUGES.items() if key in self._last]
        if "cohort" in self._last:
            found.append(gauge("cohort_clients", "Clients of the last round", len(self._last["cohort"])))
        for key, (name, text) in _TOTALS.items():
            found.append(CounterMetricFamily(f"fedalpha_{name}", text, value=self._sums[key]))
        distance = GaugeMetricFamily(
            "fedalpha_shadow_distance",
            "Total variation between the weights of a shadow rule and those that were applied",
            labels=["rule"],
        )
        for rule, shadow in self._last.get("shadow", {}).items():
            if "distance" in shadow:
                distance.add_metric([rule], shadow["distance"])
        return [*found, distance] if distance.samples else found

    def _serve(self, port: int) -> None:
        registry = _client().CollectorRegistry()
        registry.register(self)
        try:
            self._server, _ = _client().start_http_server(port, addr=LOOPBACK, registry=registry)
        except OSError as error:
            raise OSError(
                f"cannot serve metrics on {LOOPBACK}:{port}: {error.strerror}; choose another port, or write a file"
            ) from None
        answer = self._server.get_app()

        def checked(asked: dict[str, Any], start: Any) -> Any:
            if asked_here(asked.get("HTTP_HOST"), asked.get("HTTP_SEC_FETCH_SITE")):
                return answer(asked, start)
            start("403 Forbidden", [])
            return []

        self._server.set_app(checked)


def _client() -> Any:
    try:
        import prometheus_client
    except ImportError:
        raise ValueError(
            'the logger prometheus needs prometheus-client; install it with: pip install "fedalpha[prometheus]"'
        ) from None
    return prometheus_client
