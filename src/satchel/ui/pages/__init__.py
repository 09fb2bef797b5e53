"""One module per page: routes that ask `views` and fill templates."""
