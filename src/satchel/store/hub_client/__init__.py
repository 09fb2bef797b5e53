"""Reads hubs, which are static files, with the standard library alone; `satchel.hub` makes them."""
