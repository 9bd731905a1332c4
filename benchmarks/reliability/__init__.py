"""``python -m benchmarks reliability``: faults, attacks and what saving costs.

- `matrix`: every fault against every strategy, counted round by round;
- `byzantine`: attack × strategy × defence;
- `vectors`, `byzfl_side`: combine rules compared with ByzFL's aggregators, on the same vectors;
- `saving`: the time of a save over the time of a round;
- `page`: all of it, as tables and a picture.
"""
