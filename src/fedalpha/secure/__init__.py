"""Secure sums: the server learns the sum of the clients' vectors, but no single vector.

The protocol of Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning" (2017), with
the neighbourhoods of Bell et al., "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead" (2020). `Client`
and `Server` are state machines without input or output; `conduct` runs a session over any transport. The primitives are
those of `cryptography`. docs/privacy.md describes what each party learns, and the assumptions.
"""

from __future__ import annotations
