"""The objects on the store and the state that they add up to: names, bodies, states. Pure; the rules are in
docs/PROTOCOL.md."""
