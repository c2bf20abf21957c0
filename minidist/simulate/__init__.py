"""Play a training on a cluster that need not exist: `python -m minidist.simulate`.

__main__.py    the command
imagine.py     what any rank of a large job would have: its setup, without starting it
program.py     what a rank does in a step, as acts
syncing.py     the part of it that replicas do to agree
serving.py     what a parameter server does
job.py         plays all ranks, or one replica where there are too many
costs.py       how long computing takes: counted, or from a profile
profile.py     measuring this machine
report.py      what is printed
"""
