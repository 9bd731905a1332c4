"""``python -m benchmarks speed`` and ``profile``: time and memory per round, compared with peers and with the machine.

- `workloads`: what is trained, prepared once and read by every contestant;
- `peers/`: one script per contestant, and the pinned packages of those with an environment of their own;
- `environments`: makes those environments;
- `contest`, `memory`: runs a contestant as a process, and watches its memory;
- `peak`, `measure_machine`: what the machine can do;
- `results`, `goals`, `report`: medians and spread, the ratios that are the goals, tables and pictures;
- `bench`: all of it, interleaved;
- `profile`: where the time of a local step goes.
"""
