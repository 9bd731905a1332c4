"""``fedalpha strategies``: what can be written as --strategy."""

from __future__ import annotations

from fedalpha.cli.options import Plugin, use_plugin
from fedalpha.terminal import console


def strategies(plugin: Plugin = None) -> None:
    """List the strategies with their formulas."""
    from rich.padding import Padding

    from fedalpha.strategies import STRATEGIES

    use_plugin(plugin)
    show = console(highlight=False)
    for entry in STRATEGIES:
        show.print(entry.signature, style="bold", markup=False, soft_wrap=True)
        for line in (entry.formula, entry.summary, entry.reference):
            if line:
                show.print(Padding(show.render_str(line, markup=False), (0, 0, 0, 4)))
    show.print("\np: the prior (sizes, or prior=uniform); x_i = F_i − F_i*. They combine, for example:", markup=False)
    show.print('  --strategy "cap(switch(FedSoftBetter(T=0.2), FedAvg, at=20), 0.1)"', markup=False)
