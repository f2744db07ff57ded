"""Tables in, named columns out."""
