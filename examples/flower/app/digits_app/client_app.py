"""The client: fedalpha's factory with this node's data."""

from __future__ import annotations

from digits_app.task import MODEL, SEED, UPDATE, data
from fedalpha.flower import client_app

app = client_app(MODEL, data, UPDATE, classes=10, seed=SEED)
