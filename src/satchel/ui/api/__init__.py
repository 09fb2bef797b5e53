"""The same as the pages, for scripts: JSON endpoints, described by OpenAPI."""
