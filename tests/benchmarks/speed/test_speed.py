"""The speed bench as an instrument: it runs contestants, watches them and computes; no speed is judged here."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.speed import bench as module
from benchmarks.speed import profile as profiles
from benchmarks.speed.bench import bench
from benchmarks.speed.contest import Contestant, measure
from benchmarks.speed.environments import PEERS, Unavailable, python_of
from benchmarks.speed.goals import Goal, goals, same_work
from benchmarks.speed.memory import tree, used
from benchmarks.speed.results import RATES, cells, rates, roofline
from benchmarks.speed.workloads import FULL, QUICK, prepare
from flower.real import alive, until

TINY = dataclasses.replace(QUICK, a=(3, 64), b=(6, 40))


def run(workload, name, repetition, seconds, **more):
    return {
        "workload": workload,
        "name": name,
        "title": name,
        "repetition": repetition,
        "seconds": seconds,
        "extra_bytes": [],
        "versions": {},
        **more,
    }


@pytest.fixture(scope="module", autouse=True)
def few():
    """Of the combine rules and the commands, each a process of its own, two: one timed in every turn and one once."""
    own = module._own

    def some(workloads, work, sizes):
        kept = {"E": {"mean", "median"}, "start": {"python", "import"}}
        return [c for c in own(workloads, work, sizes) if c.name in kept.get(c.workload, {c.name})]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_own", some)
        yield


@pytest.fixture(scope="module")
def measured(tmp_path_factory, few):
    out = tmp_path_factory.mktemp("speed")
    record = bench(out, out / "cache", TINY, workloads=("B", "E"), peers=("plain",), limit=1200, say=lambda _: None)
    return record, out


def test_the_bench_writes_what_it_measured(measured):
    record, out = measured
    assert json.loads((out / "results.json").read_text()) == json.loads(json.dumps(record))
    assert [r["error"] for r in record["runs"] if "error" in r] == []
    taken = {(r["workload"], r["name"], r["repetition"]) for r in record["runs"]}
    assert {("B", "plain", 0), ("B", "plain", 1), ("B", "fedalpha", 0), ("B", "fedalpha", 1), ("E", "mean", 1)} <= taken
    table = (out / "table.md").read_text()
    assert "plain PyTorch loop" in table
    assert "not the sizes of the goals" in table
    assert (out / "rounds.png").stat().st_size > 1000


def test_the_peak_is_the_largest_rate_of_arithmetic_that_was_measured(measured):
    record, out = measured
    (found,) = record["rates"]
    assert set(found) == {name for name in RATES if not (record["no_peak"] and name.startswith("fma"))}
    assert min(found.values()) > 0
    limit = roofline(found)
    assert limit is not None
    assert limit[1] == max(value for name, value in found.items() if not name.startswith("copy"))
    table = (out / "table.md").read_text()
    assert all(RATES[name] in table for name in found)
    assert record["roofline"] in table
    assert ("were not measured" in table) == bool(record["no_peak"])


def test_contestants_do_the_same_work(measured):
    record, _ = measured
    found = cells(record["runs"], record["initial"])
    assert found["B", "plain"].progress == 1
    assert found["B", "fedalpha"].progress == pytest.approx(1, abs=0.2)
    assert found["B", "fedalpha"].loss < record["initial"]["B"]
    assert found["B", "fedalpha"].pss > 10**7


def test_the_rates_of_goals_come_from_the_runs(measured):
    record, _ = measured
    found = cells(record["runs"], record["initial"])
    by_text = {(g.workload, g.text): g for g in goals(found, rates(record["rates"]), TINY)}
    assert by_text["B", f"times faster than {PEERS['pfl'].title}"].verdict == "not measured"
    share = next(g.value for (w, text), g in by_text.items() if w == "E" and "bandwidth" in text)
    assert share is not None
    assert share > 0


def test_medians_leave_out_the_first_round_and_the_memory_run():
    runs = [
        run("A", "fedalpha", 0, [9, 9, 9], pss=5),
        run("A", "fedalpha", 1, [7, 1, 3]),
        run("A", "fedalpha", 2, [5, 2, 2]),
    ]
    cell = cells(runs, {})["A", "fedalpha"]
    assert (cell.median, cell.spread, cell.first, cell.pss) == (2, (1, 3), 6, 5)


def test_a_failed_run_is_shown_and_not_timed():
    cell = cells([run("A", "pfl", 0, []), run("A", "pfl", 1, [1, 1], error="ended with 1: boom")], {})["A", "pfl"]
    assert cell.median is None
    assert cell.error == "ended with 1: boom"


def test_other_work_is_noticed():
    runs = [run("A", n, 0, [1], loss=loss) for n, loss in (("plain", 1.0), ("fedalpha", 1.02), ("pfl", 1.5))]
    assert [c.name for c in same_work(cells(runs, {"A": 2.0}), 0.05)] == ["pfl"]


def test_goals_by_hand():
    runs = [run("A", "fedalpha", 1, [9, 10], pss=10**9), run("A", "plain", 1, [9, 23]), run("A", "pfl", 1, [9, 30])]
    runs += [run("C", str(n), 1, [9, s]) for n, s in ((10, 1.0), (100, 1.1), (1000, 1.3))]
    runs += [run("D", "everybody", 1, [9, 10]), run("D", "skipping", 1, [9, 3])]
    found = goals(cells(runs, {}), {"sgemm_torch_threads": 150.0, "fma_together": 200.0}, FULL)
    verdicts = {(g.workload, g.text): (None if g.value is None else round(g.value, 3), g.verdict) for g in found}
    assert verdicts["A", "times faster than plain PyTorch loop, 2 threads"] == (2.3, "resolved")
    assert verdicts["A", "times faster than pfl 0.6.0"] == (3.0, "met")
    assert verdicts["A", "share of the machine's peak (fused multiply-adds, all cores together)"] == (
        0.428,
        "not met",
    )  # 85.54 of 200 GFLOP/s
    assert verdicts["A", "summed PSS"] == (1.0, "met")
    assert verdicts["C", "round time, slowest over fastest population"] == (1.3, "not met")
    assert verdicts["D", "FedWorse(k=0.1) round over FedAvg round"] == (0.3, "met")
    assert verdicts["start", "import fedalpha"] == (None, "not measured")
    assert Goal("A", "", 0.4, "≤", 0.35, 0.45).verdict == "resolved"


def test_a_library_faster_than_the_kernel_is_the_peak():
    found = goals(
        cells([run("A", "fedalpha", 1, [9, 10])], {}), {"sgemm_numpy_threads": 100.0, "fma_one_core": 90.0}, FULL
    )
    (share,) = [g for g in found if g.text.startswith("share of the machine's peak")]
    assert share.text.endswith("(sgemm of NumPy, a thread per core)")
    assert share.value == pytest.approx(0.855, abs=0.001)


def test_memory_counts_children_and_shared_pages_once():
    code = """
