"""The three plug points of time together, and the checks of other rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fedalpha.clock.availability import AVAILABILITIES, Availability, always
from fedalpha.clock.servers import SERVERS, Server, synchronous
from fedalpha.clock.speeds import CLOCKS, Clock
from fedalpha.strategies.plug_point import AnyAlgorithm
from fedalpha.text import Registry


@dataclass(frozen=True)
class Pace:
    """Which updates the server waits for, how long clients take, and when they are available.

    Without a ``clock`` there is no simulated time: a round takes no time, and every client is available.
    """

    server: Server = field(default_factory=synchronous)
    clock: Clock | None = None
    availability: Availability = field(default_factory=always)

    @staticmethod
    def of(
        server: str | Server | None = None,
        clock: str | Clock | None = None,
        availability: str | Availability | None = None,
    ) -> Pace:
        """From texts or objects; None is the default of each."""
        found = Pace(
            synchronous() if server is None else SERVERS.parse(server),
            None if clock is None else CLOCKS.parse(clock),
            always() if availability is None else AVAILABILITIES.parse(availability),
        )
        if found.clock is None:
            for name, rule, default in found._without_time:
                if rule != default:
                    raise ValueError(
                        f"{name} = {str(rule)!r} needs simulated time; give the seconds of clients as well, such as "
                        'clock="lognormal(sigma=1)"'
                    )
        return found

    @property
    def _without_time(self) -> tuple[tuple[str, Any, Any], ...]:
        return ("server", self.server, synchronous()), ("availability", self.availability, always())

    @property
    def timed(self) -> bool:
        """Whether there is simulated time."""
        return self.clock is not None

    @property
    def settings(self) -> dict[str, str]:
        """The given rules as text, by setting; empty by default."""
        found = {name: str(rule) for name, rule, default in self._without_time if rule != default}
        return found if self.clock is None else {**found, "clock": str(self.clock)}

    @property
    def rules(self) -> dict[str, tuple[Any, Registry[Any]]]:
        """Each rule with its registry, by the name of its setting."""
        return {
            "server": (self.server, SERVERS),
            "clock": (self.clock, CLOCKS),
            "availability": (self.availability, AVAILABILITIES),
        }

    def check(self, population: Any) -> None:
        """Raise ValueError if one of the rules cannot be used with these clients."""
        if self.clock is not None:
            self.clock.check(population)
        self.availability.check(population)
        check_server(self.server, population.clients)

    def check_algorithm(self, algorithm: AnyAlgorithm, shadows: frozenset[str] = frozenset()) -> None:
        """Raise ValueError for rules that do not work with these times; ``shadows``: what shadow rules use."""
        if self.timed and (secure := getattr(algorithm, "secure", None)) is not None:
            raise ValueError(
                f"{secure} has no simulated time: updates are masked together with those of a whole cohort; leave "
                "clock out"
            )
        plain = self.server.waits and self.server.first is None and self.availability == always()
        if not plain:
            for rule in _rules(algorithm):
                if reason := rule.against_absence:
                    raise ValueError(
                        f"{rule} does not work with server = {self.server}, availability = {self.availability}: "
                        f"{reason}; use server=synchronous and availability=always"
                    )
        if not self.server.waits:
            check_stale(self.server, algorithm, shadows)


def check_server(server: Server, clients: int | None) -> None:
    """Raise ValueError if the server needs more updates than there are clients."""
    need = server.first if server.waits else server.size(0)
    if need is not None and clients is not None and need > clients:
        raise ValueError(f"{server} needs {need} updates, but there are {clients} clients; give at most {clients}")


def check_stale(server: Server, algorithm: AnyAlgorithm, shadows: frozenset[str] = frozenset()) -> None:
    """Raise ValueError for rules that do not work with updates of older versions."""
    for rule in _rules(algorithm):
        if reason := rule.against_stale:
            raise ValueError(f"{rule} does not work with {server}: {reason}; choose another rule or server=synchronous")
    if algorithm.reevaluate:
        raise ValueError(
            f"reevaluate = {algorithm.reevaluate} does not work with {server}: the server would measure a rebased "
            "model, which no client has trained; leave it at 0"
        )
    if "before" in shadows:
        raise ValueError(
            f"shadow: a rule that needs losses before training does not work with {server}: the clients of a "
            "version were sent different models; leave it out"
        )


def _rules(algorithm: AnyAlgorithm) -> tuple[Any, ...]:
    return algorithm.select, algorithm.update, algorithm.weigh, algorithm.combine, algorithm.apply
