"""Training: many runs in one compiled loop (`batch`), or one learner in Gymnasium environments (`online`).

The room is not called ``train``, which is the public function ``recollect.train``: importing any module of a package of
that name would put the package in the function's place.
"""
