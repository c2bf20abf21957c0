"""Question 1: where does one copy of the model live? One file per answer.

replica.py    what every answer has in common: telling the sync which gradients are final
whole.py      on one rank
gather.py     putting the pieces together again
"""
