"""The bus over NATS JetStream: services on many machines."""

from kev.bus.nats.bus import NatsBus
from kev.bus.nats.topology import TopologyMismatch

__all__ = ["NatsBus", "TopologyMismatch"]
