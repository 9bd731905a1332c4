"""A secure sum on a real SuperLink with SuperNodes that have signing keys: ``make secure``. About two minutes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

import fedalpha
from flower.real import final, rows

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower"
sys.path.insert(0, str(EXAMPLE))
from deployment import Deployment  # noqa: E402

NODES, RULE = 4, "FedSoftWorse(T=20)"


def keys(folder: Path) -> list[str]:
    """A signing key for each node; the settings that name it and everybody's public keys."""
    known, told = {}, []
    for node in range(NODES):
        key = Ed25519PrivateKey.generate()
        known[node] = key.public_key().public_bytes_raw().hex()
        file = folder / f"signing{node}.pem"
        file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        told.append(f'partition-id={node} signing-key="{file}" known-keys="{folder / "known.json"}"')
    (folder / "known.json").write_text(json.dumps(known))
    return told


def by_hand() -> tuple[np.ndarray, list[list[float]]]:
    """Two rounds of the rule; in the second one client 3 is lost after it was weighed."""
    targets = np.array([[i, 1, -i, 0.5] for i in range(NODES)], dtype=np.float32)
    w, alphas = np.zeros(4, dtype=np.float32), []
    for lost in ([], [3]):
        alpha = fedalpha.weights(RULE, ((w - targets) ** 2).sum(axis=1), [10] * NODES)
        alpha[lost] = 0
        alpha = alpha / alpha.sum()
        w = (alpha[:, None] * ((w + targets) / 2)).sum(axis=0).astype(np.float32)
        alphas.append(alpha.tolist())
    return w, alphas


def test_a_secure_sum_on_a_real_superlink(tmp_path: Path) -> None:
    told = keys(tmp_path)
    with Deployment(tmp_path, 0, tls=False, app=Path(__file__).parent / "secure_app") as flower:
        flower.supernodes += [flower.start_supernode(node, config=config) for node, config in enumerate(told)]
        out = tmp_path / "secure"
        flower.run({"strategy": RULE, "secure": "masked(signed=true)", "rounds": 2, "clients": NODES, "out": str(out)})
    found, (w, alphas) = rows(out), by_hand()
    assert [row["kept"] for row in found] == [None, None]
    assert [[r["client"] for r in row["refused"]] for row in found] == [[], [3]]
    for row, alpha in zip(found, alphas, strict=True):
        np.testing.assert_allclose(row["alpha"], alpha, atol=1e-6)
    np.testing.assert_allclose(final(out), w, atol=2 * max(row["secure_error"] for row in found) + 1e-6)
