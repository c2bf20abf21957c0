"""Look at an installation: `python -m minidist.doctor`. Read `__main__.py`, then `findings.py` and `speed.py`."""
