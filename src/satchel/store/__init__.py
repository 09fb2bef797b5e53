"""SKILLS ON DISK: how they come, change and go, and how nothing is lost on the way.

    store.py         Store, the object callers hold: plan, then carry out
    plan.py          what a change would do, shown before it is done, line by line too
    prepare.py       a tree of files -> a step of a plan: staged, scanned, compared
    choose.py        which skills of a source, and under which ids
    update.py        newer versions, another name, edits that shall stay; merge.py brings newer
                     versions together with the user's edits
    reproduce.py     what the lockfile says, exactly
    verify.py        is it still what is locked?

    scope.py         the folders that Satchel writes to
    area.py          the work area: was it made here, by this user?
    stage.py         where a skill waits until it is complete
    transaction.py   every change is one; journal.py: what is being changed right now
    recovery.py      what the next command does after a crash
    history.py       what was there before, for `undo`; keeping.py: how much of it is kept
    trouble.py       what is said when the disk says no

    sources/         where skills come from: folder, archive, git
    archive/         one strict reader for zip and tar
    export.py        a skill -> an archive, the same bytes everywhere

    signers.py       whose signatures count; signing.py: making and checking them
    agents.py        where other agents look (agents.toml), and what they see
    links.py         links to skills there

A change goes from `store` through `plan` to `transaction`; nothing else writes to a scope.
"""
