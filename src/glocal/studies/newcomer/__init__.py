"""A client that joins when training is over."""

from glocal.studies.newcomer import join as join
