"""A table published as an Iceberg table of version 2: metadata, manifests, and their cleanup."""
