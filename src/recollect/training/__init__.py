"""Training: many runs in one compiled loop (`batch`), or one learner in Gymnasium environments (`online`).

`batch.train_iter` serves every pair of agent and JAX environment; `online.Learner` is an agent and the Gymnasium
environment it learns in. Start at either. May import `engines` and all before it.

The room is not called ``train``, which is the public function ``recollect.train``: importing any module of a package of
that name would put the package in the function's place.
"""
