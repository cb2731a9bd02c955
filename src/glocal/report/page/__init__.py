"""A result as one HTML file that people show to each other: collected from folders, rendered.

It needs no network and no other file. Figures are drawn here as SVG, every number in the page says
where in its data it is from, and without its script it is all there to read.
"""

from glocal.report.page.document import policy, render
from glocal.report.page.reading import collect, of_runs
from glocal.report.page.single import alone
from glocal.report.page.study_files import with_studies
from glocal.report.page.writing import check_file, write_page

__all__ = [
    "alone",
    "check_file",
    "collect",
    "of_runs",
    "policy",
    "render",
    "with_studies",
    "write_page",
]
