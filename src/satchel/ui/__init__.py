"""The web UI: manage skills and watch goals in a browser.

    server.py        the ASGI application, the socket and the URL to open
    state.py         AppState: objects shared by all routes
    flash.py         messages after a redirect
    pending.py       plans, messages and results that are kept between two requests
    auth.py          one-time links, a password, sessions in memory
    middleware.py    host, session and origin checks, body limits, response headers, language
    templating.py    templates -> responses
    errors.py        errors -> pages
    uploads.py       archives and folders sent by a browser
    imports.py       plans for uploads and repositories
    goal_service.py  changes to goals, and the processes that continue them
    goal_drafts.py   plans that wait to be started
    engine_connection.py  the engine of the goals
    events.py        server-sent events for open pages

    pages/           one module per page
    templates/       HTML; static/: style, script, htmx

A page has no logic of its own: it takes records of `satchel.presentation` and renders a template.
Text of a skill is escaped everywhere.
"""
