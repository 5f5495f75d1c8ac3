"""Where the bus settings of this service come from: one function for all services."""

from kev.wire.bus_settings import bus_settings

__all__ = ["bus_settings"]
