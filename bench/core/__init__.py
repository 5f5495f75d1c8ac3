"""Measurements of the bare core: backend, rows and pages, with no service around it."""
