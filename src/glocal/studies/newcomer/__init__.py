"""Clients that join: one when training is over, or waves of them on the way."""

from glocal.studies.newcomer import join as join
from glocal.studies.newcomer import waves as waves
