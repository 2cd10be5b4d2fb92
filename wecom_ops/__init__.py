"""The Django project: settings, URLs, health check and the local stack."""
