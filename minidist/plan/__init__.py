"""What a way of training will cost, worked out on paper before anything is sent.

traffic.py    the messages and bytes of each collective, rank by rank
sent.py       one line of a prediction: axes, purpose, messages and bytes
splits.py     what the split sends in a step: activations
syncs.py      what the sync sends in a step, in an average, at the end: gradients and weights
zero.py       the same for ZeRO, and how often its third stage fetches
memory.py     what a rank holds

How long it will take:

cluster.py    machines and links: names, and TOML files
cost.py       closed formulas for collectives and pipelines
acts.py       what a rank does, as plain data
messages.py   the messages of a collective, from the algorithms themselves
events.py     lets time pass
simulate.py   plays all ranks' acts on a cluster, event by event
"""
