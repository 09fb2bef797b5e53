"""Makes hubs: storage, ledger, releases, index and pages; `store.hub_client` reads them."""
