"""Tuning: the settings of every method are searched with the same budget; the best of each race on held-out seeds.

- `spaces`: settings that are searched, as text;
- `race`: candidates on the same seeds, dropped by evidence that is valid after every seed;
- `search`: the search of one method, within its budget; `samplers` proposes points (Optuna);
- `table`: the ``[tune]`` table of a study file; `design`: its methods and cells;
- `runner`: runs the cells and passes scores to the races, resumable; `answer`: the result in words.

The first three do not depend on runs: they take scores and return decisions.
"""
