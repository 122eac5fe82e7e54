"""Contents of files in an S3-compatible storage (``MNESIS_FILES_URL``).

Keys come from where the AWS SDK looks for them (``AWS_ACCESS_KEY_ID`` and so on), never from the URL.
"""

from __future__ import annotations

from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from storages.backends.s3 import S3Storage

from sessions_app.database.threads import give_back

MISSING = ("404", "NoSuchKey", "NotFound")


class S3ContentStorage(S3Storage):  # type: ignore[misc]
    """Objects that are written whole or not at all, as S3 does, and read in pieces."""

    @property
    def bucket(self) -> Any:
        # Every operation asks for the bucket; a database connection must not wait for a slow storage.
        give_back()
        return super().bucket

    def read_piece(self, name: str, offset: int, limit: int) -> bytes:
        """Return at most ``limit`` bytes from ``offset`` on, without fetching the whole.

        :raises FileNotFoundError: it does not exist.
        :raises OSError: the storage does not answer.
        """
        key = self._normalize_name(name)
        try:
            found = self.bucket.Object(key).get(Range=f"bytes={offset}-{offset + limit - 1}")
            return bytes(found["Body"].read())
        except ClientError as error:
            if error.response["Error"]["Code"] == "InvalidRange":
                return b""
            raise _as_os_error(error, name) from error
        except BotoCoreError as error:
            raise OSError(str(error)) from error

    def size(self, name: str) -> int:
        """:raises FileNotFoundError: it does not exist.
        :raises OSError: the storage does not answer.
        """
        try:
            return int(self.bucket.Object(self._normalize_name(name)).content_length)
        except ClientError as error:
            raise _as_os_error(error, name) from error
        except BotoCoreError as error:
            raise OSError(str(error)) from error


def _as_os_error(error: ClientError, name: str) -> OSError:
    code = error.response["Error"]["Code"]
    return FileNotFoundError(name) if code in MISSING else OSError(f"{code}: {name}")
