"""The bus inside one process: the same rules as over NATS, for as long as the process lives."""

from kev.bus.memory.bus import MemoryBus

__all__ = ["MemoryBus"]
