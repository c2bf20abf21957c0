"""Build the compiled kernels."""

from setuptools import setup

setup()
