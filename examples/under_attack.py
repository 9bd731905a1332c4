"""Two of ten clients send their updates with the wrong sign. What do a cap and a robust rule change?"""

import fedalpha
from fedalpha.defence.tolerance import tolerance

digits = fedalpha.federation("digits", partition="iid", clients=10, seed=0)
ATTACK = "sign_flip(clients=2)"

defences = {
    "no defence": {"strategy": "FedSoftWorse(T=0.2)"},
    "no client above 0.15": {"strategy": "cap(FedSoftWorse(T=0.2), 0.15)"},
    "a cap and the median": {"strategy": "cap(FedSoftWorse(T=0.2), 0.15)", "combine": "median"},
}

print("without an attack:", fedalpha.run(digits, "mlp", "FedSoftWorse(T=0.2)", rounds=8))
for name, rules in defences.items():
    history = fedalpha.run(digits, "mlp", rounds=8, fault=ATTACK, evaluate=fedalpha.Evaluate(liars=2), **rules)
    last = history[-1]["influence"]
    print(f"{name:22} accuracy {history.accuracy[-1]:.3f}, two liars could have {last['possible']:.2f} of the weight")

print(tolerance("cap(FedSoftWorse(T=0.2), 0.15)", n=10, combine="median"))
