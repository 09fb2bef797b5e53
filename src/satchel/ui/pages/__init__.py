"""One module per page: routes that take records of `presentation` and render templates."""
