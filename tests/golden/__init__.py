"""What the library answered before it was rebuilt: seeded fits, kept as small arrays."""
