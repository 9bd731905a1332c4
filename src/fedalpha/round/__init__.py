"""One round of federated learning, written once for every driver.

`protocol.advance` makes the decisions. `driver.play` carries them out on an engine, `fedalpha.flower` in a live
federation. Nothing here needs torch.
"""

from __future__ import annotations

from fedalpha.round.driver import Engine, Evaluation, Part, play, tell
from fedalpha.round.gate import Admission, Gate, Refusal
from fedalpha.round.orders import AskLosses, Heard, Ids, Learn, Measure, Nothing, Order, Sample, Train
from fedalpha.round.protocol import advance
from fedalpha.round.state import Algorithm, Outcome, ServerState

__all__ = [
    "Admission",
    "Algorithm",
    "AskLosses",
    "Engine",
    "Evaluation",
    "Gate",
    "Heard",
    "Ids",
    "Learn",
    "Measure",
    "Nothing",
    "Order",
    "Outcome",
    "Part",
    "Refusal",
    "Sample",
    "ServerState",
    "Train",
    "advance",
    "play",
    "tell",
]
