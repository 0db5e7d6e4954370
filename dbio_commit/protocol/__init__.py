"""What lies on the store, and what it adds up to: names, bodies, states. Pure; the rules are in docs/PROTOCOL.md."""
