"""Running of a study that tunes, which can be stopped at any time and started again.

Every step asks the races for the next cells, runs these cells in parallel, and passes the scores to the races in a
fixed order. The decisions therefore depend only on stored cells: the same command repeats them, runs the missing cells,
and gives the same result for any number of jobs. ``tune.json`` records the races after every step. A resumed study
reads the proposed points from this file, so that another version of Optuna does not change a search that has begun.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedalpha.analysis.measures import Curve
from fedalpha.study.cells import Cell
from fedalpha.study.crew import Watch
from fedalpha.study.halfway import clear_all
from fedalpha.study.plan import Study
from fedalpha.study.runner import alone, crew_for, plan, raise_errors, to_toml
from fedalpha.study.store import Store
from fedalpha.study.tables import FORMAT as STUDY_FORMAT
from fedalpha.study.tables import arrow
from fedalpha.study.tuning.answer import Answer, answer
from fedalpha.study.tuning.design import Design
from fedalpha.study.tuning.journal import FORMAT, read_tuning
from fedalpha.study.tuning.race import Drop, Race
from fedalpha.study.tuning.samplers import propose
from fedalpha.study.tuning.search import Search
from fedalpha.study.tuning.spaces import Point, Space

Say = Callable[[str], None]
"""Called with a line when something was decided."""


def tune(
    study: Study,
    folder: str | Path,
    *,
    text: str = "",
    jobs: int | None = None,
    ray_address: str | None = None,
    watch: Watch | None = None,
    say: Say | None = None,
    race: bool = True,
) -> Answer:
    """Tune every method with the same budget, race the best of each on the reported seeds, and return the answer.

    The arguments are those of `run_study`; ``say`` is called with a line when a candidate is dropped or chosen.
    With ``race=False`` the function ends when the settings are found, and no reported seed is run; call it again to
    race.
    """
    arrow()  # says what to install, before anything is run
    design = Design.of(study)
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs = {jobs}; give at least 1")
    store = Store(folder)
    with alone(store):
        store.sweep()
        _same_study(store, study)
        store.write_text(store.folder / "study.toml", text or to_toml(study))
        run = _Tuning(design, store, jobs, ray_address, watch or (lambda *_: None), say or (lambda _: None))
        run.search()
        if race:
            run.compare()
        found = run.finish(race)
    return found


class _Tuning:
    """The searches and races of one study, and the cells that they need."""

    def __init__(
        self, design: Design, store: Store, jobs: int | None, ray_address: str | None, watch: Watch, say: Say
    ) -> None:
        self.design, self.store, self.jobs, self.ray_address = design, store, jobs, ray_address
        self.watch, self.say = watch, say
        self.searches: dict[tuple[str, str], Search] = {}
        self.races: dict[str, Race] = {}
        self.tuned: list[Cell] = []
        self.reported: list[Cell] = []

    def search(self) -> None:
        """Find the settings of every method in every case; all searches advance together."""
        earlier = self._earlier()
        for case in self.design.cases:
            for name in self.design.methods:
                self.searches[case, name] = self._search_of(case, name, earlier.get(f"{case}\0{name}", ()))
        while True:
            wanted = {place: search.wanted() for place, search in self.searches.items()}
            cells = {
                (place, name): self.design.cell(*place, point, seed, reported=False)
                for place, (seed, points) in wanted.items()
                for name, point in points.items()
            }
            self.tuned += cells.values()
            self.record()
            if not cells:
                return
            self._run(list(cells.values()), reported=False)
            for place, (seed, points) in wanted.items():
                if points:
                    scores = {name: self._score(cells[place, name]) for name in points}
                    self._said(place[0], self.searches[place].add(seed, scores), seed)

    def compare(self) -> None:
        """Race the best of every method on the reported seeds."""
        design = self.design
        names = list(design.methods)
        best = {place: search.best[1] for place, search in self.searches.items()}
        for case in design.cases:
            self.races[case] = Race(names, design.tune.error / 2, design.tune.at_least, keeps=design.reference)
        for seed in design.study.seeds:
            cells = {
                (case, name): design.cell(case, name, best[case, name], seed, reported=True)
                for case, race in self.races.items()
                if race.winner is None
                for name in race.running
            }
            self.reported += cells.values()
            self.record()
            if not cells:
                return
            self._run(list(cells.values()), reported=True)
            for case, race in self.races.items():
                scores = {name: self._score(cell) for (where, name), cell in cells.items() if where == case}
                if scores:
                    self._said(case, race.add(seed, scores), seed)

    def finish(self, raced: bool) -> Answer:
        self.store.pack([*self.reported, *self.tuned])
        self.store.write_rounds(self.reported)
        clear_all(self.store)
        journal = self.record(complete=raced)
        found = answer(journal)
        self.store.write_text(self.store.folder / "answer.md", found.markdown())
        return found

    def record(self, complete: bool = False) -> dict[str, Any]:
        """Write ``tune.json``, and ``study.json`` with the reported cells as soon as there are any."""
        design = self.design
        journal = {
            "format": FORMAT,
            "study": _identity(design.study),
            "name": design.study.name,
            "complete": complete,
            "reference": design.reference,
            "measure": design.tune.measure,
            "error": design.tune.error,
            "budget": design.tune.budget,
            "cases": {case: self._case(case) for case in design.cases},
        }
        self._write("tune.json", journal)
        if self.reported:
            names = tuple(design.methods)
            stored = design.study.model_copy(update={"strategies": names, "methods": (), "tune": None})
            file = {"format": STUDY_FORMAT, **plan(stored, self.reported)}
            for key in ("tune", "methods"):  # the names and the cells say it all
                file["study"].pop(key, None)
            self._write("study.json", file)
        return journal

    def _write(self, name: str, content: dict[str, Any]) -> None:
        self.store.write_text(self.store.folder / name, json.dumps(content, indent=1, ensure_ascii=False) + "\n")

    def _case(self, case: str) -> dict[str, Any]:
        rounds = self.design.rounds(case)
        methods = {}
        for name, method in self.design.methods.items():
            search = self.searches[case, name]
            label, point = search.best
            methods[name] = {
                "text": label,
                "settings": method.space.at(point),
                "rounds": search.spent * rounds,
                "generations": [{**_race(g.race), "new": [dict(p) for p in g.new]} for g in search.generations],
            }
        reported = _race(self.races[case]) if case in self.races else None
        return {"rounds": rounds, "methods": methods, "reported": reported}

    def _search_of(self, case: str, name: str, proposed: Any) -> Search:
        design, method = self.design, self.design.methods[name]
        index = list(design.cases).index(case) * len(design.methods) + list(design.methods).index(name)

        if not all(method.space.holds(point) for points in proposed for point in points):
            proposed = ()

        def ask(space: Space, count: int, told: Any, generation: int) -> list[Point]:
            return propose(space, count, told, design.tune.sampler, design.tune.seeds + index, generation)

        return Search(
            method.space,
            design.runs(case),
            design.tune.seeds,
            method.text,
            ask,
            design.tune.drop,
            design.tune.candidates,
            proposed,
        )

    def _earlier(self) -> dict[str, list[list[Point]]]:
        """The points that this search proposed before it was interrupted, by case and method."""
        try:
            journal = read_tuning(self.store.folder)
        except ValueError:
            return {}
        if journal.get("study") != _identity(self.design.study):
            return {}
        return {
            f"{case}\0{name}": [generation["new"] for generation in method["generations"]]
            for case, found in journal["cases"].items()
            for name, method in found["methods"].items()
        }

    def _run(self, cells: list[Cell], reported: bool) -> None:
        before, total = len({c.key for c in (*self.tuned, *self.reported)} - {c.key for c in cells}), self._at_most()
        kept = self.design.study.per_client if reported else "none"

        def watch(done: int, of: int, running: list[str]) -> None:
            self.watch(before + done, max(total, before + of), running)

        crew = crew_for(self.store, cells, kept, watch, self.ray_address)
        raise_errors(crew.run(self.jobs), crew.cells, len(cells), self.store)

    def _at_most(self) -> int:
        """The largest number of cells of the study, with those that were run."""
        tuning = sum(s.spent + (s.runs - s.spent) * bool(s.wanted()[1]) for s in self.searches.values())
        return tuning + len(self.design.methods) * len(self.design.cases) * len(self.design.study.seeds)

    def _score(self, cell: Cell) -> float:
        """The measure of a cell, so that higher is better."""
        result = self.store.get(cell.key)
        found = self.design.measure.of(Curve.of(_numbers(result.columns), cell.settings.rounds))
        if found is None:
            raise ValueError(
                f"{cell.label} has no {self.design.measure}; check that it is evaluated in the round that is measured"
            )
        return found.value if self.design.measure.higher_is_better else -found.value

    def _said(self, case: str, drops: list[Drop], seed: int) -> None:
        for drop in drops:
            where = f" ({case})" if case else ""
            self.say(f"dropped after seed {seed}: {drop.name}{where}, behind {drop.behind}")


def _race(race: Race) -> dict[str, Any]:
    return {
        "seeds": race.seeds,
        "scores": {name: race.scores(name).tolist() for name in race.names},
        "dropped": {d.name: {"seeds": d.seeds, "behind": d.behind} for d in race.dropped.values()},
    }


def _numbers(columns: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    from fedalpha.analysis.columns import numbers

    return {found.name: columns[found.name] for found in numbers() if found.name in columns}


def _identity(study: Study) -> dict[str, Any]:
    """The settings that decide the searches: all but titles, measures that are only shown, and the reported seeds."""
    values = study.model_dump(mode="json", exclude_unset=True)
    shown = ("title", "note", "seeds", "measures", "published", "claims", "zoom", "per_client", "table", "quick")
    return {key: value for key, value in values.items() if key not in shown}


def _same_study(store: Store, study: Study) -> None:
    file = store.folder / "tune.json"
    if file.exists() and (name := read_tuning(store.folder)["name"]) != study.name:
        raise ValueError(f"{store.folder} holds the study {name!r}; choose another folder for {study.name!r}")
    if not file.exists() and (store.folder / "study.json").exists():
        raise ValueError(f"{store.folder} holds a study without [tune]; choose another folder")
