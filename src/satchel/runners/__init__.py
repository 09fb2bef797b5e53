"""Runs the programs of tool skills: builds, sandboxes, processes, the one-line JSON protocol.

Reading order:

    base        the records that all others share
    pool        the runner: a queue, a bounded number of processes, warm workers
    runtimes    a folder and its manifest -> a program; `python`, `node` and `go` prepare one kind
                each, `build` caches what was built
    tiers       which sandbox this machine has; `sandbox` and `seccomp` describe it for a program,
                `workspace_guard` protects files in it, `tiers` tests it with `_probes`
    launcher    starts processes and leaves none behind
    protocol    one line out, one line in, by a deadline; `reply` parses the line

The files that begin with an underscore (`_launcher_main`, `_supervisor` with `_launcher_child`,
`_process_tree`, `_landlock`, `_probes`) run in processes of their own, with the
standard library only. Nothing here is imported before a tool skill is called.
"""
