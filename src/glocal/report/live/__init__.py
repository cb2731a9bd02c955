"""Run folders in a browser, as they grow: a list, reports, comparisons, deployments.

``access`` says who may ask, ``watched`` what there is and whether it changed, ``site`` which page
answers which address, and ``server`` speaks HTTP.
"""
