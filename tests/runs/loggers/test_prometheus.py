"""Prometheus metrics as Prometheus's own parser reads them."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import fedalpha
from fedalpha.data import Pooled
from fedalpha.runs.callbacks import Callback
from fedalpha.runs.evaluate import Evaluate
from fedalpha.runs.loggers import LOGGERS
from fedalpha.runs.loggers.prometheus import Prometheus


def run(digits: Pooled, *callbacks: str | Callback, **more: Any) -> fedalpha.analysis.history.History:  # type: ignore[name-defined]
    return fedalpha.run(digits, "softmax", rounds=3, engine="embedded(workers=1)", callbacks=callbacks, **more)


def samples(text: str) -> dict[str, float]:
    """The parsed samples; those with labels by name and label."""
    return {
        "/".join([sample.name, *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


class Fail(Callback):
    def on_round(self, row: dict[str, Any], state: object) -> None:
        if row["round"] == 2:
            raise ZeroDivisionError


def test_the_file_tells_the_last_round_and_the_totals(digits: Pooled, tmp_path: Path) -> None:
    rule = str(fedalpha.strategy("cap(FedSoftWorse(T=0.2), 0.5)"))
    watch = Evaluate(every=2, shadow=[rule], keep="best")
    faults = "lie(clients=[3], loss=-1)"
    history = run(digits, f"prometheus('{tmp_path}/a.prom')", evaluate=watch, fault=faults)
    found = samples((tmp_path / "a.prom").read_text())
    last = history.rows[-1]
    assert found["fedalpha_rounds_total"] == found["fedalpha_rounds_planned"] == 3
    assert found["fedalpha_running"] == 0
    assert found["fedalpha_refusals_total"] == sum(len(row["refused"]) for row in history.rows) == 3
    assert found["fedalpha_kept_rounds_total"] == 0
    assert found["fedalpha_alpha_max"] == last["heaviest"]
    assert found["fedalpha_effective_clients"] == last["effective_clients"]
    assert found["fedalpha_cohort_clients"] == 12
    assert found["fedalpha_test_accuracy"] == last["accuracy"]
    assert found["fedalpha_test_loss"] == last["loss"]
    assert found["fedalpha_best_round"] == last["best_round"]
    assert found["fedalpha_round_seconds"] == last["seconds"]
    for name, column in (("sent_bytes", "bytes_down"), ("received_bytes", "bytes_up")):
        assert found[f"fedalpha_{name}_total"] == sum(row[column] for row in history.rows)
    assert found[f"fedalpha_shadow_distance/{rule}"] == last["shadow"][rule]["distance"]


def test_a_resumed_run_counts_on(digits: Pooled, tmp_path: Path) -> None:
    logger = f"prometheus('{tmp_path}/a.prom')"
    with pytest.raises(ZeroDivisionError):
        run(digits, logger, Fail(), out=tmp_path / "run")
    history = run(digits, logger, out=tmp_path / "run")
    found = samples((tmp_path / "a.prom").read_text())
    assert found["fedalpha_rounds_total"] == 3
    assert found["fedalpha_sent_bytes_total"] == sum(row["bytes_down"] for row in history.rows)


def test_the_endpoint_is_on_loopback_while_the_run_lasts(digits: Pooled) -> None:
    logger = Prometheus(port=0)
    seen: list[dict[str, float]] = []
    addresses = []

    class Scrape(Callback):
        def on_round(self, row: dict[str, Any], state: object) -> None:
            addresses.append(logger._server.server_address)
            with urllib.request.urlopen(f"http://127.0.0.1:{addresses[-1][1]}/metrics", timeout=60) as answer:
                seen.append(samples(answer.read().decode()))

    run(digits, logger, Scrape())
    assert [found["fedalpha_rounds_total"] for found in seen] == [0, 1, 2, 3]
    assert all(found["fedalpha_running"] == 1 for found in seen)
    assert {host for host, _ in addresses} == {"127.0.0.1"}
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", addresses[-1][1]), timeout=60)


@pytest.mark.parametrize("header", [{"Host": "evil.example"}, {"Sec-Fetch-Site": "cross-site"}])
def test_pages_of_other_sites_read_nothing(digits: Pooled, header: dict[str, str]) -> None:
    """A host name that resolves to 127.0.0.1 would let any web page read the run (DNS rebinding)."""
    logger = Prometheus(port=0)

    class Ask(Callback):
        def on_start(self, rounds: int) -> None:
            url = f"http://127.0.0.1:{logger._server.server_address[1]}/metrics"
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(urllib.request.Request(url, headers=header), timeout=60)
            asked.append(url)

    asked: list[str] = []
    run(digits, logger, Ask())
    assert asked


def test_a_port_that_is_taken(digits: Pooled) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot serve metrics on 127.0.0.1:{port}.*choose another port"):
            run(digits, f"prometheus(port={port})")


@pytest.mark.parametrize("text", ["prometheus", "prometheus(port=70000)", "prometheus(port=here)"])
def test_wrong_arguments(text: str) -> None:
    with pytest.raises(ValueError, match="prometheus"):
        LOGGERS.parse(text)


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "prometheus_client", None)
    with pytest.raises(ValueError, match=r'pip install "fedalpha\[prometheus\]"'):
        LOGGERS.parse("prometheus(a.prom)")
