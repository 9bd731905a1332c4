"""Train a model on twenty simulated clients that know few digits each, and look at what happened."""

from pathlib import Path

import fedalpha

OUT = Path("runs/examples")

digits = fedalpha.federation("digits", partition="shards(size=30)", clients=20, seed=0)
print(digits)

history = fedalpha.run(
    digits,
    model="mlp",
    strategy="FedSoftWorseAvg(T=0.2, at=5)",  # weigh the worst-served clients more; change to FedAvg in round 5
    rounds=10,
    seed=0,
    update="sgd(lr=0.1, batch=16)",
    progress=True,
)

for row in history.rows[1:]:
    heaviest = max(zip(row["alpha"], row["cohort"], strict=True))
    print(f"round {row['round']:2}: accuracy {row['accuracy']:.3f}, client {heaviest[1]} weighs {heaviest[0]:.2f}")
print(history.summary())

OUT.mkdir(parents=True, exist_ok=True)
digits.plot().savefig(OUT / "clients.png")
history.plot().savefig(OUT / "first_run.png")
print(f"pictures: {OUT}/clients.png, {OUT}/first_run.png")
