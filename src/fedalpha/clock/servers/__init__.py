"""Servers: the updates for which the server waits before it makes the next model."""

from __future__ import annotations

from fedalpha.clock.servers.base import SERVERS, Server
from fedalpha.clock.servers.buffered import buffered
from fedalpha.clock.servers.synchronous import synchronous

__all__ = ["SERVERS", "Server", "buffered", "synchronous"]
