"""How long a dead process stays down before it is started again: pure."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Doubles the pause after every early death; a life of ``calm_s`` starts anew.

    Attributes:
        first_s, most_s: Shortest and longest pause, seconds.
        calm_s: A process that lived so long has earned a short pause again.
    """

    first_s: float = 0.5
    most_s: float = 30.0
    calm_s: float = 60.0
    _next_s: float = field(default=0.0, init=False)

    def after(self, lived_s: float) -> float:
        """The pause before the next start, seconds, when the last life took ``lived_s``."""
        pause = self.first_s if lived_s >= self.calm_s else max(self._next_s, self.first_s)
        self._next_s = min(self.most_s, pause * 2)
        return min(pause, self.most_s)
