"""Question 2: how do replicas stay in agreement? One file per answer.

seam.py             what a replica tells a sync while it computes: read this first
saved.py            what of a sync belongs into a checkpoint
clipping.py         the norm of a gradient that is spread over ranks
data_parallel.py    sum the gradients of all replicas in every step
shard.py            what one rank owns of one bucket
zero.py             the same, and nobody keeps what somebody else keeps (its third stage: zero_weights.py)
partial.py          sum what the ranks of one replica have of a gradient, where replicas step on their own
outer.py            a step along the averaged change of all replicas
model_averaging.py  let replicas step on their own, and average their weights now and then
parameter_server.py push gradients to servers that stand apart, and pull weights: the workers' side; with
                    link.py (who is who), server.py (the servers' side), staleness.py (how old weights may be)
"""
