"""Question 1: where does one copy of the model live? One file per answer.

replica.py            what every answer has in common: telling the sync which gradients are final
whole.py              on one rank
tensor_parallel.py    every matrix shared out (its layers: tensor_layers.py, its loss: tensor_loss.py)
gather.py             putting the pieces together again
"""
