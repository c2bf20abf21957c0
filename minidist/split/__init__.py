"""Question 1: where does one copy of the model live? One file per answer.

replica.py            what every answer has in common: telling the sync which gradients are final
whole.py              on one rank
tensor_parallel.py    every matrix shared out (its layers: tensor_layers.py, its loss: tensor_loss.py)
pipeline_parallel.py  runs of layers on each rank (where to cut: stages.py, in which order: schedules.py and
                      schedule_times.py); pipedream.py does not wait for a batch to end
gather.py             putting the pieces together again
"""
