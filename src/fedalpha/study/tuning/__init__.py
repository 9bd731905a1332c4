"""Tuning: every method searches its settings with the same budget, then the best of each race on held-out seeds.

- `spaces`: settings that are searched, as text;
- `race`: candidates on the same seeds, dropped by evidence that is valid at every look;
- `search`: the search of one method, within its budget; `samplers` proposes points (Optuna);
- `table`: the ``[tune]`` table of a study file; `design`: the methods and cells that it leads to;
- `runner`: runs the cells and feeds the races, resumable; `answer`: the result in words.

The first three know nothing of runs: they take scores and return decisions.
"""
