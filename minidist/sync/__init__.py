"""Question 2: how do replicas stay in agreement? One file per answer.

seam.py             what a replica tells a sync while it computes: read this first
clipping.py         the norm of a gradient that is spread over ranks
data_parallel.py    sum the gradients of all replicas in every step
"""
