"""Makes hubs: storage, commits, releases, index and pages.

A hub is read by `satchel.store.hub_client`.
"""
