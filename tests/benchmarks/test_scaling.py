"""The model of a round's costs: figures by hand, and the simulation where the model is exact."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import scaling
from benchmarks.pages import shown
from benchmarks.scaling import MBIT, Rates, Setting, bottleneck, cluster, live, queue, simulated

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "scaling.md"


def test_a_round_by_hand() -> None:
    """100 clients, 10⁶ parameters: 4 MB each way over 8 Mbit/s (1 MB/s) at the client, 80 Mbit/s at the server."""
    s = Setting(100, 1_000_000, 10.0, link=80 * MBIT, client_link=8 * MBIT, cores=2)
    found = live(s, Rates(add=2e-9, read=0.0))
    assert found == pytest.approx({"down": 40.0, "compute": 10.0, "up": 40.0, "sum": 0.1, "total": 90.0})
    packed = live(Setting(100, 1_000_000, 10.0, "sparse(share=0.01)", s.link, s.client_link, 2), Rates())
    assert packed["up"] == pytest.approx(0.8)  # 80 kB each, over the server's link
    assert bottleneck(packed) == "down"


def test_a_cluster_by_hand() -> None:
    """100 clients are 34 blocks of at most 3: two workers take 17 each."""
    found = cluster(Setting(100, 1000, 2.0, link=1e6, workers=2), Rates(add=1e-6, task=0.01))
    parts = {"compute": 102.0, "transfer": 0.28, "sum": 0.034, "tasks": 0.34}
    assert found == pytest.approx({**parts, "total": sum(parts.values())})


@pytest.mark.parametrize("upload", [None, "quantised(bits=8)"])
@pytest.mark.parametrize("clients", [1, 10, 10_000, 1_000_000])
def test_the_simulation_is_the_model_for_clients_that_are_alike(clients: int, upload: str | None) -> None:
    """Up to the overlap of sending and receiving, which the model leaves out: at most a factor of 2."""
    for cores, link in ((1, 1e4 * MBIT), (64, 1e12)):
        s = Setting(clients, 100_000, 5.0, upload, link, cores=cores)
        model, found = live(s, Rates(read=2e-9))["total"], simulated(s, Rates(read=2e-9))["total"]
        assert model / 2.01 <= found <= model * 1.01
        if link == 1e12:  # nothing is shared but the cores
            service = s.parameters * 3e-9 / cores
            assert found == pytest.approx(model, abs=clients * 8 * s.parameters / link + service + s.sent / 20 / MBIT)


def test_a_queue_serves_one_after_the_other() -> None:
    arrivals, now, expected = np.sort(np.random.default_rng(0).random(200)), 0.0, []
    for arrival in arrivals.tolist():
        now = max(now, arrival) + 0.004
        expected.append(now)
    np.testing.assert_allclose(queue(arrivals, 0.004), expected)


def test_clients_that_differ_take_longer() -> None:
    s = Setting(1000, 100_000, 30.0)
    totals = [simulated(s, Rates(), spread)["total"] for spread in (0.0, 0.5, 1.0)]
    assert totals == sorted(totals)
    assert simulated(s, Rates(), 1.0)["waiting"] > 0.5


@pytest.mark.skipif(not (ROOT / "docs/results/scaling/results.json").exists(), reason="nothing is stored")
def test_the_page_shows_what_is_stored() -> None:
    stored = json.loads((ROOT / "docs/results/scaling/results.json").read_text())
    assert not stored["quick"]
    assert shown(PAGE, "check") == scaling.check_table(stored["check"]).strip()
    uploads = dict.fromkeys(s.upload for s in scaling.SWEEP)
    given = {u: Rates(**stored["rates"][str(u)]) for u in uploads}
    assert shown(PAGE, "rates") == scaling.rates_table(given).strip()
    assert shown(PAGE, "sweep") == scaling.sweep_table(scaling.sweep(given)).strip()


def test_rates_are_positive_and_reading_is_counted() -> None:
    plain, packed = scaling.rates(None, 20_000, 3), scaling.rates("quantised(bits=4)", 20_000, 3)
    assert plain.read == 0
    assert packed.read >= 0
    assert plain.add >= 0
