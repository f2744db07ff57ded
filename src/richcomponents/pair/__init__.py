"""In: second moments and block cumulants of two views. Out: what is known of T, and Parts."""
