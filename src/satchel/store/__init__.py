"""Installing, updating and removing skills, all or nothing.

    store.py            Store: plan a change, then apply it
    plan_applier.py     plan -> transaction, with the trust of the changed skills
    plan.py             plans, steps and differences
    patch.py            unified diffs
    planner.py          source or file tree -> step: staged, scanned, compared
    skill_selection.py  the skills of a source that are installed, with those that they require
    skill_names.py      ids and names: lookup, conflicts, another name, a new SKILL.md
    update.py           steps for updates, renames, edits and locked skills
    install_state.py    installed skills compared with the lockfile
    trees.py            file trees and the digests that travel with them

    workdir.py          scopes, the work folder and its owner
    disk_errors.py      OSError -> refusal with a hint
    staging.py          staging folders
    transaction.py      atomic changes
    journal.py          the write-ahead journal
    scope_lock.py       the write lock of a scope
    record_files.py     the history entry and the lockfile of a record
    recovery.py         crash recovery
    history.py          the history on disk, and retention
    undo.py             undo and redo

    sources/            sources of skills: folder, archive, git, discovery index
    hub_client/         hubs: the format of their files, signatures, versions, the client
    download.py         files of other machines, within limits
    archive/            a strict reader for zip and tar
    export.py           reproducible archives

    signing.py          SSH signatures and accepted signers
    agents.py           other agents' skill folders (agents.toml), visibility and links

A change goes from `store` through `plan` to `transaction`; nothing else writes to a scope.
"""
