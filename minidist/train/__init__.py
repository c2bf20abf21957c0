"""The main job: `mpiexec -n 4 python -m minidist.train`. Read `__main__.py` first."""
