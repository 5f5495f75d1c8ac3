"""Proof of isolation on a loaded backend: checks that must pass, controls that must fail."""

from inference_svc.verify.controls import CONTROLS
from inference_svc.verify.lanes import Lane, Prompt, Solo, alone, drive, lane, side_by_side
from inference_svc.verify.report import Check, SelfTestReport
from inference_svc.verify.self_test import self_test

__all__ = [
    "CONTROLS",
    "Check",
    "Lane",
    "Prompt",
    "SelfTestReport",
    "Solo",
    "alone",
    "drive",
    "lane",
    "self_test",
    "side_by_side",
]
