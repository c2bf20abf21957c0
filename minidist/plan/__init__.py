"""What a way of training will cost, worked out on paper before anything is sent.

traffic.py    the messages and bytes of each collective, rank by rank
"""