import mmap, os, time
held = mmap.mmap(-1, 64 * 2**20)
held.write(b"x" * len(held))
if os.fork():
    print("ready", flush=True)
else:
    assert held[:1] == b"x"
time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        pids = tree(process.pid)
        assert len(pids) == 2
        pss, rss = used(process.pid)
        assert 64 * 2**20 < pss < 110 * 2**20
        assert rss >= pss
    finally:
        for pid in reversed(tree(process.pid)):
            subprocess.run(["kill", "-9", str(pid)], check=False)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_a_process_over_its_limit_is_ended_with_its_children(tmp_path):
    pids = tmp_path / "pids"
    code = f"""
import os, time
child = os.fork()
if child:
    open({str(pids)!r}, "w").write(f"{{os.getpid()}} {{child}}")
time.sleep(600)
"""
    for limit in (2, 20, 200):
        found = measure(Contestant("A", "x", "x", [sys.executable, "-c", code]), limit=limit, watch=False)
        if pids.exists():  # a busy machine may need longer to start it
            break
    assert found["error"] == f"not done after {limit} s"
    for pid in pids.read_text().split():
        until(lambda pid=pid: not alive(int(pid)))


def test_a_failing_contestant_says_why():
    found = measure(Contestant("A", "x", "x", [sys.executable, "-c", "raise KeyError('pfl')"]), limit=60, watch=False)
    assert found["error"] == "ended with 1: KeyError: 'pfl'"


