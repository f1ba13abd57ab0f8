"""Training: many runs in one compiled loop (`batch`), or one learner in Gymnasium environments (`online`).

`batch.train_iter` serves every pair of agent and JAX environment; `online.Learner` is an agent and the Gymnasium
environment it learns in. Start at either. May import `engines` and all before it.

``online.Learner`` is what a user calls. ``assembly`` makes its parts from the arguments (``arguments`` turns numbers
into Python's own, ``refusing`` says what does not fit), ``stepping`` is the loop around ``env_pool``, where
``returned`` checks whatever an environment returned and ``normalization`` scales it, by running ``moments``;
``recording`` writes rows of metrics (``board`` for TensorBoard), ``saving`` turns a learner into a checkpoint and back,
``resuming`` continues a run folder. ``player`` and ``inspection`` play without learning, in environments of their own;
``callbacks`` are told of every row.

The room is not called ``train``, which is the public function ``recollect.train``: importing any module of a package of
that name would put the package in the function's place.
"""
