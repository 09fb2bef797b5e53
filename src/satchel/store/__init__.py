"""SKILLS ON DISK: how they come, change and go, and how nothing is lost on the way.

    store.py         Store, the object callers hold: plan, then carry out
    plan.py          what a change would do, shown before it is done, line by line too
    prepare.py       a tree of files -> a step of a plan: staged, scanned, compared
    choose.py        which skills of a source, and under which ids
    update.py        newer versions, another name, edits that shall stay, and what the lockfile says
                     exactly
    merge.py         newer versions with the user's edits; is it still what is locked?

    scope.py         the folders that Satchel writes to, who owns them, and what the disk refuses
    stage.py         where a skill waits until it is complete
    transaction.py   every change is one, also across a crash
    journal.py       the one that is under way, and those that are kept
    history.py       what was there before, for `undo`

    sources/         where skills come from: folder, archive, git
    archive/         one strict reader for zip and tar
    export.py        a skill -> an archive, the same bytes everywhere

    signing.py       whose signatures count, making them and checking them
    agents.py        where other agents look (agents.toml), what they see, and links to skills there

A change goes from `store` through `plan` to `transaction`; nothing else writes to a scope.
"""
