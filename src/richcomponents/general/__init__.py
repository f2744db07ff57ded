"""General RCA: any number of views, any set system.

In comes Data (moments of the columns of all views), out goes a SetSolution: white (coordinates) -> evidence (block
cumulants) -> discover (which sets) -> start (sequential) -> refine (joint model; descend where it is large) -> solution.
"""
