"""Two views, U = S1 + S2 and V = A S2 + S3: the identified set, the evidence, the extraction."""
