"""Runs the programs of tool skills: builds, sandboxes, processes, the one-line JSON protocol.

Reading order:

    base        the records that all others share
    pool        the runner: a queue and a bounded number of processes
    runtimes    a folder and its manifest -> a program; `python`, `node_program` (with `node` and
                `npm_packages`) and `go` prepare one kind each, `build` caches what was built
    scripts     a script of a skill -> its launch plan: interpreter, environment, packages; these
                are found by `script_packages` and `script_imports`
    tiers       which sandbox this machine has; `sandbox` and `seccomp` describe it for a program,
                `tiers` tests it with `_probes`
    proposal    what a program that may write would change: written to an `overlay`, listed by
                `changes` under `change_rules`, applied by `change_journal` in `change_steps`
    launcher    starts processes and leaves none behind; `plain_launcher` does it on macOS
    protocol    one line out, one line in, by a deadline; `reply` parses the line

The files that begin with an underscore (`_launcher_main`, `_supervisor` with `_launcher_child`,
`_overlay_mount`, `_process_tree`, `_landlock`, `_probes`) run in processes of their own, with the
standard library only. Nothing here is imported before a tool skill is called.
"""
