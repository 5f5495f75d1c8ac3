"""The three tiers in one process."""

from kev.app.engine.aio import EngineAio
from kev.app.engine.engine import Engine
from kev.app.engine.tiers import Tiers

__all__ = ["Engine", "EngineAio", "Tiers"]
