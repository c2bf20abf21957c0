"""What each rank did and when.

timeline.py    spans of work, messages on their way, bytes and memory: plain data, measured or simulated alike
"""
