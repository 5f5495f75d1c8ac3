"""The router: takes batches, decides where each question goes.

A question's way through these files:
``service`` (gRPC) -> ``router`` (the order of things) -> ``admission`` (may it
come in) -> ``prepare`` (``normalise``, chat template, tokens, ``budget``) ->
``strategies`` (bucket) -> ``assign`` over ``ring`` and ``loads`` (channel) ->
``records`` (manifest) -> ``placing`` (into the queues; ``overflow`` when they
are full). ``watch`` keeps the view of fleet and depths fresh.
"""
