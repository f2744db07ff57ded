"""General RCA: any number of views, any set system.

frame (whitened views) -> evidence (block cumulants, weights) -> start (sequential) -> refine (joint) -> solution;
discover (which components are there); paper (the algorithms of the paper, the reference).
"""
