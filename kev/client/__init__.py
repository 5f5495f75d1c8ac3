"""Python client of a running cluster, synchronous and asynchronous, over gRPC."""

from kev.client.aio import AsyncClient
from kev.client.queries import Limits, Options, Queries, Query, batch_of, questions_of
from kev.client.sync import Client

__all__ = ["AsyncClient", "Client", "Limits", "Options", "Queries", "Query", "batch_of", "questions_of"]
