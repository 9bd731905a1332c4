"""``fedalpha strategies``: what can be written as --strategy."""

from __future__ import annotations


def strategies() -> None:
    """List the strategies with their formulas."""
    from rich.console import Console
    from rich.table import Table

    from fedalpha.strategies import STRATEGIES

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("strategy", no_wrap=True, overflow="fold")
    table.add_column("weights")
    table.add_column("what it does")
    for entry in STRATEGIES:
        table.add_row(entry.signature, entry.formula, entry.summary)
    Console().print(table)
    print("\np: the prior (sizes, or prior=uniform); x_i = F_i − F_i*. Any of them can be combined, for example")
    print('  --strategy "cap(switch(FedSoftBetter(T=0.2), FedAvg, at=20), 0.1)"')
