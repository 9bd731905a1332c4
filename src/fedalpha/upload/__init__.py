"""*Upload*: encodings of a client's update in fewer bytes than the model has."""

from __future__ import annotations

from fedalpha.upload.base import UPLOADS, Packed, Upload, Vector, added, difference
from fedalpha.upload.bfloat import bfloat16
from fedalpha.upload.feedback import feedback
from fedalpha.upload.quantised import quantised
from fedalpha.upload.sparse import sparse

__all__ = [
    "UPLOADS",
    "Packed",
    "Upload",
    "Vector",
    "added",
    "bfloat16",
    "difference",
    "feedback",
    "quantised",
    "sparse",
]
