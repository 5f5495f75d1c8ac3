"""Who is alive, by my own clock."""

from __future__ import annotations

from kev.bus.messages import WorkerLease
from kev.bus.nats.fleet import Beats


def lease(worker_id: str, beat: int = 0) -> WorkerLease:
    return WorkerLease(worker_id, 4, 4, "ready", "model", "tok", 2048, beat=beat)


def test_alive_for_a_lease_after_each_beat():
    beats = Beats(5.0)
    beats.beat(lease("w"), 100.0)
    assert set(beats.alive(104.9)) == {"w"}
    assert beats.alive(105.0) == {}
    beats.beat(lease("w"), 106.0)
    assert set(beats.alive(110.9)) == {"w"}


def test_an_older_beat_that_arrives_late_changes_nothing():
    beats = Beats(5.0)
    beats.beat(lease("w", beat=2), 100.0)
    beats.beat(lease("w", beat=1), 97.0)
    assert beats.alive(101.0)["w"].beat == 2


def test_who_takes_its_leave_is_gone():
    beats = Beats(5.0)
    beats.beat(lease("w"), 100.0)
    beats.gone("w")
    beats.gone("stranger")
    assert beats.alive(100.0) == {}


def test_a_lost_connection_costs_nobody_its_lease():
    beats = Beats(5.0)
    beats.beat(lease("dead"), 90.0)
    beats.beat(lease("w"), 100.0)
    beats.lost(101.0)
    beats.lost(150.0)
    assert set(beats.alive(199.0)) == {"w"}
    beats.back(200.0)
    assert set(beats.alive(204.0)) == {"w"}
    assert beats.alive(205.0) == {}
