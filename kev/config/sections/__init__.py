"""The sections of ``kev.yaml``, a file for each subject."""
