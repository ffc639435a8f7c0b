"""Django settings, all from the environment (`env.py` says how strictly; `deploy/env` documents every variable)."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from control import log
from control.env import Environment

ROOT = Path(__file__).resolve().parents[2]
env = Environment(os.environ)

# ---- this installation
PRODUCTION = env.flag("BURROW_PRODUCTION", default=False)
DEBUG = False
SECRET_KEY = env.secret("BURROW_SECRET_KEY")
INSTANCE = env.text("BURROW_INSTANCE")
PUBLIC_URL = env.text("BURROW_PUBLIC_URL").rstrip("/")
INTERNAL_URL = env.text("BURROW_INTERNAL_URL", "http://127.0.0.1:8000").rstrip("/")
ALLOWED_HOSTS = list(env.items("BURROW_ALLOWED_HOSTS", "127.0.0.1,localhost,[::1]"))
PREVIEW_DOMAIN = env.text("BURROW_PREVIEW_DOMAIN", "localhost")
PREVIEW_PORT = env.integer("BURROW_PREVIEW_PORT", 8080, low=1, high=65535)
PREVIEW_SCHEME = env.text("BURROW_PREVIEW_SCHEME", "https" if PRODUCTION else "http")

# ---- files
REPOS = env.folder("BURROW_REPOS")
SPOOL = env.folder("BURROW_SPOOL")

# ---- hosts and edges
HOST_ID = env.text("BURROW_HOST_ID")
HOST_TOKEN = env.secret("BURROW_HOST_TOKEN")
EDGE_CONTROL_SOCKETS = env.items("BURROW_EDGE_CONTROL_SOCKETS")

# ---- Django
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_htmx",
    "control.accounts",
    "control.applications",
    "control.sources",
    "control.builds",
    "control.releases",
    "control.machines",
    "control.routes",
    "control.deploys",
    "control.metering",
    "control.billing",
    "control.api",
    "control.web",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "control.web.middleware.DashboardHeaders",
]
ROOT_URLCONF = "control.urls"
WSGI_APPLICATION = "control.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [ROOT / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": env.text("BURROW_DB_HOST"),
        "NAME": env.text("BURROW_DB_NAME"),
        "USER": env.text("BURROW_DB_USER"),
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
        # No query of ours takes long; a lock that is not had in 10 s is a bug to see, not to wait for.
        "OPTIONS": {
            "options": "-c statement_timeout=30000 -c lock_timeout=10000 -c idle_in_transaction_session_timeout=60000",
            "connect_timeout": 5,
        },
    },
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en-us"
USE_I18N = False
STATIC_URL = "/static/"
WHITENOISE_USE_FINDERS = True
APPEND_SLASH = True

# ---- people
AUTH_USER_MODEL = "accounts.User"
LOGIN_URL = "web:login"
LOGIN_REDIRECT_URL = "web:apps"
LOGOUT_REDIRECT_URL = "web:login"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
MESSAGE_STORAGE = "django.contrib.messages.storage.fallback.FallbackStorage"

# ---- browsers
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_HTTPONLY = True
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_HTTPONLY = True
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = 4 * 1024 * 1024
if PRODUCTION:
    SESSION_COOKIE_SECURE = True
    CSRF_COOKIE_SECURE = True
    SESSION_COOKIE_NAME = "__Host-burrow-session"
    CSRF_COOKIE_NAME = "__Host-burrow-csrf"
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    CSRF_TRUSTED_ORIGINS = [PUBLIC_URL]

# ---- Celery. Postgres rows are the truth: a lost message costs a sweep's delay, a repeated one changes nothing.
VISIBILITY_TIMEOUT_S = 3600
REDIS_SOCKET = str(env.folder("BURROW_REDIS_SOCKET"))
CELERY_BROKER_URL = f"redis+socket://{quote(REDIS_SOCKET)}?virtual_host=0"
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": VISIBILITY_TIMEOUT_S,
    "socket_connect_timeout": 3,
    "global_keyprefix": f"burrow-{INSTANCE}:",
}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # the worker waits for Redis for as long as it takes
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TIMEZONE = "UTC"
# `expires` keeps a backlog from building up while no worker runs: a sweep looks at the present, one is as good as ten.
CELERY_BEAT_SCHEDULE = {
    "deploys.sweep": {"task": "deploys.sweep", "schedule": 5.0, "options": {"expires": 10}},
    "routes.republish": {"task": "routes.republish", "schedule": 5.0, "options": {"expires": 10}},
    "machines.reconcile": {"task": "machines.reconcile", "schedule": 10.0, "options": {"expires": 20}},
    "machines.sweep": {"task": "machines.sweep", "schedule": 5.0, "options": {"expires": 10}},
    "billing.charge": {"task": "billing.charge", "schedule": 30.0, "options": {"expires": 60}},
    "metering.close_orphans": {"task": "metering.close_orphans", "schedule": 300.0, "options": {"expires": 300}},
    "metering.forget_wakes": {"task": "metering.forget_wakes", "schedule": 600.0, "options": {"expires": 600}},
    "accounts.clear_sign_ins": {"task": "accounts.clear_sign_ins", "schedule": 86400.0, "options": {"expires": 3600}},
    "sources.clean": {"task": "sources.clean", "schedule": 600.0, "options": {"expires": 600}},
}

LOGGING_CONFIG = None
log.configure()
