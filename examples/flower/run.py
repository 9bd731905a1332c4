"""Start a Flower federation on this machine, train digits with two strategies, print a table, stop it all.

python run.py            # plain connections on loopback
python run.py --tls      # encrypted, and only registered nodes are let in
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from pathlib import Path

from deployment import Deployment
from rich.console import Console
from rich.table import Table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tls", action="store_true", help="TLS and node authentication")
    parser.add_argument("--nodes", type=int, default=3, help="SuperNodes, one client each")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--strategy", action="append", help="fedalpha strategy (repeatable)")
    parser.add_argument("--folder", type=Path, help="where to keep logs and results (default: a temporary folder)")
    given = parser.parse_args()
    strategies = given.strategy or ["FedAvg", "FedSoftWorse(T=0.2)", "FedWorse(k=1)"]
    with tempfile.TemporaryDirectory(prefix="fedalpha-flower-") as temporary:
        folder = (given.folder or Path(temporary)).resolve()  # the server app runs in another folder
        table = Table(title=f"digits on {given.nodes} SuperNodes, {given.rounds} rounds", title_justify="left")
        for heading in ("strategy", "accuracy (%)", "uploaded (kB/round)", "seconds/round", "last alpha"):
            table.add_column(heading, justify="left" if heading == "strategy" else "right")
        print(f"starting a SuperLink and {given.nodes} SuperNodes{' with TLS' if given.tls else ''} …", flush=True)
        with Deployment(folder, given.nodes, tls=given.tls) as flower:
            for place, strategy in enumerate(strategies):
                print(f"{strategy}: {given.rounds} rounds …", flush=True)
                out = folder / f"result{place}"
                config = {"strategy": strategy, "rounds": given.rounds, "clients": given.nodes, "out": str(out)}
                flower.run(config)
                rows = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
                table.add_row(
                    strategy,
                    f"{100 * rows[-1]['accuracy']:.1f}",
                    f"{sum(r['bytes_up'] for r in rows) / len(rows) / 1000:.1f}",
                    f"{sum(r['seconds'] for r in rows) / len(rows):.1f}",
                    " ".join(f"{a:.2f}" for a in rows[-1]["alpha"]),
                )
        Console(width=100).print(table)
        print("everything is stopped" + (f"; logs and results are in {folder}" if given.folder else ""))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # a terminated script stops what it started, too
    main()
