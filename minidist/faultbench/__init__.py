"""faultbench: does the guard find what students do wrong, and keep quiet where they do it right?

The programs are in `tests/faults/`; `python -m minidist.faultbench` runs them. Read next: `programs.py`.
"""
