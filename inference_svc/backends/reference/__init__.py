"""The reference backend: torch, any device, the oracle for all others."""

import os

# Torch's threads spin while they wait for each other. Where more threads than
# cores want to run (several workers on one machine), each then burns the time
# of the one it waits for: a forward took six times as long. The variable is
# read when torch is loaded, so it stands before the import.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from inference_svc.backends.reference.backend import ReferenceBackend

__all__ = ["ReferenceBackend"]
