"""A small typed client for Mnesis. It knows the REST API and nothing of the server's code."""

from mnesis_client import endings, errors
from mnesis_client.aio import AsyncClient
from mnesis_client.endings import *  # noqa: F403 - a class for each code
from mnesis_client.errors import *  # noqa: F403 - a class for each code
from mnesis_client.sync import Client
from mnesis_client.values import Answer

__all__ = ["Answer", "AsyncClient", "Client"]
__all__ += errors.__all__ + endings.__all__
