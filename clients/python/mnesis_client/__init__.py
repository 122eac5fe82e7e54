"""A typed client for Mnesis. It knows the REST API and nothing of the server's code."""

from mnesis_client.async_client import AsyncClient
from mnesis_client.client import Client
from mnesis_client.errors import ConnectionFailed, MnesisError
from mnesis_client.values import Answer

__all__ = ["Answer", "AsyncClient", "Client", "ConnectionFailed", "MnesisError"]