def test_a_peer_that_cannot_be_installed_is_reported(tmp_path, monkeypatch):
    wrong = tmp_path / "wrong.txt"
    wrong.write_text(str(tmp_path / "no-such-package.whl"))
    peer = dataclasses.replace(PEERS["pfl"], name="wrong")
    monkeypatch.setattr(type(peer), "requirements", property(lambda _: wrong))
    with pytest.raises(Unavailable, match=r"pfl 0\.6\.0 could not be installed: .*no-such-package"):
        python_of(peer, tmp_path / "cache", lambda _: None)


def test_every_peer_has_its_files():
    for peer in PEERS.values():
        assert peer.script.exists()
        if peer.installs:
            pins = [line for line in peer.requirements.read_text().splitlines() if not line.startswith("#")]
            assert all("==" in pin for pin in pins)
            assert not any(pin.startswith(("torch==", "torchvision")) for pin in pins)


def test_prepared_work_is_the_same_every_time(tmp_path):
    one, two = (prepare("A", TINY, tmp_path / name) for name in ("one", "two"))
    assert (np.load(one / "x.npy") == np.load(two / "x.npy")).all()
    assert np.load(one / "x.npy").shape == (3 * 64, 1, 28, 28)
    assert np.diff(np.load(one / "offsets.npy")).tolist() == [64, 64, 64]


def test_the_profile_accounts_for_the_whole_time(tmp_path, monkeypatch):
    monkeypatch.setattr(profiles, "_rates", lambda rates=profiles._rates: rates(256, 0.05))
    text = profiles.profile(tmp_path, clients=1)
    assert text == (tmp_path / "profile.md").read_text()
    found = json.loads((tmp_path / "profile.json").read_text())
    assert found["cnn"]["count"] == 10
    assert found["softmax"]["count"] == 1000
    assert found["cnn"]["operations"]["aten::mkldnn_convolution"] > 0
    for section in text.split("## ")[1:]:
        shares = [float(row.split("|")[3].strip(" %")) for row in section.splitlines() if row.endswith("% |")]
        assert 98 < sum(shares) < 101
        assert "pooling" in section or "gathering" in section


def test_other_workloads_can_be_kept(measured, tmp_path):
    record, out = measured
    stored = Path(shutil.copy(out / "results.json", tmp_path))
    both = bench(tmp_path, tmp_path, TINY, workloads=("start",), peers=(), keep=True, say=lambda _: None)
    kept = {name: value for name, value in both.items() if name in ("rates", "no_peak", "initial")}
    kept["runs"] = [run for run in both["runs"] if run["workload"] != "start"]
    assert kept == json.loads(json.dumps({name: record[name] for name in kept}))
    assert {run["workload"] for run in both["runs"]} == {"B", "E", "start"} == set(both["workloads"])
    with pytest.raises(ValueError, match="another sizes"):
        bench(tmp_path, tmp_path, dataclasses.replace(TINY, updates=4), workloads=("E",), peers=(), keep=True)
    stored.write_text(json.dumps(json.loads(stored.read_text()) | {"roofline": "torch's sgemm"}))
    with pytest.raises(ValueError, match="another roofline: torch's sgemm"):
        bench(tmp_path, tmp_path, TINY, workloads=("start",), peers=(), keep=True)


def test_rates_are_dropped_with_the_other_workload_that_is_compared_with_them(tmp_path):
    """A and E: measuring one again drops the other, whose share of the old rates would be shown beside the new ones."""
    old = {"machine": 1, "sizes": {}, "roofline": "", "initial": {}, "rates": [{}], "no_peak": None}
    old |= {"workloads": {"A": "a", "B": "b"}, "runs": [run("A", "x", 1, [1]), run("B", "x", 1, [1])]}
    (tmp_path / "results.json").write_text(json.dumps(old))
    new = {**old, "workloads": {"E": "e"}, "rates": [], "runs": []}
    module._keep(new, tmp_path / "results.json", ("E",))
    assert list(new["workloads"]) == ["B", "E"]
    assert [run["workload"] for run in new["runs"]] == ["B"]
    assert new["rates"] == []
