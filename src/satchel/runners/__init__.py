"""HOW A TOOL SKILL RUNS: a program gets ready, is held in a sandbox, answers one line, is gone.

Reading order:

    base        the records that all the others share
    pool        the runner: a queue, a bounded number of processes, some kept between calls
    runtimes    a folder and its manifest -> a program; `python`, `node` and `go` each know one
                kind, `contents` says what changed, `build` keeps what was built
    sandbox     which way to hold a program there is here; `dressing` and `seccomp` write it down,
                `selfcheck` tries to get out with `_probes`
    launcher    starts processes and leaves none behind
    exchange    one line out, one line in, by a deadline; `reply` says what a line says

The files that begin with an underscore (`_launcher_main`, `_minder` with `_child`, `_census`,
`_cgroup` and `_remove`, `_confine`, `_probes`) run in processes of their own, with the standard
library alone. Nothing here is imported before a tool skill is called.
"""
