"""Constraints: what an answer may be, token by token.

Choices are followed by a tree of our own. JSON schemas and regular
expressions go through ``llguidance``, first in a process that can be lost.
"""
