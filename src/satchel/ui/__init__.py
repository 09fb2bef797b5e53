"""The web UI: manage skills and watch goals in a browser.

    serving.py     the socket, the address that is printed, the end
    app.py         every page put together
    house.py       House: what pages stand on (skills, goals, plans that wait for a yes)
    access.py      who may come in: a one-time link, a password; sessions in memory
    gate.py        what every request passes: host, session, forged requests, headers, language
    bodies.py      how much somebody may send, counted while it comes
    view.py        templates -> answers, in the reader's language
    failing.py     an error -> a page, or a part of one
    arrivals.py    uploads and other sources that wait for a decision, checked addresses
    carrying.py    a yes and a no to a change that waits, and what the next page says about it
    keeping.py     the engine of the goals, who watches it, and the processes started for them
    live.py        what changed, told to every open page
    render.py      a skill's files -> HTML that can do nothing

    views/         what is shown: records made from the library, the store and the goals
    pages/         one module per page: routes that ask `views` and fill `templates`
    templates/     HTML; static/: style, script, htmx

A page has no logic of its own: it asks the library, the store or an engine, makes records of the
answer (`views`), and fills a template. What a skill wrote is text everywhere.
"""
