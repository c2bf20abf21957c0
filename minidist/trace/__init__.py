"""What each rank did and when.

timeline.py      spans of work, messages on their way, bytes and memory: plain data, measured or simulated alike
record.py        writes down what one rank computes; operations.py and messages.py, what it says to others
clocks.py        how far the ranks' clocks are apart
gather.py        what all ranks have written down, on one clock
chrome.py        a file for https://ui.perfetto.dev
stepper.py       what ranks hold after each communication, to step through
"""
