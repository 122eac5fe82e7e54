"""Settings, all of them from the environment (see README): typed readers that stop the start with a sentence."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from django.core.exceptions import ImproperlyConfigured

from mnesis_core.network import hosts
from mnesis_site.database_url import database
from sessions_app.database.guards.known_databases import missing_file

BASE_DIR = Path(__file__).resolve().parent.parent


def env_str(name: str, default: str) -> str:
    """Return an environment variable, or ``default`` if it is unset or empty."""
    return os.environ.get(name) or default


def env_list(name: str, default: list[str]) -> list[str]:
    text = os.environ.get(name, "")
    return [item.strip() for item in text.split(",") if item.strip()] or default


def env_bool(name: str, default: bool) -> bool:
    """:raises ImproperlyConfigured: the variable is neither true nor false."""
    text = env_str(name, "true" if default else "false").lower()
    if text not in ("true", "false", "1", "0", "yes", "no"):
        raise ImproperlyConfigured(f"{name} must be true or false, not {text!r}")
    return text in ("true", "1", "yes")


def env_int(name: str, default: int, *, minimum: int) -> int:
    """:raises ImproperlyConfigured: the variable is not a whole number, or too small."""
    text = env_str(name, str(default))
    if not text.isascii() or not text.isdigit() or int(text) < minimum:
        raise ImproperlyConfigured(f"{name} must be a whole number from {minimum} on, not {text!r}")
    return int(text)


def env_networks(name: str) -> tuple[hosts.Network, ...]:
    """:raises ImproperlyConfigured: an entry is neither an address nor a network."""
    try:
        return hosts.read_networks(env_str(name, ""))
    except ValueError as error:
        raise ImproperlyConfigured(f"{name}: {error}") from error


def env_secret(name: str, directory: Path) -> str:
    """Return a secret from the environment, or else one that is made once and kept in the data directory (mode 0600)."""
    if value := os.environ.get(name):
        return value
    path = directory / f".{name.lower()}"
    if path.exists() and (kept := path.read_text()):
        return kept
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_CREAT | os.O_RDWR, 0o600), "r+") as file:
        # Of several processes that start together one writes, and none reads what is not written yet.
        fcntl.flock(file, fcntl.LOCK_EX)
        if not (kept := file.read()):
            kept = secrets.token_urlsafe(50)
            file.write(kept)
    return kept


def file_storage(url: str, folder: Path) -> dict[str, Any]:
    """Return Django's STORAGES entry for a ``MNESIS_FILES_URL``, or for the folder if there is none.

    :raises ImproperlyConfigured: it is not ``s3://BUCKET/FOLDER?endpoint=https://HOST&region=NAME``.
    """
    if not url:
        return {"BACKEND": "files_app.contents.ContentStorage", "OPTIONS": {"location": folder}}
    try:
        parts = urlsplit(url)
        asked = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    except ValueError as error:
        raise ImproperlyConfigured(f"MNESIS_FILES_URL is not an address: {error}") from error
    if parts.scheme != "s3" or not parts.netloc or set(asked) - {"endpoint", "region"}:
        raise ImproperlyConfigured("MNESIS_FILES_URL must be s3://BUCKET/FOLDER?endpoint=https://HOST&region=NAME")
    options = {
        "bucket_name": parts.netloc,
        "location": parts.path.strip("/"),
        "endpoint_url": asked.get("endpoint"),
        "region_name": asked.get("region"),
        "default_acl": None,
        "file_overwrite": True,
    }
    return {"BACKEND": "files_app.s3.S3ContentStorage", "OPTIONS": options}


def digest_of(*places: Path) -> str:
    """Return twelve hexadecimal digits that change with any byte or name of these files and of all below these folders."""
    digest = hashlib.sha256()
    for path in sorted(path for place in places for path in (place, *place.rglob("*")) if path.is_file()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(BASE_DIR)}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:12]


def keep_for_a_year(headers: MutableMapping[str, str], path: str, url: str) -> None:
    headers["Cache-Control"] = "max-age=31536000, public, immutable"


def host_lists(*, is_local: bool) -> hosts.HostLists:
    """Return the programs, variables and addresses that the owner of the host lets pages use.

    :raises ImproperlyConfigured: an entry cannot be read, or may not be listed.
    """
    default = (
        hosts.local_lists(sys.executable)
        if is_local
        else dict.fromkeys((hosts.PROGRAMS, hosts.VARIABLES, hosts.ADDRESSES), "")
    )
    programs, variables, addresses = (env_str(name, text) for name, text in default.items())
    try:
        return hosts.read_lists(programs=programs, variables=variables, addresses=addresses)
    except ValueError as error:
        raise ImproperlyConfigured(str(error)) from error


DATA_DIR = Path(env_str("MNESIS_DATA_DIR", str(BASE_DIR / "data")))
DEBUG = env_bool("DEBUG", False)
SECRET_KEY = env_secret("SECRET_KEY", DATA_DIR)
SECRET_KEY_FALLBACKS = env_list("SECRET_KEY_FALLBACKS", [])
ALLOWED_HOSTS = env_list("ALLOWED_HOSTS", ["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = env_list("CSRF_TRUSTED_ORIGINS", [])
TRUSTED_PROXIES = env_networks("MNESIS_TRUSTED_PROXIES")
REDIS_URL = env_str("REDIS_URL", "")
USER_IS_SESSION = env_bool("MNESIS_USER_IS_SESSION", False)
GATEWAY_WITHOUT_RECORD = env_bool("MNESIS_GATEWAY_WITHOUT_RECORD", False)
WARM_UP = env_bool("MNESIS_WARM_UP", True)
ROLE = env_str("MNESIS_ROLE", "worker" if "qcluster" in sys.argv else "command")
# Served to this machine only: "manage.py up" says so for an address on loopback. Commands are run at the host, which a
# name of another one in ALLOWED_HOSTS, or TLS, makes a server for others all the same.
LOCAL_HOSTS = {"localhost", "127.0.0.1", "[::1]"}
SERVES_OTHERS = bool({*ALLOWED_HOSTS} - LOCAL_HOSTS or CSRF_TRUSTED_ORIGINS or env_bool("MNESIS_HTTPS", False))
IS_LOCAL = env_bool("MNESIS_LOCAL", ROLE == "command" and "runserver" not in sys.argv) and not SERVES_OTHERS

DATABASES = {"default": database(env_str("DATABASE_URL", f"sqlite:///{DATA_DIR}/mnesis.sqlite3"), pooled=ROLE == "web")}
if _sentence := missing_file(DATABASES["default"], DATA_DIR):
    # Opening it would make an empty one.
    raise ImproperlyConfigured(_sentence)
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "mnesis_site.apps.AdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "channels",
    "django_htmx",
    "django_q",
    "ninja",
    "mnesis_site.apps.SiteConfig",
    "sessions_app",
    "compaction_app",
    "files_app",
    "agents_app",
    "audit_app",
]

MIDDLEWARE = [
    "mnesis_site.middleware.Serving",
    "mnesis_site.sign_in.SignInGate",
    "mnesis_site.middleware.Security",
    "mnesis_site.bodies.Compression",
    "mnesis_site.middleware.ContentSecurityPolicy",
    "servestatic.middleware.ServeStaticMiddleware",
    "mnesis_site.languages.Language",
    "mnesis_site.middleware.Sessions",
    "mnesis_site.middleware.Common",
    "mnesis_site.middleware.Csrf",
    "mnesis_site.middleware.Authentication",
    "mnesis_site.middleware.Messages",
    "mnesis_site.middleware.FrameOptions",
    "django_htmx.middleware.HtmxMiddleware",
    "mnesis_site.errors.ErrorAnswers",
]
# That security, frames and CSRF have no middleware: these checks know Django's own by name, and not what is derived of them.
SILENCED_SYSTEM_CHECKS = ["security.W001", "security.W002", "security.W003"]

ROOT_URLCONF = "mnesis_site.urls"
ASGI_APPLICATION = "mnesis_site.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "mnesis_site.languages.language",
            ],
            # Nearly every template has texts, numbers, icons or addresses of static files.
            "builtins": [
                "django.templatetags.i18n",
                "django.templatetags.static",
                "sessions_app.templatetags.sessions",
            ],
        },
    }
]

CSRF_FAILURE_VIEW = "mnesis_site.errors.csrf_failure"
LOGIN_URL = "sign-in"
LOGIN_REDIRECT_URL = "new-chat"
LOGOUT_REDIRECT_URL = "sign-in"
AUTHENTICATION_BACKENDS = ["mnesis_site.sign_in.LimitedBackend"]
PASSWORD_HASHERS = ["mnesis_site.sign_in.LanedPBKDF2PasswordHasher"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
LANGUAGES = [("en", "English"), ("de", "Deutsch")]
LOCALE_PATHS = [BASE_DIR / "locale"]
LOCALE_DIGEST = digest_of(*LOCALE_PATHS)  # in the address of the scripts' texts, so that browsers keep them for a year
LANGUAGE_COOKIE_NAME = "mnesis_language"
LANGUAGE_COOKIE_AGE = 31_536_000
LANGUAGE_COOKIE_SAMESITE = "Lax"
LANGUAGE_COOKIE_HTTPONLY = True
FORMAT_MODULE_PATH = "mnesis_site.languages"
USE_TZ = True

# One hash of all static files stands in the address of each, so that browsers keep them for a year and imports between
# modules stay as they are written. Not in development. requirements.in stands for the files that packages bring.
BUNDLES = BASE_DIR / "sessions_app" / "pages" / "bundles.py"  # it makes one file of many
STATIC_URL = "static/" if DEBUG else f"static/{digest_of(BASE_DIR / 'static', BASE_DIR / 'requirements.in', BUNDLES)}/"
STATIC_ROOT = DATA_DIR / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATICFILES_FINDERS = [
    *([] if DEBUG else ["sessions_app.pages.bundles.BundleFinder"]),
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
]
SERVESTATIC_USE_FINDERS = True
SERVESTATIC_AUTOREFRESH = False
SERVESTATIC_ADD_HEADERS_FUNCTION = None if DEBUG else keep_for_a_year

STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage", "OPTIONS": {"location": DATA_DIR / "media"}},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
    # Contents of files by their SHA-256. Another backend must write a file whole or not at all.
    "files": file_storage(env_str("MNESIS_FILES_URL", ""), DATA_DIR / "files"),
}

SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = LANGUAGE_COOKIE_SECURE = env_bool("MNESIS_HTTPS", False)
DATA_UPLOAD_MAX_MEMORY_SIZE = 26_000_000

# Mail, for the links of people; without a host none is sent, and the links are shown all the same.
EMAIL_HOST = env_str("EMAIL_HOST", "")
EMAIL_PORT = env_int("EMAIL_PORT", 25, minimum=1)
EMAIL_HOST_USER = env_str("EMAIL_HOST_USER", "")
EMAIL_HOST_PASSWORD = env_str("EMAIL_HOST_PASSWORD", "")
EMAIL_USE_TLS = env_bool("EMAIL_USE_TLS", False)
EMAIL_USE_SSL = env_bool("EMAIL_USE_SSL", False)
EMAIL_TIMEOUT = env_int("EMAIL_TIMEOUT", 10, minimum=1)  # seconds for which the page waits
DEFAULT_FROM_EMAIL = SERVER_EMAIL = env_str("EMAIL_FROM", "mnesis@localhost")
if EMAIL_USE_TLS and EMAIL_USE_SSL:
    raise ImproperlyConfigured("EMAIL_USE_TLS and EMAIL_USE_SSL are two ways to encrypt: set one of them")

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        # The keyword permits no script, only the rules of which pages a browser fetches early (base.html).
        "script-src": ["'self'", "'inline-speculation-rules'"],
        "style-src": ["'self'"],
        "img-src": ["'self'"],
        "media-src": ["'self'"],
        "font-src": ["'self'", "data:"],  # the style sheets have theirs in them (sessions_app/pages/bundles.py)
        "connect-src": ["'self'"],
        # Of all responses only those of sessions_app/pages/frames.py let themselves be framed.
        "frame-src": ["'self'"],
        "manifest-src": ["'self'"],
        "form-action": ["'self'"],
        "frame-ancestors": ["'none'"],
        "base-uri": ["'none'"],
    }
}

# Where worker clusters say that they live, for /readyz: a place that every process can see.
_WORKER_CACHE = (
    {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": REDIS_URL,
        "OPTIONS": {"socket_connect_timeout": 1, "socket_timeout": 1},
    }
    if REDIS_URL
    else {"BACKEND": "django.core.cache.backends.filebased.FileBasedCache", "LOCATION": str(DATA_DIR / "workers")}
)
CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}, "workers": _WORKER_CACHE}

# A wake-up, not the truth: every job has a row of ours (decision 27). ORM broker in both modes: its queue
# row commits with our own transaction, and a killed worker loses no task.
Q_CLUSTER = {
    "name": "mnesis",
    "workers": env_int("MNESIS_WORKERS", 2, minimum=1),
    "cache": "workers",
    "timeout": 300,
    "retry": 900,
    "max_attempts": 3,
    "ack_failures": True,
    "queue_limit": 2,
    "bulk": 1,
    "poll": 0.2,
    "catch_up": False,
    "save_limit": 100,
    "recycle": 200,
    "orm": "default",
    "broker_class": "mnesis_site.processes.Broker",
    "scheduler": False,
    "label": "Worker queue",
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    # An outage is said once a minute (sessions_app.database.outages), not by each request that it refuses.
    "filters": {
        "no_outage": {"()": "mnesis_site.errors.NoOutage"},
        "once_a_minute": {"()": "sessions_app.database.outages.OnceAMinute"},
        "request": {"()": "sessions_app.record.actor.RequestOfLine"},
    },
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(request_id)s%(name)s: %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["request"]}},
    "root": {"handlers": ["console"], "level": env_str("MNESIS_LOG_LEVEL", "WARNING")},
    # Django's own console output is for DEBUG only; ours is for the operator, once.
    "loggers": {
        "django": {"handlers": [], "level": "WARNING"},
        "django.request": {"level": "ERROR", "filters": ["no_outage"]},
        "psycopg.pool": {"filters": ["once_a_minute"]},
        # It logs a traceback for each line of a server that is no message; what matters comes as an error of the call.
        "mcp": {"level": "CRITICAL"},
    },
}

MNESIS: dict[str, Any] = {
    "DEFAULT_MODEL": env_str("MNESIS_DEFAULT_MODEL", "demo"),
    "CONFIG_FILE": env_str("MNESIS_CONFIG", ""),
    "PROMPT_FOLDER": env_str("MNESIS_PROMPTS", ""),
    # Folders whose files may be taken in by path; none by default.
    "FILE_ROOTS": [Path(root) for root in env_str("MNESIS_FILE_ROOTS", "").split(os.pathsep) if root],
    "HOST_LISTS": host_lists(is_local=IS_LOCAL),
    "UPLOAD_FOLDER": DATA_DIR / "uploads",
    "APP_ROLE": env_str("MNESIS_APP_ROLE", ""),
    "AUDITOR_ROLE": env_str("MNESIS_AUDITOR_ROLE", ""),
    "MODEL_FACTORY": "mnesis_core.providers.make_model",
    "EMBEDDER_FACTORY": "mnesis_core.providers.make_embedder",
    "RERANKER_FACTORY": "mnesis_core.providers.make_reranker",
    # Whether a change for which nobody acts is an error, as in tests, or the system's.
    "REQUIRE_ACTOR": False,
}
