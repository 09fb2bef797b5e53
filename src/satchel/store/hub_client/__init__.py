"""Reads hubs: the format of their files, the client that verifies them, the source `hub`.

A hub is a set of static files. `satchel.hub` writes them; everything that a reader needs is here
and uses the standard library only.
"""
