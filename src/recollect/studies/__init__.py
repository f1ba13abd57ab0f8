"""Studies: the paper's figures, the board of memory tasks, statistics, plots, and what the laboratory needs.

`paper` holds the figures as data, `reproduce` trains, judges (`verdict`) and draws (`plots`) them; `benchmark` and
`tasks` are the memory benchmark; `study`, `atlas`, `lengths`, `looping`, `extensions`, `readings` and `tune` are the
studies of `recollect lab`. Pictures and verdicts read run folders alone. May import `training` and all before it.
"""
