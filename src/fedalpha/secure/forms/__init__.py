"""The forms of a secure sum, written as text; one file each."""

from __future__ import annotations

from fedalpha.secure.forms.base import SECURES, Secure
from fedalpha.secure.forms.blind import blind
from fedalpha.secure.forms.masked import masked

__all__ = ["SECURES", "Secure", "blind", "masked"]
