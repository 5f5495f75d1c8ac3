"""From what a client sent to what the model reads, and to what the router hashes."""

from router_svc.normalise.clean import clean, has_content
from router_svc.normalise.normalise import LEVELS, Normalised, normalise

__all__ = ["LEVELS", "Normalised", "clean", "has_content", "normalise"]
